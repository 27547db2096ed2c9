// A row of pixels read off the gradient of softmax regression. In a batch of B rows the gradient of class k is
//   dW_k = 1/B sum_j (p_jk - [y_j = k]) x_j,   db_k = 1/B sum_j (p_jk - [y_j = k]);   with B = 1, dW_k / db_k is the row.
(() => {
  const { add, fmt, mean, sum } = fedplay;
  const softmax = z => { const m = Math.max(...z), e = z.map(v => Math.exp(v - m)), s = sum(e); return e.map(v => v / s); };
  const dot = (a, b) => a.reduce((s, v, i) => s + v * b[i], 0);

  fedplay.piece("leak", ui => {
    const known = JSON.parse(document.querySelector('[data-play="leak"] script').textContent);
    const rest = known.digits.map(d => d.map(v => v / 16)), k = known.labels[0];
    const models = { new: { W: known.good.W.map(r => r.map(() => 0)), b: known.good.b.map(() => 0) }, good: known.good };
    let v, at = 0;
    const begin = () => (v = { mine: [...rest[0]], B: 1, sigma: 0, model: "new" });
    begin();
    const rows = () => [v.mine, ...rest.slice(1, v.B)];
    const factor = x => { const { W, b } = models[v.model]; return softmax(W.map((w, c) => dot(w, x) + b[c]))[k]; };
    function back() {                                                // what the server reads; sigma: Gaussian noise on every number
      const f = rows().map((x, j) => factor(x) - (known.labels[j] === k ? 1 : 0)), noise = i => v.sigma * known.noise[i];
      const db = sum(f) / v.B + noise(640 + k);
      return v.mine.map((_, i) => (sum(rows().map((x, j) => f[j] * x[i])) / v.B + noise(64 * k + i)) / db);
    }

    ui.choice("batch size", { 1: "1", 2: "2", 4: "4", 8: "8" }, () => v.B, b => (v.B = +b));
    ui.choice("model", { new: "new, all zeros", good: "well trained" }, () => v.model, m => (v.model = m));
    ui.slider({ label: "noise σ on every number", min: 0, max: 0.3, step: 0.005, get: () => v.sigma, set: x => (v.sigma = x), text: x => fmt(x, 3) });
    const view = ui.picture("Left: the first row of the batch, to draw on. Right: what is read off the gradient.", W => Math.min(W / 2, 250) + 84, 300, 620);
    ui.button("Empty picture", () => (v.mine = v.mine.map(() => 0)));
    ui.reset(begin);
    const table = ui.table(["", "value"]), note = ui.line();

    // drawing: pointer, or arrow keys and space; one stop of the tab key
    const board = add(view.svg, "g", { tabindex: 0, role: "application", class: "handle", "aria-roledescription": "picture of 8 by 8 pixels" });
    const frame = add(board, "rect", { fill: "transparent", stroke: "ink", "stroke-width": 1.5 }), cursor = add(board, "rect", { fill: "none", stroke: "c2", "stroke-width": 3 });
    let size = 1, left = 0, top = 0, ink = null;
    const cell = e => {
      const p = new DOMPoint(e.clientX, e.clientY).matrixTransform(view.svg.getScreenCTM().inverse());
      const [c, r] = [Math.floor((p.x - left) / size), Math.floor((p.y - top) / size)];
      return c >= 0 && c < 8 && r >= 0 && r < 8 ? 8 * r + c : null;
    };
    const paint = i => { if (i !== null) { at = i; v.mine[i] = ink; ui.change(); } };
    board.addEventListener("pointerdown", e => { const i = cell(e); if (i === null) return; ink = v.mine[i] > 0.5 ? 0 : 1; board.setPointerCapture(e.pointerId); board.focus(); paint(i); e.preventDefault(); });
    board.addEventListener("pointermove", e => ink !== null && paint(cell(e)));
    ["pointerup", "pointercancel"].forEach(end => board.addEventListener(end, () => (ink = null)));
    board.addEventListener("keydown", e => {
      const by = { ArrowRight: at % 8 < 7 ? 1 : 0, ArrowLeft: at % 8 ? -1 : 0, ArrowDown: at < 56 ? 8 : 0, ArrowUp: at > 7 ? -8 : 0 }[e.key];
      if (by !== undefined) at += by;
      else if (e.key === " ") v.mine[at] = v.mine[at] > 0.5 ? 0 : 1;
      else return;
      e.preventDefault();
      ui.change();
    });
    board.style.touchAction = "none";
    board.addEventListener("focus", () => ui.change());
    board.addEventListener("blur", () => ui.change());

    const image = (g, x, y, s, pixels) => pixels.forEach((p, i) => add(g, "rect", { x: x + (i % 8) * s, y: y + Math.floor(i / 8) * s, width: s + 0.4, height: s + 0.4, fill: "ink", "fill-opacity": Math.min(1, Math.max(0, p)) }));

    return () => {
      const { g, W } = view.clear(), got = back(), wide = Math.min(W / 2 - 18, 232);
      size = wide / 8; left = W / 2 - wide - 10; top = 26;
      image(g, left, top, size, v.mine);
      image(g, W / 2 + 10, top, size, got);
      add(g, "rect", { x: W / 2 + 10, y: top, width: wide, height: wide, fill: "none", stroke: "ink", "stroke-width": 1.5 });
      add(g, "text", { x: left, y: 16, class: "strong" }, "the row (draw)");
      add(g, "text", { x: W / 2 + 10, y: 16, class: "strong" }, "read off the gradient");
      Object.entries({ x: left, y: top, width: wide, height: wide }).forEach(([n, x]) => frame.setAttribute(n, x));
      Object.entries({ x: left + (at % 8) * size, y: top + Math.floor(at / 8) * size, width: size, height: size }).forEach(([n, x]) => cursor.setAttribute(n, x));
      cursor.style.display = document.activeElement === board ? "" : "none";
      board.setAttribute("aria-label", `the row, to draw on: arrow keys move, space paints; row ${Math.floor(at / 8) + 1}, column ${at % 8 + 1} is ${v.mine[at] > 0.5 ? "dark" : "light"}`);
      const small = Math.min(4.5, (wide - 20) / 8 / 4);               // the other rows of the batch
      add(g, "text", { x: left, y: top + wide + 20 }, v.B > 1 ? `with it in the batch: ${v.B - 1} other${v.B > 2 ? "s" : ""}` : "alone in the batch");
      rows().slice(1).forEach((x, j) => image(g, left + j * (8 * small + 8), top + wide + 28, small, x));
      const error = Math.sqrt(mean(v.mine.map((x, i) => (x - got[i]) ** 2))), f = factor(v.mine);
      table([["rows in the batch", v.B], ["noise σ", fmt(v.sigma, 3)], ["1 − probability of the row’s own label", fmt(1 - f, 3)], ["root mean square error", fmt(error, 3)]]);
      const text = error < 1e-6 ? "The row comes back exactly." : `What comes back is off by ${fmt(error, 3)}, where empty is 0 and full is 1.`;
      note(text);
      ui.say(text);
    };
  });
})();
