// What the interactive pieces share. A piece is a file beside this one that calls
//   fedplay.piece("name", ui => { build the controls once; return () => { draw the state }; });
// The page holds a picture of the same thing; it stays where scripts are off, in print, and if a piece fails.
const fedplay = (() => {
  const pieces = {};
  const SVG = ["svg", "g", "line", "path", "circle", "rect", "text", "polyline", "polygon"];
  const COLOUR = /^(ink|soft|grid|paper|c[1-6]|g[12])$/;             // names of the theme's colours, as fill or stroke

  // ---- small things
  const add = (parent, tag, props = {}, text = "") => {
    const e = SVG.includes(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [k, v] of Object.entries(props)) {
      if ((k === "fill" || k === "stroke") && COLOUR.test(v)) e.style[k] = `var(--fig-${v})`;
      else e.setAttribute(k, v);
    }
    if (text !== "") e.textContent = text;
    parent.append(e);
    return e;
  };
  const scale = ([a, b], [u, v]) => {                                // numbers from a to b -> places from u to v, and back
    const s = x => u + ((x - a) / (b - a)) * (v - u);
    s.back = p => a + ((p - u) / (v - u)) * (b - a);
    return s;
  };
  const clamp = (x, lo, hi) => Math.min(hi, Math.max(lo, x));
  const fmt = (x, places = 2) => {                                   // a true minus, and no minus before zero
    if (!Number.isFinite(x)) return Number.isNaN(x) ? "–" : x > 0 ? "∞" : "−∞";
    const s = x.toFixed(places);
    return /^-0\.?0*$/.test(s) ? s.slice(1) : s.replace("-", "−");
  };
  const sum = x => x.reduce((a, b) => a + b, 0);
  const mean = x => sum(x) / x.length;
  const random = seed => () => {                                     // mulberry32: the same numbers in every browser
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };

  // ---- a piece: controls, pictures and numbers below each other, in the order in which they are asked for
  function start(box) {
    const still = box.querySelector(".still svg"), stage = add(box, "div", { class: "stage" }), synced = [];
    let draw = () => {}, row = null, timer = 0;
    const live = add(box, "p", { class: "visually-hidden", "aria-live": "polite" });
    const change = () => { draw(); synced.forEach(f => f()); };
    const group = name => (row && row.className === name ? row : (row = add(stage, "div", { class: name })));

    // pointer and keys for what can be moved: one value within [min, max], in steps
    const movable = (node, o) => {
      const put = v => { o.set(clamp(Math.round(v / o.step) * o.step, o.min, o.max)); change(); };
      Object.entries({ tabindex: 0, role: "slider", "aria-label": o.label, "aria-valuemin": o.min, "aria-valuemax": o.max,
        "aria-orientation": o.along === "y" ? "vertical" : "horizontal" }).forEach(([k, v]) => node.setAttribute(k, v));
      node.addEventListener("keydown", e => {
        const jump = { ArrowUp: 1, ArrowDown: -1, PageUp: 5, PageDown: -5, ...(o.peers ? {} : { ArrowRight: 1, ArrowLeft: -1 }) }[e.key];
        if (e.ctrlKey || e.metaKey || e.altKey) return;
        if (jump) put(o.get() + jump * o.step);
        else if (e.key === "Home") put(o.min);
        else if (e.key === "End") put(o.max);
        else if (o.peers && /^Arrow(Left|Right)$/.test(e.key)) beside(node, o.peers(), e.key === "ArrowRight" ? 1 : -1);
        else return;
        e.preventDefault();
      });
      return put;
    };
    const beside = (node, peers, by) => {                            // one stop of the tab key for a row of handles
      const next = peers[clamp(peers.indexOf(node) + by, 0, peers.length - 1)];
      peers.forEach(p => p.setAttribute("tabindex", p === next ? 0 : -1));
      next.focus();
    };

    const ui = {
      stage, change,
      // an <input type=range>; o: label, min, max, step, get, set, text (value -> what is printed)
      slider(o) {
        const text = o.text || (v => fmt(v, Math.max(0, -Math.floor(Math.log10(o.step) + 1e-9))));
        const label = add(group("sliders"), "label", { class: "slider" });
        add(label, "span", {}, o.label);
        const input = add(label, "input", { type: "range", min: o.min, max: o.max, step: o.step }), out = add(label, "output");
        input.addEventListener("input", () => { o.set(+input.value); change(); });
        synced.push(() => { input.value = o.get(); out.value = text(o.get()); input.setAttribute("aria-valuetext", text(o.get())); });
        return input;
      },
      // a button; can() says whether it may be pressed now
      button(text, act, can = () => true) {
        const b = add(group("buttons"), "button", { type: "button" }, text);
        b.addEventListener("click", () => { if (can()) { act(); change(); } });
        synced.push(() => b.setAttribute("aria-disabled", !can()));
        return b;
      },
      // one of several; choices: {value: words}
      choice(label, choices, get, set) {
        const field = add(group("sliders"), "fieldset", { class: "choice" });
        add(field, "legend", {}, label);
        const name = `${box.dataset.play}-${Math.random().toString(36).slice(2)}`;
        Object.entries(choices).forEach(([value, words]) => {
          const l = add(field, "label"), input = add(l, "input", { type: "radio", name, value });
          l.append(words);
          input.addEventListener("change", () => { set(value); change(); });
          synced.push(() => (input.checked = value === String(get())));
        });
      },
      reset(act) { return ui.button("Reset", act); },
      // an SVG as wide as the page allows, so that letters keep their size; tall: W -> height
      picture(alt, tall = W => 0.6 * W, least = 260, most = 640) {
        row = null;
        const svg = add(stage, "svg", { role: "group", "aria-label": alt }), back = add(svg, "g"), front = add(svg, "g");
        const view = {
          svg,
          clear() {                                                  // an empty layer below the handles: {g, W, H}
            const W = Math.round(clamp(stage.clientWidth || most, least, most)), H = Math.round(tall(W));
            Object.entries({ viewBox: `0 0 ${W} ${H}`, width: W, height: H }).forEach(([k, v]) => svg.setAttribute(k, v));
            back.replaceChildren();
            return { g: back, W, H };
          },
          // a dot to drag; o: label, min, max, step, along ("x" or "y"), get, set, text, scale (() => the scale in use),
          // peers (for a row of handles: () => their nodes; then left and right go to the neighbour)
          handle(o) {
            const node = add(front, "g", { class: `handle along-${o.along}` }), area = add(node, "rect", { class: "area", fill: "transparent" });
            const dot = add(node, "circle", { r: o.r || 8, class: "dot" }), put = movable(node, o);
            let held = false;
            const to = e => {
              const p = new DOMPoint(e.clientX, e.clientY).matrixTransform(svg.getScreenCTM().inverse());
              put(o.scale().back(o.along === "x" ? p.x : p.y));
            };
            node.addEventListener("pointerdown", e => { if (e.button) return; held = true; node.setPointerCapture(e.pointerId); node.focus(); to(e); e.preventDefault(); });
            node.addEventListener("pointermove", e => held && to(e));
            ["pointerup", "pointercancel"].forEach(end => node.addEventListener(end, () => (held = false)));
            synced.push(() => {
              node.setAttribute("aria-valuenow", +o.get().toFixed(6));
              node.setAttribute("aria-valuetext", o.text ? o.text(o.get()) : fmt(o.get()));
            });
            return {
              node,
              // where its centre is, and the size of what catches the pointer (44 pixels unless told)
              place(x, y, colour = "c1", wide = 44, high = 44, cx = x, cy = y) {
                Object.entries({ x: cx - wide / 2, y: cy - high / 2, width: wide, height: high }).forEach(([k, v]) => area.setAttribute(k, v));
                Object.entries({ cx: x, cy: y }).forEach(([k, v]) => dot.setAttribute(k, v));
                dot.style.setProperty("--c", `var(--fig-${colour})`);
              },
              show(on) { node.style.display = on ? "" : "none"; },
            };
          },
        };
        return view;
      },
      // a row of samples; items: [colour, words, dash or "dot" or "box"]
      legend(items) {
        row = null;
        const list = add(stage, "ul", { class: "key" });
        items.forEach(([colour, words, look = ""]) => {
          const li = add(list, "li"), s = add(li, "svg", { viewBox: "0 0 28 12", "aria-hidden": "true" });
          if (look === "dot") add(s, "circle", { cx: 14, cy: 6, r: 5, fill: colour });
          else if (look === "box") add(s, "rect", { x: 4, y: 0, width: 20, height: 12, fill: colour });
          else add(s, "line", { x1: 0, x2: 28, y1: 6, y2: 6, stroke: colour, "stroke-width": 3, "stroke-dasharray": look });
          li.append(words);
        });
        return list;
      },
      // a table of numbers; fill it with rows whose first cell is its name: fill([["mean", "0.50"], ...])
      table(head) {
        row = null;
        const t = add(add(stage, "div", { class: "scroll" }), "table", { class: "plain" }), top = add(add(t, "thead"), "tr"), body = add(t, "tbody");
        head.forEach((h, i) => add(top, "th", { scope: "col", class: i ? "n" : "" }, h));
        return rows => {
          body.replaceChildren();
          rows.forEach(cells => {
            const tr = add(body, "tr");
            cells.forEach((c, i) => add(tr, i ? "td" : "th", i ? { class: "n" } : { scope: "row" }, String(c)));
          });
        };
      },
      // a line of text that changes: line("...")
      line() { row = null; const p = add(stage, "p", { class: "note" }); return text => (p.textContent = text); },
      // what a screen reader is told once the reader has stopped moving things
      say(text) { clearTimeout(timer); timer = setTimeout(() => live.textContent !== text && (live.textContent = text), 700); },
    };

    try {
      draw = pieces[box.dataset.play](ui);
      box.classList.add("on");                                       // from here on the picture is hidden; stage has a width
      change();
      stage.dataset.ready = "";
      let wide = stage.clientWidth;
      new ResizeObserver(() => { if (stage.clientWidth !== wide) { wide = stage.clientWidth; change(); } }).observe(stage);
    } catch (problem) {                                              // the picture stays
      box.classList.remove("on");
      stage.remove();
      live.remove();
      if (still) console.error(`${box.dataset.play}: ${problem.message}`);
    }
  }

  // ---- parts of pictures
  const axis = (g, s, ticks, { at, side = "bottom", text = String, label = "", grid = 0 }) => {  // ticks on a scale; grid: length of lines across
    const flat = side === "bottom";
    ticks.forEach(v => {
      const p = s(v);
      if (grid) add(g, "line", flat ? { x1: p, x2: p, y1: at, y2: at - grid, stroke: "grid" } : { x1: at, x2: at + grid, y1: p, y2: p, stroke: "grid" });
      add(g, "text", flat ? { x: p, y: at + 16, "text-anchor": "middle", class: "tick" } : { x: at - 6, y: p + 4, "text-anchor": "end", class: "tick" }, text(v));
    });
    const ends = [s(ticks[0]), s(ticks[ticks.length - 1])];
    if (label && flat) add(g, "text", { x: (ends[0] + ends[1]) / 2, y: at + 33, "text-anchor": "middle" }, label);
    if (label && !flat) add(g, "text", { x: Math.max(2, at - 28), y: Math.min(...ends) - 10 }, label);
  };
  const path = (g, points, props) => add(g, "path", { fill: "none", d: points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`).join(""), ...props });

  document.addEventListener("DOMContentLoaded", () =>                // pieces are read after this file, before this event
    document.querySelectorAll("[data-play]").forEach(box => pieces[box.dataset.play] && start(box)));
  return { piece: (name, build) => (pieces[name] = build), add, scale, clamp, fmt, sum, mean, random, axis, path };
})();
