// What moves in a page: sliders over frames drawn beforehand, 3-D views that turn, gradients to drag, and equations tied to code.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("figure.fedfig > svg").forEach(framed);
  document.querySelectorAll(".fig").forEach(slider);
  document.querySelectorAll(".view").forEach(turnable);
  document.querySelectorAll(".arrows").forEach(arrows);
  document.querySelectorAll("a.eqlink").forEach(tie);
});
const themed = (node, draw) => {                                     // draw now, on a new size and on a new theme
  new ResizeObserver(draw).observe(node);
  new MutationObserver(draw).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
};
const add = (parent, tag, props = {}, text = "") => {
  const svg = ["svg", "g", "line", "path", "circle", "text"].includes(tag);
  const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  Object.entries(props).forEach(([k, v]) => e.setAttribute(k, v));
  if (text) e.textContent = text;
  parent.append(e);
  return e;
};

function slider(fig) {
  const range = fig.querySelector(".slider input"), frames = fig.querySelectorAll(".frame");
  if (!range) return;
  const values = range.dataset.values.split(" "), takeaway = fig.closest("figure").querySelector("figcaption strong");
  const show = () => {
    frames.forEach((f, i) => (f.hidden = i !== +range.value));
    range.nextElementSibling.value = values[range.value];
    if (takeaway) takeaway.textContent = frames[range.value].dataset.title + ". ";
    range.setAttribute("aria-valuetext", values[range.value] + ": " + frames[range.value].firstElementChild.getAttribute("aria-label"));
  };
  range.addEventListener("input", show);
  show();
}

function tie(link) {                                                 // pointing at a line of code lights its equation, and back
  const equation = document.getElementById(link.hash.slice(1));
  if (!equation || link.pathname !== location.pathname) return;
  const box = equation.closest("div.math") || equation;
  const on = light => () => { box.classList.toggle("seen", light); link.classList.toggle("seen", light); };
  [[link, "pointerenter", true], [link, "pointerleave", false], [link, "focus", true], [link, "blur", false],
    [box, "pointerenter", true], [box, "pointerleave", false]].forEach(([node, event, light]) => node.addEventListener(event, on(light)));
}

// cividis, ten stops
const CIVIDIS = [[0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115], [138, 134, 120], [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56]];
const heat = t => { const x = Math.min(8.999, Math.max(0, t * 9)), i = Math.floor(x); return CIVIDIS[i].map((v, k) => v + (x - i) * (CIVIDIS[i + 1][k] - v)); };

