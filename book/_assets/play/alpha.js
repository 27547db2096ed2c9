// Three clients on a line want 0, 1 and 3, and the server has sent w = 0. FedGA's base alpha turns their errors into weights.
(() => {
  const WANTS = [0, 1, 3], ROWS = [6, 1, 1], ACC = [1, 0.5, 0];       // accuracies of w = 0
  const { add, axis, fmt, scale, sum } = fedplay;
  const share = x => x.map(v => v / sum(x));
  // p_i = alpha^e_i / sum_j alpha^e_j with e_i = 1 - a_i; every client sends back what it wants, so the new model is sum_i p_i w_i
  const RULES = { FedAvg: () => share(ROWS), Uniform: () => share([1, 1, 1]), FedGA: alpha => share(ACC.map(a => alpha ** (1 - a))) };
  const LOOK = { FedAvg: "c6", Uniform: "c1", FedGA: "c2" };
  const loss = (w, i) => (w - WANTS[i]) ** 2 / 2;                    // F_i(w) = (w - w_i)^2 / 2

  fedplay.piece("alpha", ui => {
    let alpha = 4;
    ui.slider({ label: "α", min: 1, max: 10, step: 0.1, get: () => alpha, set: v => (alpha = v), text: v => fmt(v, 1) });
    const view = ui.picture("Above: each client's weight under three rules. Below: the line, with what the clients want and the three averages.",
      () => 352);
    ui.legend(Object.entries(LOOK).map(([name, c]) => [c, name, "box"]));
    const table = ui.table(["", ...Object.keys(RULES)]);
    ui.reset(() => (alpha = 4));

    return () => {
      const { g, W, H } = view.clear(), floor = 180, names = Object.keys(RULES);
      const Y = scale([0, 1], [floor, 26]), X = scale([0, 3], [38, W - 26]), wide = (W - 40) / 3;
      axis(g, Y, [0, 0.5, 1], { at: 34, side: "left", text: v => fmt(v, 1), label: "weight", grid: W - 36 });
      const flags = [], columns = names.map((name, k) => {
        const p = RULES[name](alpha), w = sum(p.map((v, i) => v * WANTS[i])), losses = WANTS.map((_, i) => loss(w, i));
        const worst = losses.indexOf(Math.max(...losses)), bar = Math.min(34, wide / 4);
        p.forEach((v, i) => {
          const x = 36 + (i + 0.5) * wide + (k - 1) * (bar + 3);
          add(g, "rect", { x: x - bar / 2, width: bar, y: Y(v), height: floor - Y(v), fill: LOOK[name], "fill-opacity": 0.85 });
          add(g, "text", { x, y: Y(v) - 5, "text-anchor": "middle", class: "tick" }, fmt(v, 2));
        });
        const y = H - 64 - 22 * (k + 1);                             // the average, a flag on the line
        add(g, "line", { x1: X(w), x2: X(w), y1: H - 60, y2: y - 4, stroke: LOOK[name], "stroke-width": 2.5 });
        flags.push([name, w, y]);
        return [...p.map(v => fmt(v, 3)), fmt(w, 3), fmt(losses[worst], 3), `client ${worst + 1}`];
      });
      flags.forEach(([name, w, y]) => {
        const end = X(w) > W - 120;
        add(g, "text", { x: X(w) + (end ? -7 : 7), y: y + 6, "text-anchor": end ? "end" : "start", class: "halo" }, `${name} ${fmt(w)}`);
      });
      WANTS.forEach((_, i) => add(g, "text", { x: 36 + (i + 0.5) * wide, y: floor + 17, "text-anchor": "middle" }, `client ${i + 1}`));
      // the line
      add(g, "line", { x1: X(0), x2: X(3), y1: H - 60, y2: H - 60, stroke: "soft", "stroke-width": 1.5 });
      WANTS.forEach((b, i) => {
        add(g, "circle", { cx: X(b), cy: H - 60, r: 6, fill: "ink" });
        add(g, "text", { x: X(b), y: H - 38, "text-anchor": "middle" }, `client ${i + 1}`);
      });
      axis(g, X, [0, 1, 2, 3], { at: H - 34, label: "" });
      const heads = ["weight of client 1", "weight of client 2", "weight of client 3", "new model", "largest loss", "which is that of"];
      table(heads.map((head, r) => [head, ...columns.map(c => c[r])]));
      const [, , , w, worst, who] = columns[2];
      ui.say(`alpha ${fmt(alpha, 1)}: new model ${w}, largest loss ${worst}, of ${who}`);
    };
  });
})();
