// What repro/browse.py asks of a page, and how repro/pdf.py makes one page of all: functions of `asked`.

// Formulas are set after the page has loaded; colours must not be caught half-way.
const settled = async () => {
  await window.MathJax?.startup?.promise;
  await document.fonts.ready;
  const still = document.createElement("style");
  still.textContent = "* { transition: none !important; animation: none !important }";
  document.head.append(still);
};

// What sticks out of the page and is not cut off or scrolled by something around it.
const sideways = () => {
  const root = document.scrollingElement, width = root.clientWidth;
  if (root.scrollWidth <= width + 1) return [];
  const drawer = e => getComputedStyle(e).position === "fixed";
  const held = e => {
    if (drawer(e)) return true;
    for (e = e.parentElement; e && e !== document.body; e = e.parentElement)
      if (getComputedStyle(e).overflowX !== "visible" || drawer(e)) return true;
  };
  const wide = [...document.querySelectorAll("body *")].find(e => e.getBoundingClientRect().right + scrollX > width + 1 && !held(e));
  const name = wide && wide.tagName.toLowerCase() + (wide.id && "#" + wide.id) + [...wide.classList].map(c => "." + c).join("");
  return [`${root.scrollWidth} px wide on a screen of ${width}: ${wide ? `<${name}>` : "a long word"}`];
};

// Letters of a figure that nobody can read: smaller than 9 pixels, or three quarters below another label.
const letters = () => [...document.querySelectorAll("article figure svg")].flatMap(svg => {
  const all = [...svg.querySelectorAll("text")].map(text => {
    const { a, b } = text.getScreenCTM(), size = parseFloat(getComputedStyle(text).fontSize) * Math.hypot(a, b);
    return { said: text.textContent.replace(/\s+/g, ""), box: text.getBoundingClientRect(), size };
  }).filter(t => t.said && t.box.width);
  const shared = (a, b) => Math.max(0, Math.min(a.right, b.right) - Math.max(a.left, b.left)) * Math.max(0, Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top));
  const covers = (a, b) => shared(a, b) > 0.75 * Math.min(a.width * a.height, b.width * b.height);
  const tiny = all.find(t => t.size < 9), pairs = all.flatMap((t, i) => all.slice(i + 1).map(other => [t, other]));
  const pair = pairs.find(([t, other]) => covers(t.box, other.box)), of = svg.closest("figure").id || "a figure";
  return [...(tiny ? [`${of}: letters of ${tiny.size.toFixed(1)} pixels, ${tiny.said}`] : []), ...(pair ? [`${of}: ${pair[0].said} and ${pair[1].said} lie on one another`] : [])];
});

// Sections that the page does not list at its right.
const contents = () => document.querySelectorAll("article h2").length > 1 && !document.querySelector(".bd-sidebar-secondary nav a") ? ["no list of its sections"] : [];

// A drawing has one name as a whole (repro.bookcheck sees to it), and the rows of a long table are made alike: the rest would only cost axe-core time.
const shorter = () => document.querySelectorAll("svg > :not(title), tbody > tr:nth-child(n + 40)").forEach(e => e.remove());

const dark = () => Object.assign(document.documentElement.dataset, { theme: "dark", mode: "dark" });

// One page of all [name, HTML]: ids, and links from page to page, become those of the whole; what is folded opens.
const joined = async pages => {
  const known = new Set(pages.map(([name]) => name)), parser = new DOMParser();
  document.body.className = "joined";
  document.body.replaceChildren(...pages.map(([name, html]) => {
    const article = parser.parseFromString(html, "text/html").querySelector("article");
    const there = to => to.replace(/^(?:([\w-]+)\.html)?#?(.*)$/, (all, page = name, id) => known.has(page) ? `#${page}:${id}` : all);
    article.querySelectorAll("script, template, .headerlink, .onward, button, input, .prov").forEach(e => e.remove());
    article.querySelectorAll("details").forEach(e => { e.open = true; });
    for (const e of article.querySelectorAll("*"))
      for (const a of [...e.attributes])
        if (a.name === "id") a.value = `${name}:${a.value}`;
        else if (/href$/.test(a.name)) a.value = there(a.value);
        else if (a.value.includes("url(#")) a.value = a.value.replaceAll("url(#", `url(#${name}:`);
    article.id = `${name}:`;
    return article;
  }));
  document.head.insertAdjacentHTML("beforeend", "<style>@page { size: A4; margin: 18mm 15mm; @bottom-center { content: counter(page); font: 9pt sans-serif; } }</style>");
  await MathJax.typesetPromise();
};

window.asked = { settled, sideways, letters, contents, shorter, dark, joined };
