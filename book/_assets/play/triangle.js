// Three domains in the plane. A model is a point, domain i's own model is c_i, and its gap is G_i(a) = |sum_j a_j c_j - c_i|^2 / 2.
(() => {
  const { add, clamp, fmt, mean, path, scale, sum } = fedplay;
  const STAR = Array.from({ length: 10 }, (_, k) => `${k ? "L" : "M"}${[Math.sin, t => -Math.cos(t)].map(f => ((k % 2 ? 4.5 : 11) * f((k * Math.PI) / 5)).toFixed(1))}`).join("") + "Z";
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

  // the point with equal gaps, the centre of the circle through the corners; null if they lie on a line
  const centre = ([p, q, r]) => {
    const [a, b, c, d] = [q[0] - p[0], q[1] - p[1], r[0] - p[0], r[1] - p[1]], det = 2 * (a * d - b * c);
    return Math.abs(det) < 1e-6 ? null : [p[0] + (d * (a * a + b * b) - b * (c * c + d * d)) / det, p[1] + (a * (c * c + d * d) - c * (a * a + b * b)) / det];
  };
  // weights of a point of the triangle, of the nearest ones outside; null if there is no triangle
  const weights = ([x, y], [p, q, r]) => {
    const det = (q[1] - r[1]) * (p[0] - r[0]) + (r[0] - q[0]) * (p[1] - r[1]);
    if (Math.abs(det) < 1e-6) return null;
    const a = ((q[1] - r[1]) * (x - r[0]) + (r[0] - q[0]) * (y - r[1])) / det, b = ((r[1] - p[1]) * (x - r[0]) + (p[0] - r[0]) * (y - r[1])) / det;
    return norm([a, b, 1 - a - b].map(u => Math.max(0, u)));
  };

  fedplay.piece("triangle", ui => {
    const known = JSON.parse(document.querySelector('[data-play="triangle"] script').textContent), LOOK = { equal: "ink", FedAvg: "c1", FAA: "c2" }, [LOW, HIGH] = [-0.25, 1.35];
    let v, X = scale([LOW, HIGH], [0, 1]), Y = scale([LOW, HIGH], [1, 0]);
    const begin = () => (v = { c: known.corners.map(p => [...p]), a: [1, 1, 1].map(x => x / 3) });
    begin();
    // weights of one's own: the share of domain 1, and how the other two divide the rest
    ui.slider({ label: "weight of domain 1", min: 0, max: 1, step: 0.01, get: () => v.a[0], set: x => { const r = v.a[1] + v.a[2]; const s = r > 1e-9 ? v.a[1] / r : 0.5; v.a = [x, (1 - x) * s, (1 - x) * (1 - s)]; } });
    ui.slider({ label: "domain 2’s part of the rest", min: 0, max: 1, step: 0.01, get: () => { const r = v.a[1] + v.a[2]; return r > 1e-9 ? v.a[1] / r : 0.5; }, set: s => { const r = v.a[1] + v.a[2]; v.a = [v.a[0], r * s, r * (1 - s)]; } });
    const view = ui.picture("A triangle of three domains, whose corners can be dragged; inside, the averages by four sets of weights; yours can be dragged, too.", W => W, 280, 400);
    ui.legend([["ink", "equal weights", "box"], ["c1", `FedAvg: ${known.rows.slice(0, -1).join(", ")} and ${known.rows[2]} rows`, "box"], ["c2", "FAA", "dot"], ["c3", "your weights, to drag", "dot"], ["c4", "all gaps equal", "dot"]]);
    ui.reset(begin);
    const table = ui.table(["", "gap 1", "gap 2", "gap 3", "variance"]), note = ui.line();

    // a point of the plane: dragged by the pointer, moved by the arrow keys
    const front = add(view.svg, "g");
    const grip = (label, colour, r, get, set) => {
      const node = add(front, "g", { class: "handle", tabindex: 0, role: "slider", "aria-label": label, "aria-valuemin": LOW, "aria-valuemax": HIGH });
      const area = add(node, "circle", { r: 22, fill: "transparent" }), dot = add(node, "circle", { r, class: "dot" });
      dot.style.setProperty("--c", `var(--fig-${colour})`);
      node.style.touchAction = "none";
      const put = (x, y) => { set([x, y].map(u => clamp(u, LOW + 0.05, HIGH - 0.05))); ui.change(); };
      let held = false;
      const to = e => { const p = new DOMPoint(e.clientX, e.clientY).matrixTransform(view.svg.getScreenCTM().inverse()); put(X.back(p.x), Y.back(p.y)); };
      node.addEventListener("pointerdown", e => { held = true; node.setPointerCapture(e.pointerId); node.focus(); to(e); e.preventDefault(); });
      node.addEventListener("pointermove", e => held && to(e));
      ["pointerup", "pointercancel"].forEach(end => node.addEventListener(end, () => (held = false)));
      node.addEventListener("keydown", e => {
        const by = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[e.key];
        if (!by) return;
        put(get()[0] + by[0] * 0.05, get()[1] + by[1] * 0.05);
        e.preventDefault();
      });
      return ([x, y], text) => {
        [area, dot].forEach(n => { n.setAttribute("cx", x); n.setAttribute("cy", y); });
        node.setAttribute("aria-valuenow", fmt(get()[0]).replace("−", "-"));
        node.setAttribute("aria-valuetext", text);
      };
    };
    const corners = v.c.map((_, i) => grip(`domain ${i + 1}`, "c6", 8, () => v.c[i], p => (v.c[i] = p.map(u => Math.round(u * 20) / 20))));
    const mine = grip("your average", "c3", 8, () => point(v.a, v.c), p => (v.a = weights(p, v.c) || v.a));

    return () => {
      const { g, W, H } = view.clear(), star = centre(v.c), out = !star || Math.min(...weights(star, v.c)) === 0;
      X = scale([LOW, HIGH], [4, W - 4]);
      Y = scale([LOW, HIGH], [H - 4, 4]);
      add(g, "rect", { x: 4, y: 4, width: W - 8, height: H - 8, rx: 6, fill: "none", stroke: "grid" });
      const at = p => [X(p[0]), Y(p[1])], sets = { equal: [1, 1, 1].map(x => x / 3), FedAvg: norm(known.rows), FAA: faa(v.c, known.faa) };
      path(g, [0, 1, 2, 0].map(i => at(v.c[i])), { stroke: "ink", "stroke-width": 1.5 });
      v.c.forEach(c => path(g, [at(point(v.a, v.c)), at(c)], { stroke: "c3", "stroke-dasharray": "2 4", "stroke-width": 1.5 }));
      Object.entries(sets).forEach(([name, a]) => {
        const [x, y] = at(point(a, v.c));
        if (name === "FAA") add(g, "circle", { cx: x, cy: y, r: 7, fill: LOOK[name] });
        else add(g, "rect", { x: x - 6, y: y - 6, width: 12, height: 12, fill: LOOK[name], transform: name === "equal" ? `rotate(45 ${x} ${y})` : "" });
      });
      if (star && star.every(u => u > LOW && u < HIGH)) add(g, "path", { d: STAR, fill: "c4", transform: `translate(${at(star)})` });
      mine(at(point(v.a, v.c)), `weights ${v.a.map(u => fmt(u)).join(", ")}`);
      corners.forEach((move, i) => {
        const [x, y] = at(v.c[i]);
        move([x, y], `at ${fmt(v.c[i][0])}, ${fmt(v.c[i][1])}`);
        add(g, "text", { x: clamp(x, 34, W - 34), y: clamp(y + (v.c[i][1] <= mean(v.c.map(c => c[1])) ? 28 : -16), 16, H - 8), "text-anchor": "middle", class: "halo strong" }, `domain ${i + 1}`);
      });
      const line = (name, a) => { const G = gaps(a, v.c); return [name, ...G.map(u => fmt(u, 3)), fmt(variance(G), 4)]; };
      table([...Object.entries(sets).map(([n, a]) => line(n, a)), line("your weights", v.a)]);
      const show = a => a.map(u => fmt(u, 3)).join(", ");
      note(`FAA's weights: ${show(sets.FAA)}. Yours: ${show(v.a)}.${out ? " No weights make all gaps equal: that point lies outside the triangle." : ""}`);
      ui.say(`variance of the gaps: FedAvg ${fmt(variance(gaps(sets.FedAvg, v.c)), 4)}, FAA ${fmt(variance(gaps(sets.FAA, v.c)), 4)}, yours ${fmt(variance(gaps(v.a, v.c)), 4)}`);
    };
  });
})();
