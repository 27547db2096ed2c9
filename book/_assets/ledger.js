// The ledger and the claims, live: filter, search, sort, pages of rows, and an address that keeps the choice (#?paper=FedGA&verdict=differs).
// `ledger.html#key` turns to that row. What nobody looks at yet, the later rows of a table and what a fold
// holds, is no element: its <template> names the file where it stands, packed.
const FEW = 10;                                                      // rows a page at first
function fetched(later, then) {
  document.head.append(Object.assign(document.createElement("script"), { src: later.dataset.rows, async onload() {
    const packed = Uint8Array.from(atob(window.ROWS), c => c.charCodeAt(0)), stream = new Blob([packed]).stream();
    later.innerHTML = await new Response(stream.pipeThrough(new DecompressionStream("gzip"))).text();
    then(later.content);
  } }));
}

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("details > template").forEach(later =>
    later.parentElement.addEventListener("toggle", () => fetched(later, content => later.replaceWith(content)), { once: true }));
  const table = document.querySelector("table.live"), later = table?.querySelector("template");
  if (!table) return;
  const texts = [...table.tBodies[0].rows].map(tr => tr.outerHTML);
  if (!later) return live(table, texts);
  fetched(later, content => live(table, [...texts, ...[...content.children].map(tr => tr.outerHTML)]));
});

