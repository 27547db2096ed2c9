// Two groups, a score, and a threshold for each: five gaps and the accuracy at once. fedlib/measures/bias.py has the same formulas.
(() => {
  const { add, axis, fmt, scale, sum } = fedplay;
  const known = () => JSON.parse(document.querySelector('[data-play="thresholds"] script').textContent);

  // n[a][y][z]: people of group a with label y who are told z; yes from the t-th score on
  const count = (many, yes, t) => [0, 1].map(y => [0, 1].map(z =>
    sum(many.map((m, k) => ((k >= t ? 1 : 0) === z ? (y ? yes[k] : m - yes[k]) : 0)))));
  const over = (part, whole) => (whole ? part / whole : NaN);
  const rates = n => ({
    tpr: over(n[1][1], n[1][0] + n[1][1]),                           // P(told yes | label yes)
    fpr: over(n[0][1], n[0][0] + n[0][1]),                           // P(told yes | label no)
    told: over(n[0][1] + n[1][1], sum(n.flat())),                    // P(told yes)
    ppv: over(n[1][1], n[0][1] + n[1][1]),                           // P(label yes | told yes): the precision of a yes
    right: over(n[0][0] + n[1][1], sum(n.flat())),
  });
  const together = n => [0, 1].map(y => [0, 1].map(z => n[0][y][z] + n[1][y][z]));
  function measures(n) {
    const [a, b] = n.map(rates), all = rates(together(n));
    const tpr = Math.abs(a.tpr - b.tpr), fpr = Math.abs(a.fpr - b.fpr);
    const far = k => [a, b].map(r => Math.abs(r[k] - all[k]));       // |rate of the group - rate of everybody|
    const gaps = {
      "equal opportunity": tpr,                                      // Delta TPR
      EO: Math.max(tpr, fpr),                                        // max(Delta TPR, Delta FPR)
      DemP: Math.abs(a.told - b.told),                               // Delta P(told yes)
      CAL: Math.max(...far("tpr")),                                  // max_a |TPR_a - TPR|
      "predictive parity": Math.max(...far("ppv")),                  // max_a |PPV_a - PPV|; with nobody told yes there is none
    };
    return { a, b, all, gaps, far, fpr };
  }

  fedplay.piece("thresholds", ui => {
    const { groups, many, yes, start, best } = known(), steps = many[0].length, tallest = many.map(m => Math.max(...m));
    let t = [...start], X = scale([0, 1], [0, 1]), found = Infinity;
    const view = ui.picture(`${groups.join(" and ")} over their score, with a threshold for each group, to drag; below them five gaps.`,
      W => 250 + (sum(tallest) + 1) * step(W) * 0.92, 300, 600);
    const step = W => (W - 20) / steps;
    const handles = groups.map((name, g) => view.handle({
      label: `threshold for ${name}`, along: "x", min: 0, max: 1, step: 1 / steps, r: 8,
      get: () => t[g] / steps, set: v => (t[g] = Math.round(v * steps)), scale: () => X,
      text: v => `${fmt(v)}: ${fmt(100 * rates(count(many[g], yes[g], t[g])).told, 0)} % told yes`,
    }));
    ui.button("One threshold for both", () => (t[1] = t[0]), () => t[0] !== t[1]);
    ui.reset(() => { t = [...start]; found = Infinity; });
    const note = ui.line(), table = ui.table(["", ...groups, "gap"]), game = ui.line();

    function crowd(g, top, v, W) {                                   // one mark per person, filled if the label is yes
      const wide = step(W), r = wide * 0.37, low = top + (tallest[g] + 0.5) * wide * 0.92, colour = `c${g + 1}`, x = X(t[g] / steps);
      add(v, "rect", { x, y: top - 6, width: X(1) - x, height: low - top + 6, fill: colour, "fill-opacity": 0.13 });
      many[g].forEach((m, k) => {
        for (let i = 0; i < m; i++) {
          const cx = X((k + 0.5) / steps), cy = low - (i + 0.5) * wide * 0.92, look = { fill: i < yes[g][k] ? colour : "paper", stroke: colour, "stroke-width": 1.4 };
          if (g) add(v, "rect", { x: cx - r * 0.9, y: cy - r * 0.9, width: 1.8 * r, height: 1.8 * r, ...look });
          else add(v, "circle", { cx, cy, r, ...look });
        }
      });
      add(v, "line", { x1: X(0), x2: X(1), y1: low, y2: low, stroke: "soft" });
      add(v, "line", { x1: x, x2: x, y1: top - 6, y2: low + 8, stroke: "ink", "stroke-width": 2 });
      const room = x < X(0.8);
      add(v, "text", { x: x + (room ? 6 : -6), y: top + 6, "text-anchor": room ? "start" : "end", class: "strong halo" }, room ? "told yes →" : "told no");
      add(v, "text", { x: X(g ? 1 : 0), y: top + 6, "text-anchor": g ? "end" : "start", class: "strong halo", fill: colour }, groups[g]);
      handles[g].place(x, low + 8, colour, Math.max(44, 2 * wide), low - top + 30, x, (low + top) / 2 + 8);
      return low;
    }

    return () => {
      const { g: v, W } = view.clear(), n = groups.map((_, g) => count(many[g], yes[g], t[g])), m = measures(n);
      X = scale([0, 1], [10, W - 10]);
      let low = crowd(0, 22, v, W);
      low = crowd(1, low + 40, v, W);
      axis(v, X, [0.25, 0.5, 0.75], { at: low + 14, text: w => fmt(w), label: "score (filled: the label is yes)" });
      // gaps as bars
      const top = low + 66, left = Math.min(150, W * 0.38), B = scale([0, 1], [left, W - 44]), worst = Math.max(...Object.values(m.gaps));
      Object.entries(m.gaps).forEach(([name, gap], i) => {
        const y = top + i * 24;
        add(v, "text", { x: left - 8, y: y + 13, "text-anchor": "end" }, name);
        add(v, "rect", { x: left, y, width: B(1) - left, height: 16, fill: "grid", "fill-opacity": 0.5 });
        if (gap) add(v, "rect", { x: left, y, width: B(gap) - left || 0, height: 16, fill: gap === worst ? "c2" : "c6" });
        add(v, "text", { x: W - 4, y: y + 13, "text-anchor": "end" }, fmt(gap));
      });
      // numbers
      const row = (name, k, gap) => [name, fmt(m.a[k]), fmt(m.b[k]), gap];
      table([
        row("TPR: told yes, if the label is yes", "tpr", fmt(m.gaps["equal opportunity"], 3)),
        row("FPR: told yes, if the label is no", "fpr", fmt(m.fpr, 3)),
        ["EO: the larger of these gaps", "", "", fmt(m.gaps.EO, 3)],
        row("DemP: told yes", "told", fmt(m.gaps.DemP, 3)),
        ["CAL: TPR, distance from everybody's", ...m.far("tpr").map(d => fmt(d)), fmt(m.gaps.CAL, 3)],
        row("precision of a yes, gap from everybody's", "ppv", fmt(m.gaps["predictive parity"], 3)),
        ["accuracy", fmt(m.a.right), fmt(m.b.right), fmt(Math.abs(m.a.right - m.b.right), 3)],
      ]);
      note(`Accuracy ${fmt(100 * m.all.right, 1)} %; told yes ${fmt(100 * m.all.told, 1)} %. The largest of the five gaps is ${fmt(worst, 3)}.`);
      const useful = m.all.right >= best.least - 1e-9 && worst === worst;
      if (useful) found = Math.min(found, worst);
      game(`Smallest largest gap so far with an accuracy of at least ${100 * best.least} %: ${found < 9 ? fmt(found, 3) : "none"}. No pair of thresholds gets below ${fmt(best.gap, 3)}.`);
      ui.say(`${Object.entries(m.gaps).map(([name, gap]) => `${name} ${fmt(gap)}`).join(", ")}; accuracy ${fmt(100 * m.all.right, 0)} %`);
    };
  });
})();
