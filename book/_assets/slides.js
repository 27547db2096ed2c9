// A talk fills the screen: a question, then the picture. Without this file the slides stand below one another, and print.
document.head.insertAdjacentHTML("beforeend", "<style>@page { size: A4 landscape; margin: 12mm; }</style>");
document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".deck").forEach(deck => {
  const slides = [...deck.querySelectorAll(".slide")], button = document.createElement("button");
  let at = 0;
  const show = (to, told) => {
    slides[at].classList.remove("now", "told");
    at = Math.max(0, Math.min(to, slides.length - 1));
    slides[at].classList.add("now");
    slides[at].classList.toggle("told", told);
    deck.scrollTop = 0;
  };
  const told = () => slides[at].classList.contains("told") || !slides[at].querySelector(".answer");
  const step = on => {
    if (on && !told()) show(at, true);
    else if (on) show(at + 1, at + 1 >= slides.length);
    else if (slides[at].matches(".told:has(.answer)")) show(at, false);
    else show(at - 1, true);
  };
  const present = on => {
    deck.classList.toggle("on", on);
    if (on) document.documentElement.requestFullscreen?.().catch(() => {});
    else if (document.fullscreenElement) document.exitFullscreen();
    show(on ? at : 0, false);
    (on ? deck : button).focus();
  };
  const keys = {
    ArrowRight: () => step(true), ArrowDown: () => step(true), PageDown: () => step(true), " ": () => step(true), Enter: () => step(true),
    ArrowLeft: () => step(false), ArrowUp: () => step(false), PageUp: () => step(false), Home: () => show(0, false), End: () => show(slides.length - 1, false),
    n: () => deck.classList.toggle("mute"), p: () => window.print(), Escape: () => present(false),
  };
  button.type = "button";
  button.textContent = "Present";
  button.onclick = () => present(true);
  deck.tabIndex = -1;
  deck.prepend(button);
  document.addEventListener("keydown", e => {
    const act = keys[e.key.length > 1 ? e.key : e.key.toLowerCase()];
    if (!deck.classList.contains("on") || !act || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    e.stopPropagation();
    act();
  }, true);
  deck.addEventListener("click", e => deck.classList.contains("on") && !e.target.closest("a, button") && step(e.clientX > innerWidth / 3));
  document.addEventListener("fullscreenchange", () => document.fullscreenElement || !deck.classList.contains("on") || present(false));
}));
