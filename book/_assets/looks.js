// Seeds are drawn until a difference is decided: margins, looks and intervals to play with. Without this file one experiment stands there, drawn by
// the build. Student's quantiles come from the build, too, as JSON inside the figure.
document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("figure.looks").forEach(play));

const random = seed => () => {                                       // mulberry32: the same numbers in every browser
  seed = (seed + 0x6d2b79f5) | 0;
  let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
};
const normal = next => Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next());
const sum = x => x.reduce((a, b) => a + b, 0);
const signed = x => (x < 0 ? "−" : "+") + Math.abs(x).toFixed(2);

function look(d, t, margin) {                                        // the interval of the mean of d, and what it says
  const mean = sum(d) / d.length, sd = Math.sqrt(sum(d.map(x => (x - mean) ** 2)) / (d.length - 1)), half = (t * sd) / Math.sqrt(d.length);
  const lo = mean - half, hi = mean + half;
  return { n: d.length, mean, lo, hi, holds: lo > 0 ? "yes" : hi < 0 ? "no" : -margin < lo && hi < margin ? "alike" : "undecided" };
}

function play(figure) {
  const { start, looks } = JSON.parse(figure.querySelector("script").textContent), last = looks[looks.length - 1].seeds;
  const make = (tag, props = {}, ...kids) => { const e = Object.assign(document.createElement(tag), props); e.append(...kids); return e; };
  const draw = (parent, tag, props, text = "") => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
    Object.entries(props).forEach(([k, v]) => e.setAttribute(k, v));
    e.textContent = text;
    parent.append(e);
    return e;
  };
  const value = { ...start };
  let seed = 1, next = random(seed), z = [], passed = [];            // z: what chance drew; the sliders only shift and stretch it

  // controls
  const slider = (name, text, min, max, step) => {
    const out = make("output"), input = make("input", { type: "range", min, max, step, value: value[name], name });
    const show = () => { out.value = input.value; input.setAttribute("aria-valuetext", input.value + " points"); };
    input.oninput = () => { value[name] = +input.value; show(); review(); };
    show();
    return make("label", { className: "slider" }, make("span", { textContent: text }), input, out);
  };
  const button = (text, act) => { const b = make("button", { type: "button", textContent: text }); b.onclick = act; return b; };
  const one = button("One seed", () => grow(z.length + 1));
  const step = button("Next look", () => grow(looks.find(l => l.seeds > z.length).seeds));
  const again = button("New experiment", () => { next = random(++seed); z = []; review(); });
  const many = button("Run 200 experiments", () => shares(200));
  const status = make("p", { className: "hint" }), result = make("div", { className: "result" });
  status.setAttribute("aria-live", "polite");
  result.setAttribute("aria-live", "polite");
  figure.prepend(make("div", { className: "sliders" }, slider("difference", "true difference", -3, 3, 0.25), slider("deviation", "deviation between seeds", 0.25, 5, 0.25),
    slider("margin", "margin", 0.25, 3, 0.25)), make("div", { className: "buttons" }, one, step, again, many), status);
  figure.querySelector("figcaption").before(result);
  figure.querySelector(".still").remove();                           // it speaks of the experiment that the build has drawn
  figure.querySelector(".live").hidden = false;
  const svg = figure.querySelector("svg[role]");

  function grow(n) {
    while (z.length < n) z.push(normal(next));
    review();
  }
  const decided = () => passed.length && passed[passed.length - 1].holds !== "undecided";
  function review() {                                                // every look again, up to the one that decides
    const d = z.map(x => value.difference + value.deviation * x);
    passed = [];
    for (const l of looks) if (d.length >= l.seeds && !decided()) passed.push(look(d.slice(0, l.seeds), l.t, value.margin));
    const now = passed[passed.length - 1], used = decided() ? now.n : d.length;
    one.disabled = step.disabled = decided() || z.length >= last;
    result.replaceChildren();
    status.textContent = !d.length ? "No seed yet." : !now ? `${used} of ${looks[0].seeds} seeds: too few to look.`
      : decided() ? `Decided at ${now.n} seeds: ${now.holds}. The interval is ${signed(now.lo)} to ${signed(now.hi)}.`
        : z.length >= last ? `Undecided after the last look, ${last} seeds.` : `${used} seeds: undecided so far.`;
    picture(d.slice(0, used));
  }

  function picture(d) {
    const reach = Math.max(Math.abs(value.difference) + 2.5 * value.deviation, 1.5 * value.margin), x = v => 50 + 47 * Math.max(-1, Math.min(1, v / reach)) + "%";
    const height = 40, low = 4 + height * (looks.length + 1), tick = [1, 2, 5, 10].find(s => reach / s <= 3.5) || 20;
    svg.replaceChildren();
    svg.setAttribute("height", low + 22);
    svg.setAttribute("aria-label", `${d.length} seeds with a mean of ${d.length ? signed(sum(d) / d.length) : "nothing yet"}; ` +
      passed.map(p => `look at ${p.n}: ${signed(p.lo)} to ${signed(p.hi)}, ${p.holds}`).join("; "));
    draw(svg, "rect", { class: "band", x: x(-value.margin), width: (94 * Math.min(reach, value.margin)) / reach + "%", y: 4, height: low - 4 });
    for (let t = -Math.floor(reach / tick) * tick; t <= reach; t += tick) {
      draw(svg, "line", { class: t ? "grid" : "zero", x1: x(t), x2: x(t), y1: 4, y2: low });
      draw(svg, "text", { class: "tick", x: x(t), y: low + 15 }, String(t).replace("-", "−"));
    }
    draw(svg, "text", { x: 0, y: 16 }, d.length ? `the differences of ${d.length} seeds` : "no seed yet");
    d.forEach(v => draw(svg, "circle", { class: "seed", cx: x(v), cy: 32, r: 4 }));
    draw(svg, "line", { class: "truth", x1: x(value.difference), x2: x(value.difference), y1: 24, y2: 40 });
    looks.forEach((l, i) => {
      const p = passed[i], y = 4 + height * (i + 1), row = draw(svg, "g", { class: "v-" + (p ? p.holds : "not-run") });
      draw(row, "text", { x: 0, y: y + 12 }, `look at ${l.seeds} seeds`);
      draw(row, "text", { class: "word", x: "100%", y: y + 12 }, p ? p.holds : "");
      if (!p) return;
      draw(row, "line", { class: "bar", x1: x(p.lo), x2: x(p.hi), y1: y + 27, y2: y + 27 });
      draw(row, "use", { href: "#mark-" + p.holds, x: x(p.mean), y: y + 27 });
    });
  }

  function shares(trials) {                                          // many experiments with the same truth: what would they have said?
    const draws = random(seed * 1000), count = { yes: 0, no: 0, alike: 0, undecided: 0 };
    let seeds = 0;
    for (let k = 0; k < trials; k++) {
      const d = Array.from({ length: last }, () => value.difference + value.deviation * normal(draws));
      let p;
      for (const l of looks) if ((p = look(d.slice(0, l.seeds), l.t, value.margin)).holds !== "undecided") break;
      count[p.holds]++;
      seeds += p.n;
    }
    const found = Object.entries(count).filter(([, n]) => n);
    const bar = make("div", { className: "stack" }, ...found.map(([v, n]) => {
      const block = make("span", { className: "v-" + v, textContent: n < 0.08 * trials ? "" : `${Math.round((100 * n) / trials)} %` });
      block.style.flex = n;
      return block;
    }));
    bar.setAttribute("aria-hidden", "true");
    result.replaceChildren(bar, make("p", { className: "hint", textContent: `Of ${trials} experiments ` +
      found.map(([v, n]) => `${Math.round((100 * n) / trials)} % say ${v}`).join(", ") + `; ${(seeds / trials).toFixed(1)} seeds on average.` }));
  }

  grow(looks[0].seeds);
}