function turnable(box) {
  const data = JSON.parse(box.querySelector("script").textContent), cloud = data.kind === "cloud", names = cloud ? [""] : Object.keys(data.z);
  const start = { yaw: 0.7, pitch: 0.5, zoom: 1 }, eye = { ...start }, turned = [];
  const css = name => getComputedStyle(box).getPropertyValue(`--fig-${name}`).trim();
  const flat = cloud ? [] : names.flatMap(n => data.z[n].flat()), low = Math.min(...flat), high = Math.max(...flat);
  const spans = cloud ? [0, 1, 2].map(k => { const v = data.points.map(p => p.at[k]); return [Math.min(...v), Math.max(...v)]; })
    : [data.extent, data.extent, [low, high]];
  const print = v => String(+v.toPrecision(3)).replace("-", "−");

  names.forEach(name => {
    const cell = add(box, "div");
    if (name) add(cell, "b", {}, name);
    const canvas = add(cell, "canvas", { tabindex: 0, role: "application", "aria-roledescription": "3-D view",
      "aria-label": `${name || data.axes.join(", ")}, to turn with the arrow keys; plus and minus zoom. ${box.dataset.alt}` });
    canvas.addEventListener("pointerdown", e => canvas.setPointerCapture(e.pointerId));
    canvas.addEventListener("pointermove", e => e.buttons && turn(-e.movementX / 120, e.movementY / 160));
    canvas.addEventListener("keydown", e => {
      const step = { ArrowLeft: [0.12, 0], ArrowRight: [-0.12, 0], ArrowUp: [0, 0.08], ArrowDown: [0, -0.08], "+": [0, 0, 1.1], "=": [0, 0, 1.1], "-": [0, 0, 1 / 1.1] }[e.key];
      if (e.key === "0") Object.assign(eye, start), turn(0, 0);
      else if (step) turn(...step); else return;
      e.preventDefault();
    });
    turned.push(() => (cloud ? drawCloud : drawSurface)(canvas, data.z && data.z[name]));
  });
  add(box, "p", { class: "hint" }, "Drag to turn" + (names.length > 2 ? " all" : names.length > 1 ? " both" : "") + ", or focus and use the arrow keys; + and − zoom, 0 resets.");
  const draw = () => turned.forEach(f => f());
  function turn(yaw, pitch, zoom = 1) {
    eye.yaw += yaw;
    eye.pitch = Math.max(0.08, Math.min(1.5, eye.pitch + pitch));
    eye.zoom = Math.max(0.5, Math.min(2.5, eye.zoom * zoom));
    requestAnimationFrame(draw);
  }
  function stage(canvas) {                                           // a fresh canvas and its projection of the cube [-1, 1]^3
    const dpr = devicePixelRatio || 1, W = canvas.clientWidth, H = canvas.clientHeight, c = canvas.getContext("2d");
    canvas.width = W * dpr;
    canvas.height = H * dpr;
    c.scale(dpr, dpr);
    c.font = "12px " + getComputedStyle(box).fontFamily;
    const [sy, cy, sp, cp] = [Math.sin(eye.yaw), Math.cos(eye.yaw), Math.sin(eye.pitch), Math.cos(eye.pitch)], S = eye.zoom * Math.min(W, H * 1.1) * 0.27;
    const project = (x, y, z) => {
      const a = x * cy - y * sy, b = x * sy + y * cy, g = z * 0.62, near = 1 / (1 + 0.16 * (b * cp - g * sp));
      return [W / 2 + a * S * near, H * 0.5 - (b * sp + g * cp) * S * near, b * cp - g * sp];
    };
    const line = (colour, width, ...points) => {
      c.strokeStyle = colour;
      c.lineWidth = width;
      c.beginPath();
      points.forEach((p, k) => c[k ? "lineTo" : "moveTo"](...project(...p)));
      c.stroke();
    };
    const say = (text, x, y, z, colour, align = "center") => { const [u, v] = project(x, y, z); c.fillStyle = colour; c.textAlign = align; c.fillText(text, u, v + 4); };
    return { c, project, line, say, front: cy > 0 ? -1 : 1, side: sy > 0 ? -1 : 1, sy, cy };
  }
  function frame(s) {                                                // floor, axes with their ends, one standing edge
    const soft = css("soft"), grid = css("grid"), { line, say, front: f, side: d } = s;
    for (const t of [-1, 0, 1]) { line(grid, 1, [t, -1, -1], [t, 1, -1]); line(grid, 1, [-1, t, -1], [1, t, -1]); }
    line(soft, 1.2, [-1, f, -1], [1, f, -1]);
    line(soft, 1.2, [d, -1, -1], [d, 1, -1]);
    line(soft, 1.2, [-d, f, -1], [-d, f, 1]);
    say(data.axes[0], 0, f * 1.34, -1, soft);
    say(data.axes[1], d * 1.34, 0, -1, soft);
    for (const [t, k] of [[-1, 0], [1, 1]]) {
      say(print(spans[0][k]), t * 0.94, f * 1.16, -1, soft);
      say(print(spans[1][k]), d * 1.16, t * 0.94, -1, soft);
      say(print(spans[2][k]), -d * 1.22, f * 1.22, k ? 1 : -0.82, soft);
    }
    say(data.axes[2], -d, f, 1.28, soft);
  }
  function drawSurface(canvas, z) {
    const s = stage(canvas), n = z.length, quads = [], at = (i, j) => s.project((2 * j) / (n - 1) - 1, (2 * i) / (n - 1) - 1, (2 * (z[i][j] - low)) / (high - low || 1) - 1);
    frame(s);
    for (let i = 0; i < n - 1; i++) for (let j = 0; j < n - 1; j++) {
      const q = [at(i, j), at(i, j + 1), at(i + 1, j + 1), at(i + 1, j)], slope = ((z[i][j + 1] - z[i][j]) * s.cy - (z[i + 1][j] - z[i][j]) * s.sy) / (high - low || 1);
      quads.push([q[0][2] + q[2][2], q, (z[i][j] - low) / (high - low || 1), 1 + Math.max(-0.22, Math.min(0.22, slope * 5))]);
    }
    s.c.lineWidth = 0.6;
    quads.sort((a, b) => b[0] - a[0]).forEach(([, q, t, light]) => {
      s.c.fillStyle = s.c.strokeStyle = `rgb(${heat(t).map(v => Math.min(255, v * light)).join()})`;
      s.c.beginPath();
      q.forEach((p, k) => s.c[k ? "lineTo" : "moveTo"](p[0], p[1]));
      s.c.closePath();
      s.c.fill();
      s.c.stroke();
    });
  }
  function drawCloud(canvas) {
    const s = stage(canvas), scaled = data.points.map(p => ({ ...p, x: p.at.map((v, k) => spans[k][1] > spans[k][0] ? 1.7 * (v - spans[k][0]) / (spans[k][1] - spans[k][0]) - 0.85 : 0) }));
    frame(s);
    scaled.sort((a, b) => s.project(...b.x)[2] - s.project(...a.x)[2]).forEach(({ x, name, colour }) => {
      s.line(css("grid"), 1.4, x, [x[0], x[1], -1]);
      const [u, v] = s.project(...x);
      s.c.fillStyle = css(colour);
      s.c.beginPath();
      s.c.arc(u, v, 5, 0, 7);
      s.c.fill();
      s.c.textAlign = u > canvas.clientWidth * 0.72 ? "right" : "left";
      s.c.fillText(name, u + (u > canvas.clientWidth * 0.72 ? -9 : 9), v + 4);
    });
  }
  themed(box, draw);
}

