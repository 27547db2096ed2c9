// Eight clients' accuracies as bars to drag, their Lorenz curve, and five measures at once. fedlib/measures/metrics.py has the same formulas.
(() => {
  const START = [0.4, 0.25, 0.5, 0.15, 0.45, 0.3, 0.4, 0.35];
  const TOWNS = { North: [0.4, 0.8, 0.8, 0.8], South: [0.5, 0.6, 0.8, 0.9], West: [0.5, 0.5, 0.9, 0.9] };
  const { add, axis, fmt, mean, path, scale, sum } = fedplay;
  const sorted = a => [...a].sort((x, y) => x - y);

  // C clients; each counts once
  const std = a => Math.sqrt(mean(a.map(x => (x - mean(a)) ** 2)));                    // sqrt(1/C sum_i (a_i - mean)^2)
  const worst = a => mean(sorted(a).slice(0, Math.max(1, Math.floor(a.length / 10)))); // mean of the lowest max(1, floor(C/10))
  const gini = b => {                                                                  // sum_ij |a_i - a_j| / (2 (C - 1) sum_i a_i)
    const a = b.map(x => x + 1e-10);
    return sum(a.flatMap(x => a.map(y => Math.abs(x - y)))) / (2 * (a.length - 1) * sum(a));
  };
  const jain = a => sum(a) ** 2 / Math.max(a.length * sum(a.map(x => x * x)), 1e-300); // (sum a)^2 / (C sum a^2)
  // points (k/C, share of all accuracy that the k worst clients hold)
  const lorenz = a => [0, ...sorted(a)].map((_, k, all) => [k / a.length, sum(a) ? sum(all.slice(0, k + 1)) / sum(a) : k / a.length]);
  // area between the diagonal and the curve, by trapezoids
  const area = curve => 0.5 - sum(curve.slice(1).map(([x, y], k) => ((x - curve[k][0]) * (y + curve[k][1])) / 2));

  fedplay.piece("lorenz", ui => {
    let a = [...START], Y = scale([0, 1], [1, 0]);
    const all = f => () => (a = a.map(f));
    const view = ui.picture("Left: one bar per client, to drag. Right: their Lorenz curve.", W => (W < 520 ? 310 + Math.min(W - 42, 270) : 0.5 * W));
    const handles = START.map((_, i) => view.handle({
      label: `accuracy of client ${i + 1}`, along: "y", min: 0, max: 1, step: 0.01, r: 7,
      get: () => a[i] ?? 0, set: v => (a[i] = v), scale: () => Y, peers: () => handles.slice(0, a.length).map(h => h.node),
    }));
    ui.button("North", () => (a = [...TOWNS.North]));
    ui.button("South", () => (a = [...TOWNS.South]));
    ui.button("West", () => (a = [...TOWNS.West]));
    ui.button("Halve all", all(x => x / 2));
    ui.button("Double all", all(x => x * 2), () => Math.max(...a) <= 0.5);
    ui.button("Add 0.1 to all", all(x => x + 0.1), () => Math.max(...a) <= 0.9 + 1e-9);
    ui.reset(() => (a = [...START]));
    const table = ui.table(["measure", "value"]), note = ui.line();

    return () => {
      const { g, W, H } = view.clear(), small = W < 520, C = a.length, low = small ? 200 : H - 40, curve = lorenz(a);
      // bars
      const right = small ? W : W * 0.5 - 10, wide = (right - 34) / C;
      Y = scale([0, 1], [low, 28]);
      axis(g, Y, [0, 0.5, 1], { at: 30, side: "left", text: v => fmt(v, 1), label: "accuracy", grid: right - 30 });
      a.forEach((v, i) => {
        const x = 34 + (i + 0.5) * wide;
        add(g, "rect", { x: x - wide * 0.36, width: wide * 0.72, y: Y(v), height: low - Y(v), fill: "c1", "fill-opacity": 0.55 });
        add(g, "text", { x, y: low + 16, "text-anchor": "middle", class: "tick" }, i + 1);
        handles[i].place(x, Y(v), "c1", wide, low - 10, x, (low + 18) / 2);
      });
      handles.forEach((h, i) => h.show(i < C));
      add(g, "text", { x: (34 + right) / 2, y: low + 33, "text-anchor": "middle" }, "client");
      // curve
      const left = small ? 34 : W * 0.5 + 44, base = H - 40, side = Math.min(W - left - 8, base - (small ? low + 70 : 28));
      const X = scale([0, 1], [left, left + side]), S = scale([0, 1], [base, base - side]);
      const at = ([x, y]) => [X(x), S(y)];
      axis(g, X, [0, 0.5, 1], { at: base, text: v => fmt(v, 1), label: "share of clients, worst first" });
      axis(g, S, [0, 0.5, 1], { at: left, side: "left", text: v => fmt(v, 1), label: "their share of all accuracy", grid: side });
      path(g, curve.map(at), { style: "fill: var(--fig-c2); fill-opacity: .22" });
      path(g, [[X(0), S(0)], [X(1), S(1)]], { stroke: "soft", "stroke-width": 1.2 });
      path(g, curve.map(at), { stroke: "c2", "stroke-width": 2.4 });
      curve.forEach(p => add(g, "circle", { cx: X(p[0]), cy: S(p[1]), r: 3, fill: "c2" }));
      add(g, "text", { x: X(0.44), y: S(0.56), "text-anchor": "end", class: "tick" }, "all equal");
      // numbers
      const values = { mean: mean(a), "standard deviation": std(a), "worst 10 %": worst(a), Gini: gini(a), Jain: jain(a) };
      table(Object.entries(values).map(([name, v]) => [name, fmt(v, 3)]));
      const A = area(curve);
      note(`The shaded area is ${fmt(A, 3)}; the Gini coefficient is 2 · ${fmt(A, 3)} · ${C}/${C - 1} = ${fmt(gini(a), 3)}.`);
      ui.say(Object.entries(values).map(([name, v]) => `${name} ${fmt(v, 3)}`).join(", "));
    };
  });
})();
