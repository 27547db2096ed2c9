// Three domains in the plane. A model is a point, domain i's own model is c_i, and its gap is G_i(a) = |sum_j a_j c_j - c_i|^2 / 2.
(() => {
  const { add, clamp, fmt, mean, path, scale, sum } = play;
  const norm = x => x.map(v => v / sum(x));
  const point = (a, c) => [0, 1].map(k => sum(a.map((v, i) => v * c[i][k])));
  const gaps = (a, c) => c.map(ci => { const m = point(a, c); return ((m[0] - ci[0]) ** 2 + (m[1] - ci[1]) ** 2) / 2; });
  const variance = G => mean(G.map(v => (v - mean(G)) ** 2));
  // FAA: z_i = (G_i - mean) / mean|G| within [-1, 1], a_i <- a_i exp(eta z_i) / Z, kept between floor / C and ceiling / C
  const moved = (a, G, eta, { floor, ceiling }) => {
    const size = mean(G.map(Math.abs));
    if (size < 1e-6) return a;
    const z = G.map(v => clamp((v - mean(G)) / (size + 1e-8), -1, 1)), b = norm(a.map((v, i) => v * Math.exp(eta * z[i])));
    return norm(b.map(v => clamp(v, floor / a.length, ceiling / a.length)));
  };
  const faa = (c, how) => {                                          // of its trials, from equal weights, the one whose gaps are most alike
    let a = [1, 1, 1].map(v => v / 3), best = null;
    for (let q = 0; q < how.trials; q++) {
      const G = gaps(a, c), v = variance(G);
      if (!best || v < best.v) best = { a, v };
      a = moved(a, G, how.eta * 0.7 ** q, how);
    }
    return best.a;
  };

  play.piece("triangle", ui => {
    const known = JSON.parse(document.querySelector('[data-play="triangle"] script').textContent), LOOK = { equal: "ink", FedAvg: "c1", FAA: "c2" };
    let v, X = scale([-0.4, 1.7], [0, 1]), Y = scale([-0.4, 1.7], [1, 0]);
    const begin = () => (v = { c: known.corners.map(p => [...p]), a: [1, 1, 1].map(x => x / 3) });
    begin();
    // weights of one's own: the share of domain 1, and how the other two divide the rest
    ui.slider({ label: "weight of domain 1", min: 0, max: 1, step: 0.01, get: () => v.a[0], set: x => { const r = v.a[1] + v.a[2]; const s = r > 1e-9 ? v.a[1] / r : 0.5; v.a = [x, (1 - x) * s, (1 - x) * (1 - s)]; } });
    ui.slider({ label: "domain 2’s part of the rest", min: 0, max: 1, step: 0.01, get: () => { const r = v.a[1] + v.a[2]; return r > 1e-9 ? v.a[1] / r : 0.5; }, set: s => { const r = v.a[1] + v.a[2]; v.a = [v.a[0], r * s, r * (1 - s)]; } });
    const view = ui.picture("A triangle of three domains, whose corners can be dragged; inside, the averages by four sets of weights.", W => Math.min(W, 420), 280, 460);
    ui.legend([["ink", "equal weights", "box"], ["c1", "FedAvg: 30, 20 and 10 rows", "box"], ["c2", "FAA", "dot"], ["c3", "your weights", "dot"]]);
    ui.reset(begin);
    const table = ui.table(["", "gap 1", "gap 2", "gap 3", "variance"]), note = ui.line();

    // a corner: dragged by the pointer, moved by the arrow keys
    const front = add(view.svg, "g");
    const corners = v.c.map((_, i) => {
      const node = add(front, "g", { class: "handle", tabindex: 0, role: "slider", "aria-label": `domain ${i + 1}`, "aria-valuemin": -0.4, "aria-valuemax": 1.7 });
      const area = add(node, "circle", { r: 22, fill: "transparent" }), dot = add(node, "circle", { r: 8, class: "dot" });
      dot.style.setProperty("--c", "var(--fig-c6)");
      node.style.touchAction = "none";
      const put = (x, y) => { v.c[i] = [x, y].map(u => clamp(Math.round(u * 20) / 20, -0.3, 1.6)); ui.change(); };
      let held = false;
      const to = e => { const p = new DOMPoint(e.clientX, e.clientY).matrixTransform(view.svg.getScreenCTM().inverse()); put(X.back(p.x), Y.back(p.y)); };
      node.addEventListener("pointerdown", e => { held = true; node.setPointerCapture(e.pointerId); node.focus(); to(e); e.preventDefault(); });
      node.addEventListener("pointermove", e => held && to(e));
      ["pointerup", "pointercancel"].forEach(end => node.addEventListener(end, () => (held = false)));
      node.addEventListener("keydown", e => {
        const by = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[e.key];
        if (!by) return;
        put(v.c[i][0] + by[0] * 0.05, v.c[i][1] + by[1] * 0.05);
        e.preventDefault();
      });
      return { node, area, dot };
    });

    return () => {
      const { g, W, H } = view.clear(), [x0, x1] = [18, W - 18], k = (x1 - x0) / 2.1;
      X = scale([-0.4, 1.7], [x0, x1]);
      Y = scale([-0.4, 1.7], [H - 8, H - 8 - 2.1 * Math.min(k, (H - 16) / 2.1)]);
      const at = p => [X(p[0]), Y(p[1])], sets = { equal: [1, 1, 1].map(x => x / 3), FedAvg: norm(known.rows), FAA: faa(v.c, known.faa) };
      path(g, [0, 1, 2, 0].map(i => at(v.c[i])), { stroke: "ink", "stroke-width": 1.5 });
      Object.entries(sets).forEach(([name, a]) => {
        const [x, y] = at(point(a, v.c));
        if (name === "FAA") add(g, "circle", { cx: x, cy: y, r: 7, fill: LOOK[name] });
        else add(g, "rect", { x: x - 6, y: y - 6, width: 12, height: 12, fill: LOOK[name], transform: name === "equal" ? `rotate(45 ${x} ${y})` : "" });
      });
      const mine = at(point(v.a, v.c));
      add(g, "circle", { cx: mine[0], cy: mine[1], r: 9, fill: "none", stroke: "c3", "stroke-width": 3 });
      corners.forEach(({ node, area, dot }, i) => {
        const [x, y] = at(v.c[i]);
        [area, dot].forEach(n => { n.setAttribute("cx", x); n.setAttribute("cy", y); });
        node.setAttribute("aria-valuenow", v.c[i][0]);
        node.setAttribute("aria-valuetext", `at ${fmt(v.c[i][0])}, ${fmt(v.c[i][1])}`);
        add(g, "text", { x: clamp(x, 34, W - 34), y: clamp(y + (y > H / 2 ? 28 : -16), 14, H - 4), "text-anchor": "middle", class: "halo strong" }, `domain ${i + 1}`);
      });
      const line = (name, a) => { const G = gaps(a, v.c); return [name, ...G.map(u => fmt(u, 3)), fmt(variance(G), 4)]; };
      table([...Object.entries(sets).map(([n, a]) => line(n, a)), line("your weights", v.a)]);
      const show = a => a.map(u => fmt(u, 3)).join(", ");
      note(`FAA's weights: ${show(sets.FAA)}. Yours: ${show(v.a)}.`);
      ui.say(`variance of the gaps: FedAvg ${fmt(variance(gaps(sets.FedAvg, v.c)), 4)}, FAA ${fmt(variance(gaps(sets.FAA, v.c)), 4)}, yours ${fmt(variance(gaps(v.a, v.c)), 4)}`);
    };
  });
})();
