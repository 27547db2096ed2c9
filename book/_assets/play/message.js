// What one client gets and sends in one round, tensor by tensor, as counted from real messages (results/traffic.csv).
(() => {
  const { add, scale, sum } = play;
  const LOOK = { weights: ["c1", "weights of a model"], number: ["c3", "one number of the client"], groups: ["c4", "a statistic of groups"], labels: ["c2", "a statistic of labels"] };
  const WAYS = { down: ["down", "ask"], up: ["up", "answer"] };
  const count = n => n.toLocaleString("en");

  play.piece("message", ui => {
    const known = JSON.parse(document.querySelector('[data-play="message"] script').textContent), START = { method: known.start, width: 1 };
    let v = { ...START };
    ui.choice("method", Object.fromEntries(Object.keys(known.methods).map(m => [m, m])), () => v.method, m => (v.method = m));
    ui.choice("hidden units", Object.fromEntries(known.widths.map((w, k) => [k, String(w)])), () => v.width, k => (v.width = +k));
    ui.reset(() => (v = { ...START }));
    const view = ui.picture("Two bars, to the client and from it: one block for each tensor, as long as its bytes.", () => 196);
    ui.legend(Object.values(LOOK).map(([c, words]) => [c, words, "box"]));
    const note = ui.line(), table = ui.table(["tensor", "shape", "bytes", "what it is"]);

    return () => {
      const { g, W } = view.clear(), rows = known.methods[v.method].map(([way, name, kind, times, shapes, bytes]) => ({ way, name, kind, times, shape: shapes[v.width], bytes: bytes[v.width] * times }));
      const parts = Object.entries(WAYS).map(([side, ways]) => [side, rows.filter(r => ways.includes(r.way))]);
      const total = Object.fromEntries(parts.map(([side, r]) => [side, sum(r.map(x => x.bytes))])), X = scale([0, Math.max(...Object.values(total))], [8, W - 8]);
      parts.forEach(([side, list], k) => {
        const y = 34 + 88 * k;
        add(g, "text", { x: 8, y: y - 10, class: "strong" }, `${side === "down" ? "↓ to the client" : "↑ from the client"}: ${count(total[side])} bytes`);
        let at = 0;
        list.forEach(r => {                                          // a block of a few bytes is still to be seen
          const x = X(at), wide = Math.max(2, X(at + r.bytes) - x);
          const block = add(g, "rect", { x: Math.min(x, W - 10), y, width: wide, height: 40, fill: LOOK[r.kind][0], stroke: "paper", "stroke-width": 1 });
          add(block, "title", {}, `${r.name}: ${count(r.bytes)} bytes`);
          if (wide > 7.2 * r.name.length + 8) add(g, "text", { x: x + 5, y: y + 25, style: "fill: var(--fig-paper)" }, r.name);
          at += r.bytes;
        });
      });
      const sign = { down: "↓", ask: "↓", up: "↑", answer: "↑" };
      table(parts.flatMap(([, list]) => list.map(r => [`${sign[r.way]} ${r.name}`, r.times > 1 ? `${r.shape}, ${r.times} times` : r.shape, count(r.bytes), LOOK[r.kind][1]])));
      const outright = [...new Set(rows.filter(r => WAYS.up.includes(r.way) && r.kind !== "weights").map(r => r.name))];
      const text = `${v.method}: ${count(total.down)} bytes down, ${count(total.up)} up. ` +
        (outright.length ? `Said outright, beside models: ${outright.join(", ")}.` : "Nothing but weights goes up.");
      note(text);
      ui.say(text);
    };
  });
})();
