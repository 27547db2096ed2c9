// Three clients want 0, 2 and 10 and have 3, 5 and 2 rows. In each round only a cohort, drawn at random, trains and is averaged by rows.
(() => {
  const B = [0, 2, 10], N = [3, 5, 2], NAMES = ["Ada", "Ben", "Cleo"], FIRST = 8;
  const { add, axis, clamp, fmt, mean, random, scale, sum } = fedplay;

  // m_S = sum_S n_i b_i / sum_S n_i: where the model would rest if the cohort S trained in every round
  const rest = S => sum(S.map(i => N[i] * B[i])) / sum(S.map(i => N[i]));
  const cohorts = M => ({ 1: [[0], [1], [2]], 2: [[0, 1], [0, 2], [1, 2]], 3: [[0, 1, 2]] })[M];
  // each client sends w - eta (w - b_i), so a round is w <- w + eta (m_S - w)
  const round = (w, S, eta) => w + eta * (rest(S) - w);
  // S is drawn evenly and apart from w, so in the long run mean(w) = mean(m_S), whatever eta is, and
  // var(w) = eta / (2 - eta) var(m_S): a smaller step narrows the histogram and leaves it where it is
  const long = (M, eta) => {
    const m = cohorts(M).map(rest), at = mean(m);
    return { at, sd: Math.sqrt((eta / (2 - eta)) * mean(m.map(v => (v - at) ** 2))) };
  };

  fedplay.piece("cohort", ui => {
    let M, eta, seed = 1, next, was, last;
    const again = () => { next = random(seed); was = [FIRST]; last = null; };
    const start = () => { M = 2; eta = 0.5; seed = 1; again(); };
    const run = n => () => {
      for (let k = 0; k < n; k++) { last = Math.floor(next() * cohorts(M).length); was.push(round(was[was.length - 1], cohorts(M)[last], eta)); }
    };
    start();
    ui.choice("clients per round", { 1: "one", 2: "two", 3: "all three" }, () => M, v => { M = +v; again(); });
    ui.slider({ label: "step size η", min: 0.05, max: 1, step: 0.05, get: () => eta, set: v => { eta = v; again(); } });
    ui.button("One round", run(1));
    ui.button("100 rounds", run(100));
    ui.button("1,000 rounds", run(1000));
    ui.button("Another draw", () => { seed++; again(); });
    ui.reset(start);
    const view = ui.picture("How often the model was where, over the rounds so far, with the point at which each cohort alone would rest.", () => 284);
    ui.legend([["c1", "rounds so far", "box"], ["c2", "mean of the rounds so far"], ["c3", "all three in every round: 3", "6 4"]]);
    const table = ui.table(["cohort", "rests at"]), note = ui.line();

    return () => {
      const { g, W, H } = view.clear(), base = H - 66, X = scale([-0.5, 10.5], [10, W - 10]), rounds = was.slice(1), all = cohorts(M);
      // histogram in bins of 1/4, from the first round on, so that one sees the way from 8
      const bins = Array(45).fill(0);
      rounds.forEach(w => bins[clamp(Math.floor((w + 0.5) * 4), 0, 43)]++);
      const Y = scale([0, Math.max(4, ...bins)], [base, 40]);
      bins.forEach((n, k) => n && add(g, "rect", { x: X(k / 4 - 0.5) + 0.5, width: X(0.25) - X(0) - 1, y: Y(n), height: base - Y(n), fill: "c1", "fill-opacity": 0.6 }));
      axis(g, X, [0, 2, 4, 6, 8, 10], { at: base });
      add(g, "line", { x1: X(-0.5), x2: X(10.5), y1: base, y2: base, stroke: "soft", "stroke-width": 1.5 });
      // what each cohort alone would do
      all.forEach((S, k) => {
        const x = X(rest(S)), who = S.length === 3 ? "all three" : S.map(i => NAMES[i]).join(", "), on = k === last;
        // pairs: the first name below its arrow, the two others on the outer sides of theirs; alone, Cleo at 10 ends at the border
        const [dx, side] = M === 2 && k ? (k === 1 ? [-7, "end"] : [7, "start"]) : x > W - 40 ? [W - x - 2, "end"] : [0, "middle"];
        const y = base + (M === 2 && k ? 56 : 40);
        add(g, "path", { d: `M${x} ${base - 1}l-6 9h12z`, fill: on ? "c2" : "ink" });
        add(g, "line", { x1: x, x2: x, y1: base + 8, y2: dx && M === 2 ? y + 2 : y - 13, stroke: on ? "c2" : "soft" });
        add(g, "text", { x: x + dx, y, "text-anchor": side, class: on ? "halo strong" : "halo" }, who);
      });
      // where it is on average, and where it would end with everybody
      const line = (x, colour, dash) => add(g, "line", { x1: X(x), x2: X(x), y1: 30, y2: base, stroke: colour, "stroke-width": 2.5, "stroke-dasharray": dash });
      line(3, "c3", "6 4");
      if (rounds.length) line(mean(rounds), "c2", "");
      const w = was[was.length - 1];
      add(g, "circle", { cx: X(w), cy: base, r: 7, fill: "ink" });
      const told = `model ${fmt(w)} after ${rounds.length.toLocaleString("en")} round${rounds.length === 1 ? "" : "s"}`;
      add(g, "text", { x: clamp(X(w), 90, W - 90), y: 20, "text-anchor": "middle", class: "halo" }, told);
      const l = long(M, eta);
      table([...all.map(S => [S.map(i => NAMES[i]).join(", "), fmt(rest(S), 4)]),
        ["long-run mean of the model", fmt(l.at, 4)], ["its standard deviation", fmt(l.sd, 4)],
        ["mean of the rounds so far", rounds.length ? fmt(mean(rounds), 4) : "–"], ["model now", fmt(w, 4)]]);
      note(M === 3 ? "Everybody is there in every round: nothing is random, and the end is 3." :
        `With ${M === 1 ? "one client" : "two clients"} per round the long-run mean is ${fmt(l.at)}, not 3, for every step size.`);
      ui.say(`after ${rounds.length.toLocaleString("en")} rounds: model ${fmt(w)}, mean so far ${rounds.length ? fmt(mean(rounds)) : "none"}, long-run mean ${fmt(l.at)}`);
    };
  });
})();
