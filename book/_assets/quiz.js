// A quiz: choosing an answer shows at once what there is to say of it. Without this file the answers are folded below each question. Nothing is stored or
// sent. Arrow keys move between the answers of a question without choosing, so that a reader at the keyboard sees no reason before the answer; Space chooses.
document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".admonition.quiz").forEach(startQuiz));
addEventListener("load", () => document.querySelector(":target.toggle-hidden .toggle-button")?.click()); // a link to an exercise, as the plan of the course has, opens it

function startQuiz(quiz) {
  const asked = [...quiz.querySelectorAll("fieldset")].map(question);
  const score = quiz.querySelector(".score");
  const make = (tag, props) => Object.assign(document.createElement(tag), props);
  const again = make("button", { type: "button", textContent: "Start again", hidden: true });
  const hint = make("p", { className: "hint", textContent: "Choose an answer: by keyboard, arrow keys move and Space chooses. What counts is your first choice." });
  quiz.querySelector(".question").before(hint);
  score.after(again);
  again.onclick = () => {
    asked.forEach((q, i) => { q.clear(); q.field.parentElement.open = !i; });
    count();
    asked[0].field.querySelector("input").focus();
  };
  asked.forEach(q => (q.changed = count));

  function count() {
    const done = asked.filter(q => q.first), next = asked.find(q => !q.first), right = done.filter(q => q.first === "right").length;
    score.textContent = !done.length ? "" : `${right} of ${asked.length} right` +
      (done.length < asked.length ? `, ${asked.length - done.length} to go.` : right === asked.length ? ": all of them." : " at the first choice.");
    again.hidden = !done.length;
    if (next) next.field.parentElement.open = true;                    // one question at a time
  }
}

function question(field) {
  const inputs = [...field.querySelectorAll("input")], told = field.querySelector(".told"), folded = field.querySelector("details");
  const reasons = [...folded.querySelectorAll("li")];
  const q = { field, first: "", changed: () => {}, clear };
  folded.hidden = true;
  const rows = reasons.map(li => {                                     // a reason moves, and is not copied: its formulas are set once
    const row = document.createElement("p");
    row.className = "reason " + li.className;
    row.hidden = true;
    row.append(...[...li.childNodes].filter(node => !node.classList?.contains("says")));
    told.append(row);
    return row;
  });
  inputs.forEach((input, i) => {
    input.checked = false;                                             // some browsers remember what was chosen before the page was left
    input.onkeydown = e => {
      const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[e.key];
      if (!step) return;
      e.preventDefault();
      inputs[(i + step + inputs.length) % inputs.length].focus();
    };
    input.onchange = () => {
      const kind = reasons[i].className;
      mark(i);
      q.first = q.first || kind;
      q.changed();
    };
  });

  function mark(chosen) {
    inputs.forEach((input, k) => {
      input.parentElement.classList.remove("right", "wrong");
      if (k === chosen) input.parentElement.classList.add(reasons[k].className);
    });
    rows.forEach((row, k) => (row.hidden = k !== chosen));
  }
  function clear() {
    inputs.forEach(input => (input.checked = false));
    q.first = "";
    mark(-1);
  }
  return q;
}
