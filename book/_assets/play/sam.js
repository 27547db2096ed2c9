// One weight, two valleys, and two balls that step down from the same place: SGD by the slope where it stands, SAM by the slope rho further uphill.
(() => {
  const { add, axis, clamp, fmt, path, scale } = fedplay;
  const sharp = w => 6 * w * w, flat = w => 0.6 * (w - 3.5) ** 2 + 0.9, F = w => Math.min(sharp(w), flat(w));
  const slope = w => (sharp(w) < flat(w) ? 12 * w : 1.2 * (w - 3.5));
  // SAM: e = rho g / |g|, then w <- w - eta F'(w + e); with rho = 0 it is SGD
  const step = (w, eta, rho) => { const d = slope(w); return w - eta * slope(w + (rho * d) / (Math.abs(d) + 1e-12)); };
  // max of F(w + e) - F(w) over |e| <= rho, on 4,001 points
  const sharpness = (w, rho) => { let top = -Infinity; for (let k = 0; k <= 4000; k++) top = Math.max(top, F(w - rho + (2 * rho * k) / 4000)); return top - F(w); };

  fedplay.piece("sam", ui => {
    const known = JSON.parse(document.querySelector('[data-play="sam"] script').textContent), LOW = -1.1, HIGH = 5.3;
    let v, X = scale([LOW, HIGH], [0, 1]);
    const sort = w => (Math.abs(w) < 0.4 ? "in the sharp valley" : Math.abs(w - 3.5) < 0.8 ? "in the flat valley" : "elsewhere");
    const end = (w, rho) => { for (let k = 0; k < known.moves; k++) w = clamp(step(w, v.eta, rho), -99, 99); return sort(w); };
    const SHADE = { "in the sharp valley": ["c5", 1], "in the flat valley": ["c3", 1], elsewhere: ["grid", 1] };
    const from = w => { v.start = w; v.paths = { SGD: [w], SAM: [w] }; };
    const begin = () => { v = { ...known }; from(known.start); };
    const again = () => from(v.start);
    const go = n => () => {
      for (let k = 0; k < n; k++) for (const [name, p] of Object.entries(v.paths)) p.push(clamp(step(p[p.length - 1], v.eta, name === "SAM" ? v.rho : 0), -99, 99));
    };
    begin();
    ui.slider({ label: "radius ρ", min: 0, max: 1, step: 0.01, get: () => v.rho, set: x => { v.rho = x; again(); } });
    ui.slider({ label: "step size η", min: 0.005, max: 0.2, step: 0.005, get: () => v.eta, set: x => { v.eta = x; again(); }, text: x => fmt(x, 3) });
    ui.button("One step", go(1));
    ui.button(`${known.moves} steps`, go(known.moves));
    ui.reset(begin);
    const view = ui.picture("A loss with a narrow valley at 0 and a wide one at 3.5; two balls, SGD and SAM, and where SAM takes its slope.", () => 366);
    const handle = view.handle({ label: "where both begin", along: "x", min: LOW, max: HIGH, step: 0.05, get: () => v.start, set: from, scale: () => X });
    ui.legend([["c1", "SGD", "box"], ["c2", "SAM", "dot"], ["c4", "where SAM takes its next slope", "4 3"]]);
    ui.legend(Object.entries(SHADE).map(([words, [c]]) => [c, `ends ${words}`, "box"]));
    const table = ui.table(["", "SGD", "SAM"]), note = ui.line();

    return () => {
      const { g, W, H } = view.clear(), base = H - 114, Y = scale([0, 5], [base, 30]), seen = w => w >= LOW && w <= HIGH && F(w) <= 5.4;
      X = scale([LOW, HIGH], [34, W - 12]);
      axis(g, Y, [0, 1, 2, 3, 4, 5], { at: 30, side: "left", text: x => fmt(x, 0), grid: W - 44 });
      axis(g, X, [-1, 0, 1, 2, 3, 4, 5], { at: base, text: x => fmt(x, 0) });
      add(g, "text", { x: 4, y: 14 }, "loss");
      add(g, "text", { x: W - 12, y: base - 8, "text-anchor": "end" }, "weight w");
      const curve = Array.from({ length: 321 }, (_, k) => LOW + (k / 320) * (HIGH - LOW)).filter(w => F(w) <= 5.4);
      path(g, curve.map(w => [X(w), Y(F(w))]), { stroke: "ink", "stroke-width": 1.8 });
      Object.entries(v.paths).forEach(([name, p], k) => {
        const c = k ? "c2" : "c1", w = p[p.length - 1];
        p.slice(0, -1).slice(-60).filter(seen).forEach(u => add(g, "circle", { cx: X(u), cy: Y(F(u)), r: 2.4, fill: c, "fill-opacity": 0.6 }));
        if (!seen(w)) return;
        if (k) {
          const d = slope(w), ahead = w + (v.rho * d) / (Math.abs(d) + 1e-12);
          if (seen(ahead)) path(g, [[X(w), Y(F(w))], [X(ahead), Y(F(ahead))]], { stroke: "c4", "stroke-width": 2.5, "stroke-dasharray": "4 3" });
          add(g, "circle", { cx: X(w), cy: Y(F(w)), r: 8, fill: c });
        } else add(g, "rect", { x: X(w) - 7, y: Y(F(w)) - 7, width: 14, height: 14, fill: c });
      });
      Object.entries({ SGD: 0, SAM: v.rho }).forEach(([name, rho], k) => {                // from every start: where the ball ends
        const y = base + 28 + 24 * k, dx = 0.05;
        for (let w = LOW; w < HIGH - 1e-9; w += dx) {
          const [c, o] = SHADE[end(w + dx / 2, rho)];
          add(g, "rect", { x: X(w), y, width: X(w + dx) - X(w) + 0.3, height: 16, fill: c, "fill-opacity": o });
        }
        add(g, "text", { x: 30, y: y + 13, "text-anchor": "end", class: "tick" }, name);
      });
      path(g, [[X(v.start), base + 24], [X(v.start), base + 84]], { stroke: "ink", "stroke-width": 1.5 });
      handle.place(X(v.start), base + 92, "c6");
      add(g, "text", { x: X(v.start) + (X(v.start) > W - 90 ? -14 : 14), y: base + 97, "text-anchor": X(v.start) > W - 90 ? "end" : "start" }, "start");
      const ends = Object.values(v.paths).map(p => p[p.length - 1]), row = (name, f, places = 3) => [name, ...ends.map(w => fmt(f(w), places))];
      table([["steps", ...Object.values(v.paths).map(p => p.length - 1)], row("weight w", w => w), row("loss", F), row("sharpness within ρ", w => sharpness(w, v.rho))]);
      const where = w => (Math.abs(w) > 90 ? "has run away" : Math.abs(w) < 0.4 ? "is in the sharp valley" : Math.abs(w - 3.5) < 0.8 ? "is in the flat valley" : "is on its way");
      const text = v.paths.SGD.length < 2 ? "Both balls stand at the start. Let them step." : `SGD ${where(ends[0])}, SAM ${where(ends[1])}.`;
      note(text);
      ui.say(text);
    };
  });
})();
