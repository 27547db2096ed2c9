// Two clients on a line, F_i(w) = c_i (w - b_i)^2 / 2, with as many rows each. T local steps of size eta; FedProx adds mu (v - w) to the gradient.
(() => {
  const B = [0, 4], NAMES = ["Ada", "Ben"], LOOK = ["c1", "c2"], START = { w: 1, T: 2, eta: 0.25, mu: 0, c1: 1, c2: 3 };
  const { add, axis, fmt, path, scale, sum, mean } = fedplay;

  // where a client is after each of its steps: v <- v - eta (c (v - b) + mu (v - w)), from v = w
  const walk = (w, c, b, { T, eta, mu }) => {
    const v = [w];
    for (let k = 0; k < T; k++) v.push(v[k] - eta * (c * (v[k] - b) + mu * (v[k] - w)));
    return v;
  };
  // so it covers the share s_i = c_i / (c_i + mu) (1 - (1 - eta (c_i + mu))^T) of its way from w to b_i,
  const share = (c, { T, eta, mu }) => (c / (c + mu)) * (1 - (1 - eta * (c + mu)) ** T);
  // the average goes to w + 1/2 sum_i s_i (b_i - w), and rests at sum_i s_i b_i / sum_i s_i
  const rest = s => sum(s.map((v, i) => v * B[i])) / sum(s);
  // each round leaves 1 - mean(s) of the distance to that point: it comes to rest if this is below 1 in size
  const settles = s => Math.abs(1 - mean(s)) < 1 - 1e-9;

  fedplay.piece("driftline", ui => {
    let v = { ...START }, X = scale([-1, 5], [0, 1]);
    const knob = (name, label, min, max, step, places) => ui.slider({ label, min, max, step, get: () => v[name], set: x => (v[name] = x), text: x => fmt(x, places) });
    knob("T", "local steps T", 1, 16, 1, 0);
    knob("eta", "step size η", 0.01, 0.5, 0.01, 2);
    knob("mu", "pull μ (FedProx)", 0, 3, 0.1, 1);
    knob("c1", "Ada’s curvature c₁", 0.5, 4, 0.5, 1);
    knob("c2", "Ben’s curvature c₂", 0.5, 4, 0.5, 1);
    const view = ui.picture("A line from −1 to 5. Above it each client's steps from the model that was sent; on it the minimum and the point of rest.", () => 252);
    const sent = view.handle({ label: "model sent w", along: "x", min: -1, max: 5, step: 0.05, get: () => v.w, set: x => (v.w = x), scale: () => X });
    ui.legend([["c1", "Ada’s steps", "dot"], ["c2", "Ben’s steps", "dot"], ["ink", "from w to the average"]]);
    const round = n => () => { for (let k = 0; k < n; k++) v.w = mean(B.map((b, i) => walk(v.w, [v.c1, v.c2][i], b, v)[v.T])); };
    ui.button("One round", round(1));
    ui.button("Ten rounds", round(10));
    ui.reset(() => (v = { ...START }));
    const table = ui.table(["point", "value"]), note = ui.line();

    return () => {
      const { g, W, H } = view.clear(), c = [v.c1, v.c2], s = c.map(k => share(k, v)), stop = rest(s), best = sum(c.map((k, i) => k * B[i])) / sum(c);
      const base = H - 46, inside = x => x > -1.001 && x < 5.001, paths = B.map((b, i) => walk(v.w, c[i], b, v)), next = mean(paths.map(p => p[v.T]));
      X = scale([-1, 5], [14, W - 14]);
      axis(g, X, [-1, 0, 1, 2, 3, 4, 5], { at: base, text: x => fmt(x, 0), grid: base - 20 });
      add(g, "line", { x1: X(-1), x2: X(5), y1: base, y2: base, stroke: "soft", "stroke-width": 1.5 });
      paths.forEach((p, i) => {                                      // one lane per client, the steps as dots
        const y = 76 + 52 * i, seen = p.filter(inside);
        path(g, seen.map(x => [X(x), y]), { stroke: LOOK[i], "stroke-width": 2 });
        seen.forEach((x, k) => add(g, "circle", { cx: X(x), cy: y, r: k ? 3.5 : 2, fill: LOOK[i] }));
        add(g, "path", { d: `M${X(B[i])} ${base - 6}l-7 12h14z`, fill: LOOK[i] });
        add(g, "text", { x: X(B[i]), y: y - 14, "text-anchor": "middle", class: "halo" }, `${NAMES[i]} wants ${B[i]}`);
      });
      if (inside(next)) add(g, "path", { d: `M${X(v.w)} ${base - 22}H${X(next)}`, stroke: "ink", "stroke-width": 2.5 });
      if (inside(next)) add(g, "circle", { cx: X(next), cy: base - 22, r: 4.5, fill: "ink" });
      const mark = (x, text, colour, dash, y) => {
        if (!inside(x)) return;
        add(g, "line", { x1: X(x), x2: X(x), y1: 20, y2: base, stroke: colour, "stroke-width": 2, "stroke-dasharray": dash });
        const side = X(x) > W / 2 ? "end" : "start";
        add(g, "text", { x: X(x) + (side === "end" ? -6 : 6), y, "text-anchor": side, class: "halo strong" }, text);
      };
      mark(best, `minimum ${fmt(best)}`, "c3", "", 16);
      if (settles(s)) mark(stop, `rests at ${fmt(stop)}`, "c4", "5 3", 36);
      sent.place(X(v.w), base - 22, "c6");
      add(g, "text", { x: X(v.w), y: base + 36, "text-anchor": "middle", class: "halo" }, "w");
      // numbers
      const calm = settles(s), rows = [["Ada’s share of her way", fmt(s[0], 3)], ["Ben’s share of his way", fmt(s[1], 3)], ["average of both models", fmt(next, 3)],
        ["FedAvg rests at", calm ? fmt(stop, 3) : "nowhere"], ["minimum of the sum of losses", fmt(best, 3)], ["gap", calm ? fmt(stop - best, 3) : "–"]];
      if (v.mu) rows[3][0] = "FedProx rests at";
      table(rows);
      const wild = c.filter(k => v.eta * (k + v.mu) > 2).length;
      note(!calm ? "The steps are too long: every round leads further away." : wild ? "η (c + μ) is above 2: a client overshoots further with every step." :
        Math.abs(stop - best) < 1e-9 ? "The point of rest is the minimum." : `${NAMES[stop < best ? 0 : 1]} counts for more than in the sum of losses.`);
      ui.say(rows.slice(3).map(r => r.join(" ")).join(", "));
    };
  });
})();
