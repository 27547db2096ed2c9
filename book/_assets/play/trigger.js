// FedGA waits until the Gini coefficient x_t has stopped falling. Drag x_t; see in which round the trigger fires. Delayed.watch has the same rule.
(() => {
  const { add, axis, clamp, fmt, mean, path, scale } = fedplay;

  // the difference of the two windows' means that is asked in round t, or null where nothing is asked; it fires if it is below theta
  const asked = {
    rolling: (x, t, W) => t > W ? { early: x.slice(t - W - 1, t - 1), late: x.slice(t - W, t), from: t - W - 1 } : null,
    half: (x, t, W) => {
      const h = Math.floor(W / 2);
      return t >= W && t % h === 0 ? { early: x.slice(t - W, t - h), late: x.slice(t - h, t), from: t - W } : null;
    },
  };
  const fall = w => +(mean(w.early) - mean(w.late)).toFixed(9);            // a tie stays a tie

  fedplay.piece("trigger", ui => {
    const known = JSON.parse(document.querySelector('[data-play="trigger"] script').textContent), TOP = 0.6;
    let v = { ...known, x: [...known.x] }, Y = scale([0, TOP], [1, 0]);
    const R = v.x.length;
    ui.choice("windows", { rolling: "two, one round apart", half: "two halves of one" }, () => v.trigger, how => (v.trigger = how));
    ui.slider({ label: "θ", min: 0, max: 0.05, step: 0.001, get: () => v.theta, set: x => (v.theta = x), text: x => fmt(x, 3) });
    ui.slider({ label: "window W", min: 2, max: 8, step: 1, get: () => v.W, set: x => (v.W = x), text: x => fmt(x, 0) });
    const view = ui.picture("Above: the Gini coefficient by round, to drag. Below: by how much its mean has fallen, and θ.", () => 400);
    const handles = v.x.map((_, t) => view.handle({
      label: `Gini coefficient of round ${t}`, along: "y", min: 0, max: TOP, step: 0.01, r: 5.5,
      get: () => v.x[t], set: x => (v.x[t] = x), scale: () => Y, peers: () => handles.map(h => h.node),
    }));
    ui.legend([["c1", "earlier window"], ["c3", "later window", "6 3"], ["c2", "the round in which it fires", "dot"]]);
    ui.reset(() => (v = { ...known, x: [...known.x] }));
    const table = ui.table(["", "value"]), note = ui.line();

    return () => {
      const { g, W, H } = view.clear(), X = scale([0, R], [44, W - 12]), low = H - 46, ask = t => asked[v.trigger](v.x, t, v.W);
      const rounds = v.x.map((_, t) => t).concat(R).filter(ask), fires = rounds.find(t => fall(ask(t)) < v.theta);
      Y = scale([0, TOP], [232, 34]);
      axis(g, Y, [0, 0.2, 0.4, 0.6], { at: 40, side: "left", text: x => fmt(x, 1), label: "Gini coefficient", grid: W - 52 });
      path(g, v.x.map((x, t) => [X(t), Y(x)]), { stroke: "soft", "stroke-width": 1.5 });
      const at = fires ?? rounds[rounds.length - 1], w = at === undefined ? null : ask(at);
      if (w) [["early", w.from, "c1", ""], ["late", at - w.late.length, "c3", "6 3"]].forEach(([k, from, c, dash]) => {
        const to = from + w[k].length - 1;
        path(g, [[X(from) - 5, Y(mean(w[k]))], [X(to) + 5, Y(mean(w[k]))]], { stroke: c, "stroke-width": 3.5, "stroke-dasharray": dash });
      });
      v.x.forEach((x, t) => handles[t].place(X(t), Y(x), "c6", Math.max(14, X(1) - X(0)), 200, X(t), 134));
      // the differences
      const most = Math.max(0.06, ...rounds.map(t => Math.abs(fall(ask(t))))), D = scale([-most, most], [low, 262]);
      add(g, "text", { x: 12, y: 256 }, "fall of the mean");
      [[0, "soft", ""], [v.theta, "ink", "5 4"]].forEach(([y, c, dash]) => path(g, [[44, D(y)], [W - 12, D(y)]], { stroke: c, "stroke-width": 1.5, "stroke-dasharray": dash }));
      add(g, "text", { x: 36, y: D(v.theta) + 4, "text-anchor": "end" }, "θ");
      rounds.forEach(t => {
        const d = fall(ask(t)), y = D(clamp(d, -most, most)), wide = Math.max(4, (X(1) - X(0)) * 0.5);
        add(g, "rect", { x: X(t) - wide / 2, width: wide, y: Math.min(y, D(0)), height: Math.max(1.5, Math.abs(y - D(0))), fill: t === fires ? "c2" : "c6", "fill-opacity": 0.85 });
      });
      if (fires !== undefined) add(g, "circle", { cx: X(fires), cy: low + 8, r: 5, fill: "c2" });
      axis(g, X, [0, 5, 10, 15, 20].filter(t => t <= R), { at: low + 8, text: x => fmt(x, 0), label: "round" });
      table([["first round that asks", rounds.length ? rounds[0] : "–"], ["mean of the earlier window", w ? fmt(mean(w.early), 4) : "–"],
        ["mean of the later window", w ? fmt(mean(w.late), 4) : "–"], ["difference", w ? fmt(fall(w), 4) : "–"], ["fires in round", fires ?? "–"]]);
      const text = fires === undefined ? "It has not fired: in every round that asks, the mean still falls by θ or more." :
        `Until round ${fires} FedGA is FedAvg; from then on it weighs by error.`;
      note(text);
      ui.say(text);
    };
  });
})();