function live(table, texts) {
  const what = table.dataset.what, body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const collate = new Intl.Collator("en", { numeric: true, sensitivity: "base" }).compare;
  const make = (tag, props = {}, ...kids) => { const e = Object.assign(document.createElement(tag), props); e.append(...kids); return e; };
  const parts = cell => {                                            // text of a cell: [main, small print]
    const first = cell.firstChild, small = cell.querySelector("small");
    return [first && first.nodeName !== "SMALL" ? first.textContent.trim() : "", small ? small.textContent.trim() : ""];
  };
  const element = text => Object.assign(document.createElement("template"), { innerHTML: text }).content.firstElementChild;
  const rows = texts.map((html, at) => {
    const tr = element(html), cells = [...tr.cells];
    return { html, id: tr.id, data: { ...tr.dataset }, at, cells: cells.map(parts), text: cells.map(c => c.textContent).join(" ").toLowerCase() };
  });

  // a facet is something to choose from: a column of words, the small print of one, or what the rows carry as data-...
  const facets = (table.dataset.facets || "").split(" ").filter(Boolean).map(name => ({ name, of: r => r.data[name] || "" }));
  heads.forEach((th, i) => {
    if (th.dataset.kind === "cat") facets.push({ name: th.dataset.name, of: r => r.cells[i][0] });
    if (th.dataset.small) facets.push({ name: th.dataset.small.trim(), of: r => r.cells[i][1] });
  });
  const blank = () => ({ pick: {}, q: "", sort: "", down: false, page: 0, size: FEW });
  let state = blank(), shown = rows;

  const read = () => {                                               // the address -> the choice
    const want = new URLSearchParams(location.hash.startsWith("#?") ? location.hash.slice(2) : table.dataset.first || "");
    state = blank();
    facets.forEach(f => { if (rows.some(r => f.of(r) === want.get(f.name))) state.pick[f.name] = want.get(f.name); });
    state.q = want.get("q") || "";
    if (heads.some(h => h.dataset.name === want.get("sort"))) state.sort = want.get("sort");
    state.down = want.has("down");
    state.size = +want.get("rows") || FEW;
    state.page = Math.max(0, (+want.get("page") || 1) - 1);
  };
  const write = () => {                                              // the choice -> the address
    const q = new URLSearchParams(state.pick);
    if (state.q) q.set("q", state.q);
    if (state.sort) q.set("sort", state.sort);
    if (state.down) q.set("down", "");
    if (state.size !== FEW) q.set("rows", state.size);
    if (state.page) q.set("page", state.page + 1);
    history.replaceState(null, "", String(q) ? "#?" + q : location.pathname + location.search);
  };
  const fits = (r, except) => facets.every(f => f === except || !state.pick[f.name] || f.of(r) === state.pick[f.name]);
  const order = list => {
    const i = heads.findIndex(h => h.dataset.name === state.sort), sign = state.down ? -1 : 1;
    if (i < 0) return list;
    const value = heads[i].dataset.kind === "num" ? r => parseFloat(r.cells[i][0].replace("−", "-")) : r => r.cells[i][0];
    const none = v => v === "" || Number.isNaN(v);                   // a blank comes last, whichever way it is sorted
    return list.map(r => [value(r), r]).sort(([a, x], [b, y]) => none(a) - none(b)
      || (none(a) ? 0 : sign * (typeof a === "number" ? a - b : collate(a, b))) || x.at - y.at).map(p => p[1]);
  };

  // controls
  const selects = facets.map(f => {
    const values = [...new Set(rows.map(f.of))].filter(Boolean).sort(collate);
    const select = make("select", { name: f.name }, new Option("all", ""), ...values.map(v => new Option(v, v)));
    select.onchange = () => { state.pick = { ...state.pick, [f.name]: select.value }; if (!select.value) delete state.pick[f.name]; state.page = 0; draw(); };
    return select;
  });
  const search = make("input", { type: "search", placeholder: "words in any column", autocomplete: "off" });
  search.setAttribute("aria-label", "Search all columns");
  search.oninput = () => { state.q = search.value.trim(); state.page = 0; draw(); };
  const clear = make("button", { type: "button", textContent: "Clear" });
  clear.onclick = () => { state = { ...blank(), size: state.size }; draw(); };
  const sorter = make("select", { name: "sort" }, new Option("the papers' order", ""), ...heads.map(h => new Option(h.dataset.name, h.dataset.name)));
  sorter.onchange = () => { state.sort = sorter.value; state.down = false; state.page = 0; draw(); };
  const sizes = make("select", {}, ...[FEW, 25, 100, 1e9].map(n => new Option(n === 1e9 ? "all rows" : n + " rows a page", n)));
  sizes.onchange = () => { state.size = +sizes.value; state.page = 0; draw(); };
  sizes.setAttribute("aria-label", "Rows a page");
  const info = make("span", { className: "info" });
  info.setAttribute("aria-live", "polite");
  const turn = [["‹ previous", -1], ["next ›", 1]].map(([text, by]) => {
    const b = make("button", { type: "button", textContent: text });
    b.onclick = () => { state.page += by; draw(); table.scrollIntoView({ block: "start" }); };
    return b;
  });
  const where = make("span", { className: "info" });
  const fold = make("details", { className: "facets", open: innerWidth > 760 }, make("summary", { textContent: "Filter" }),
    make("div", { className: "filters" }, ...selects.map((s, i) => make("label", {}, facets[i].name, s)), make("label", { className: "narrow" }, "sort by", sorter)));
  table.before(make("div", { className: "finder" }, search, clear, info), fold);
  table.after(make("div", { className: "pager" }, turn[0], where, turn[1], sizes));
  heads.forEach(th => {                                              // a heading sorts: up, down, the papers' order
    const b = make("button", { type: "button", className: "sort", textContent: th.textContent });
    b.onclick = () => {
      if (state.sort !== th.dataset.name) [state.sort, state.down] = [th.dataset.name, false];
      else if (!state.down) state.down = true;
      else [state.sort, state.down] = ["", false];
      state.page = 0;
      draw();
    };
    th.replaceChildren(b);
  });

  function draw(keep) {
    const ask = state.q.toLowerCase().split(/\s+/).filter(Boolean), named = rows.filter(r => ask.every(w => r.text.includes(w)));
    shown = order(named.filter(r => fits(r)));
    const pages = Math.max(1, Math.ceil(shown.length / state.size));
    state.page = Math.min(state.page, pages - 1);
    body.replaceChildren(...shown.slice(state.page * state.size, (state.page + 1) * state.size).map(r => element(r.html)));
    selects.forEach((s, i) => {                                      // how many rows each choice would leave
      const count = {};
      named.forEach(r => { if (fits(r, facets[i])) { const v = facets[i].of(r); count[v] = (count[v] || 0) + 1; } });
      [...s.options].forEach(o => { if (o.value) { o.textContent = `${o.value} (${count[o.value] || 0})`; o.disabled = !count[o.value] && o.value !== state.pick[s.name]; } });
      s.value = state.pick[s.name] || "";
      s.classList.toggle("set", !!s.value);
    });
    heads.forEach(h => { if (h.dataset.name !== state.sort) h.removeAttribute("aria-sort"); else h.setAttribute("aria-sort", state.down ? "descending" : "ascending"); });
    if (document.activeElement !== search) search.value = state.q;
    [sorter.value, sizes.value] = [state.sort, state.size];
    if (sizes.selectedIndex < 0) sizes.value = state.size = FEW;
    info.textContent = shown.length === rows.length ? `${rows.length} ${what}` : `${shown.length} of ${rows.length} ${what}`;
    where.textContent = shown.length ? `page ${state.page + 1} of ${pages}` : "no row fits: clear a filter";
    [turn[0].disabled, turn[1].disabled] = [state.page === 0, state.page === pages - 1];
    if (!keep) write();
  }
  function jump() {                                                  // the address names a row: turn to its page
    const chosen = location.hash.startsWith("#?");
    if (chosen || location.hash.length < 2) { read(); draw(true); return chosen && search.scrollIntoView({ block: "start" }); }
    const id = decodeURIComponent(location.hash.slice(1)), row = rows.find(r => r.id === id);
    if (!row) return draw(true);
    if (!shown.includes(row)) { state = { ...blank(), size: state.size }; draw(true); }
    state.page = Math.floor(shown.indexOf(row) / state.size);
    draw(true);
    body.querySelectorAll(".found").forEach(r => r.classList.remove("found"));
    const tr = document.getElementById(id);
    tr.classList.add("found");
    tr.tabIndex = -1;
    tr.focus({ preventScroll: true });
    tr.scrollIntoView({ block: "center" });
  }
  body.addEventListener("click", e => {                              // a click on a row makes it the address
    const tr = e.target.closest("tr");
    if (tr && !e.target.closest("a") && !String(getSelection())) history.replaceState(null, "", "#" + tr.id);
  });
  addEventListener("beforeprint", () => body.replaceChildren(...shown.map(r => element(r.html))));
  addEventListener("afterprint", () => draw(true));
  addEventListener("hashchange", jump);
  jump();
  table.dataset.ready = "";
}