// Two or three gradients g_i; the server steps against a combination d of them, so a client gains when <d, g_i> > 0.
const dot = (a, b) => a[0] * b[0] + a[1] * b[1], norm = a => Math.hypot(...a), times = (a, k) => [a[0] * k, a[1] * k], plus = (a, b) => [a[0] + b[0], a[1] + b[1]];
const middle = g => times(g.reduce(plus), 1 / g.length);
const shortest = u => {                                              // the point nearest to 0 in the convex hull of u
  const cross = (a, b) => a[0] * b[1] - a[1] * b[0], turns = u.map((a, i) => cross(a, u[(i + 1) % u.length]));
  if (u.length > 2 && (turns.every(t => t >= 0) || turns.every(t => t <= 0)) && turns.some(t => t)) return [0, 0];
  const edges = u.flatMap((a, i) => u.slice(i + 1).map(b => { const e = plus(b, times(a, -1)), t = Math.max(0, Math.min(1, -dot(a, e) / (dot(e, e) || 1))); return plus(a, times(e, t)); }));
  return edges.reduce((a, b) => (norm(a) <= norm(b) ? a : b));
};
const COMBINE = {                                                    // colour, width, opacity: three that coincide stay visible
  FedAvg: ["c6", 9, 0.5, g => middle(g)],
  "FedMGDA+": ["c4", 5, 0.9, g => shortest(g.map(a => times(a, 1 / (norm(a) || 1))))],
  FedFV: ["c3", 2.2, 1, g => {
    const d = middle(g.map((a, i) => g.reduce((p, b, j) => (j !== i && dot(p, b) < 0 ? plus(p, times(b, -dot(p, b) / (dot(b, b) || 1))) : p), a)));
    return times(d, norm(d) > 1e-9 ? norm(middle(g)) / norm(d) : 0);
  }],
};

