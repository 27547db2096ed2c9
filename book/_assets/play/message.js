// What one client gets and sends in one round, tensor by tensor, as counted from real messages (results/traffic.csv).
(() => {
  const { add, scale, sum } = fedplay;
  const LOOK = { weights: ["c1", "weights"], number: ["c3", "one number"], groups: ["c4", "by group and label"], labels: ["c2", "by label"] };
  const WAYS = { down: ["down", "ask"], up: ["up", "answer"] };
  const TELLS = { labels: "one part for each label, so the server sees which labels the client has", groups: "of groups and labels" };
  const count = n => n.toLocaleString("en");

  fedplay.piece("message", ui => {
    const known = JSON.parse(document.querySelector('[data-play="message"] script').textContent), START = { method: known.start, width: 1 };
    let v = { ...START };
    const field = add(ui.stage, "label", { class: "slider" });
    add(field, "span", {}, "method");
    const select = add(field, "select", { style: "min-height: 2.5rem; padding: .25rem .6rem; font: inherit; color: var(--pst-color-text-base); background: var(--pst-color-on-background); border: 1px solid var(--pst-color-border); border-radius: .4rem" });
    Object.keys(known.methods).forEach(m => add(select, "option", { value: m }, m));
    select.addEventListener("change", () => { v.method = select.value; ui.change(); });
    ui.choice("hidden units", Object.fromEntries(known.widths.map((w, k) => [k, String(w)])), () => v.width, k => (v.width = +k));
    ui.reset(() => (v = { ...START }));
    const view = ui.picture("Two bars, to the client and from it: one block for each tensor, as long as its bytes.", () => 170);
    ui.legend(Object.values(LOOK).map(([c, words]) => [c, words, "box"]));
    const note = ui.line(), hint = ui.line(), table = ui.table(["tensor", "shape", "bytes", "what it is"]);

    return () => {
      select.value = v.method;
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
      table(parts.flatMap(([, list]) => list.map(r => [`${sign[r.way]}\u00a0${r.name}`, r.times > 1 ? `${r.shape}, ${r.times} times` : r.shape, count(r.bytes), LOOK[r.kind][1]])));
      const sent = rows.filter(r => WAYS.up.includes(r.way)), of = kind => sent.filter(r => r.kind === kind).map(r => r.name).join(" and ");
      const text = `${v.method}: ${count(total.down)} bytes down, ${count(total.up)} up.`;
      const told = Object.entries(TELLS).filter(([kind]) => of(kind)).map(([kind, words]) => `${of(kind)}: ${words}.`).join(" ");
      const last = sent.find(r => /(^|\.)fc\.bias$/.test(r.name));     // p - e_y of its rows, summed
      note(text);
      hint(`${told ? `Statistics in the upload. ${told}` : "No statistic of labels or groups goes up."}${last ? ` But as a rule ${last.name} rises for the labels that the client has.` : ""}`);
      ui.say(`${text} ${told}`);
    };
  });
})();