function arrows(box) {
  const tips = JSON.parse(box.dataset.tips), unit = 100;
  box.classList.toggle("three", tips.length > 2);
  const svg = add(box, "svg", { viewBox: "-150 -135 300 270", role: "img", "aria-label": box.dataset.alt }), out = add(add(box, "div", { class: "scroll" }), "table", { class: "plain" });
  add(svg, "line", { x1: -145, x2: 145, y1: 0, y2: 0, class: "axis" });
  add(svg, "line", { x1: 0, x2: 0, y1: -130, y2: 130, class: "axis" });
  const arrow = (colour, width, opacity) => ({ width, path: add(svg, "path", { style: `stroke: var(--fig-${colour}); stroke-opacity: ${opacity}; fill: none`, "stroke-width": width }),
    head: add(svg, "path", { style: `fill: var(--fig-${colour}); fill-opacity: ${opacity}` }) });
  const mixed = Object.values(COMBINE).map(([colour, width, opacity]) => arrow(colour, width, opacity));
  const clients = tips.map(() => arrow("ink", 2, 1)), words = tips.map((_, i) => add(svg, "text", { style: "fill: var(--fig-ink)" }, `client ${i + 1}`));
  const place = (a, [x, y]) => {
    const X = x * unit, Y = -y * unit, r = Math.hypot(X, Y) || 1, [u, v] = [X / r, Y / r], tip = Math.min(r, 7 + a.width), half = 3 + a.width * 0.8;
    a.path.setAttribute("d", `M0 0L${X - u * tip} ${Y - v * tip}`);
    a.head.setAttribute("d", r > 4 ? `M${X} ${Y}L${X - u * tip - v * half} ${Y - v * tip + u * half}L${X - u * tip + v * half} ${Y - v * tip - u * half}Z` : "");
  };
  const draw = () => {
    const gains = Object.entries(COMBINE).map(([name, [, , , f]], k) => { const d = f(tips); place(mixed[k], d); return [name, tips.map(g => dot(d, g))]; });
    tips.forEach((t, i) => {
      place(clients[i], t);
      const [x, y] = [t[0] * unit, -t[1] * unit];
      Object.entries({ x: Math.max(-115, Math.min(115, x)), y: y + (y > 0 ? 30 : -21), "text-anchor": "middle" }).forEach(([k, w]) => words[i].setAttribute(k, w));
      grips[i].setAttribute("cx", t[0] * unit);
      grips[i].setAttribute("cy", -t[1] * unit);
    });
    out.replaceChildren();
    const head = add(add(out, "thead"), "tr"), body = add(out, "tbody");
    ["the step of", ...tips.map((_, i) => `client ${i + 1}`)].forEach(t => add(head, "th", { scope: "col" }, t));
    gains.forEach(([name, all]) => {
      const tr = add(body, "tr"), th = add(tr, "th", { scope: "row" }), [colour, width, opacity] = COMBINE[name];
      add(add(th, "svg", { viewBox: "0 0 38 12", "aria-hidden": "true" }), "line", { x1: 0, x2: 38, y1: 6, y2: 6, "stroke-width": width, "stroke-opacity": opacity, style: `stroke: var(--fig-${colour})` });
      th.append(name);
      all.forEach(v => { const [kind, word] = v > 1e-3 ? ["match", "gains"] : v < -1e-3 ? ["differs", "loses"] : ["not-run", "stays"]; add(add(tr, "td"), "span", { class: `chip v-${kind}` }, word); });
    });
  };
  const move = (i, x, y) => { const r = Math.max(1, Math.hypot(x, y) / 1.1); tips[i] = [x / r, y / r]; draw(); };
  const grips = tips.map((_, i) => {
    const grip = add(svg, "circle", { r: 15, class: "grip", tabindex: 0, role: "application", "aria-roledescription": "arrow", "aria-label": `gradient of client ${i + 1}: move its tip with the arrow keys` });
    grip.addEventListener("pointerdown", e => { grip.setPointerCapture(e.pointerId); e.preventDefault(); });
    grip.addEventListener("pointermove", e => { if (!e.buttons) return; const p = new DOMPoint(e.clientX, e.clientY).matrixTransform(svg.getScreenCTM().inverse()); move(i, p.x / unit, -p.y / unit); });
    grip.addEventListener("keydown", e => { const step = { ArrowLeft: [-0.06, 0], ArrowRight: [0.06, 0], ArrowUp: [0, 0.06], ArrowDown: [0, -0.06] }[e.key]; if (step) { move(i, tips[i][0] + step[0], tips[i][1] + step[1]); e.preventDefault(); } });
    return grip;
  });
  add(box, "p", { class: "hint" }, "Drag a tip, or focus it and use the arrow keys. Clients of one size, in the order of their loss; FedMGDA+ with ε = 1, FedFV with α = 0 and τ = 0.");
  draw();
}

// A figure of a notebook gets the frame that {fig} makes (fedfig.html): its natural width, and room to scroll where it is wide.
function framed(svg) {
  const inches = svg.viewBox.baseVal.width / 72, frame = document.createElement("div");
  const small = [...svg.querySelectorAll("text")].some(t => parseFloat(getComputedStyle(t).fontSize) < 8.4); // points: on a phone below 9 pixels, if not wide
  frame.className = inches > 5.1 || small ? "frame wide" : "frame";
  frame.style.setProperty("--natural", inches / 4.8);
  svg.replaceWith(frame);
  frame.append(svg);
}
