
// --- one trajectory ----------------------------------------------------------------------------------------------------------------

async function showDetail(index) {
  const row = store.rows[index];
  view.selected = index;
  for (const link of document.querySelectorAll(".rows a")) {
    if (link.getAttribute("href") === `#t/${index}`) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  const texts = await store.texts(index);
  if (view.selected !== index) return; // another one was chosen meanwhile
  const shown = [view.a, ...(compared() ? [view.b] : [])].filter((r) => row[SAID][r] !== null);
  const detail = byId("detail");
  show(detail,
    el("a", { href: "#list", class: "back" }, "← All trajectories"),
    el("header", {}, el("h2", {}, row[ID]),
      el("ul", { class: "facts" },
        row[SOURCE] && el("li", {}, row[SOURCE]),
        el("li", {}, plural(row[STEPS], "step")),
        row[GOLD] !== null && el("li", {}, `gold: ${place(row[GOLD])}`),
        shown.map((r) => el("li", {}, el("i", { class: `run-${r % 8}`, "aria-hidden": "true" }), shown.length > 1 && `${store.runs[r].name}: `, badge(row, r))))),
    el("section", { class: "problem" }, el("h3", {}, "Problem"), el("p", { class: "text" }, texts.problem)),
    el("h3", { class: "steps-title" }, "Steps", shown.length > 0 && legend()),
    el("ol", { class: "steps" }, texts.steps.map((step, n) => stepOf(row, texts, shown, step, n))),
    answers(texts),
    shown.map((r) => judgementsOf(row, texts, r)),
    texts.meta && el("details", { class: "more" }, el("summary", {}, "Other fields"), el("pre", {}, JSON.stringify(texts.meta, null, 2))));
  detail.scrollTop = 0;
}

const legend = () => el("span", { class: "legend" }, "wrong", el("i", { "aria-hidden": "true" }), "right");

function stepOf(row, texts, shown, step, n) {
  const [text, observation] = typeof step === "string" ? [step, null] : step;
  const main = shown[0], p = main === undefined ? null : texts.runs[main].p[n];
  const first = shown.filter((r) => row[SAID][r][FIRST] === n), gold = goldWord(texts.gold[n], row[GOLD] === n);
  return el("li", { class: `step${p === null ? " unjudged" : ""}${first.length ? " first" : ""}`, vars: hue(p) },
    el("div", { class: "gutter" }, hidden("Step "), el("b", {}, String(n + 1))),
    el("div", { class: "body" },
      (first.length > 0 || gold) && el("p", { class: "marks" },
        first.map((r) => el("span", { class: "mark-first" }, shown.length > 1 && el("i", { class: `run-${r % 8}`, "aria-hidden": "true" }), shown.length > 1 ? `first error by ${store.runs[r].name}` : "first error")),
        gold && el("span", { class: `mark-gold ${gold.cls}` }, gold.text)),
      el("p", { class: "text" }, text),
      observation !== null && el("div", { class: "observation" }, el("h4", {}, "Observation, not judged"), el("pre", {}, observation)),
      critiquesOf(texts, shown, n, row)),
    el("div", { class: "scores" }, shown.map((r) => scoreOf(texts.runs[r], r, n, shown.length > 1))));
}

function goldWord(value, first) {
  if (first) return { cls: "wrong", text: "gold: first error" };
  if (value === null || value === undefined) return null;
  if (value === "neutral" || value === "corrected") return { cls: "", text: `gold: ${value}` };
  return value < 0.5 ? { cls: "wrong", text: "gold: wrong" } : null;
}

function scoreOf(run, r, n, named) {
  const p = run.p[n], [k, all] = run.votes[n];
  return el("div", { class: `score${p === null ? " unjudged" : ""}`, vars: hue(p) },
    named && el("i", { class: `run-${r % 8}`, role: "img", "aria-label": store.runs[r].name }),
    el("span", { class: "p" }, hidden(p === null ? "not judged" : "P(correct) "), p === null ? el("span", { "aria-hidden": "true" }, "–") : chance(p)),
    p !== null && el("span", { class: "meter", "aria-hidden": "true" }),
    all > 1 && el("small", {}, `${k} of ${all}`, hidden(" votes say correct")));
}

/** The critiques of a step: expanded at the first error and at incorrect steps, otherwise collapsed. */
function critiquesOf(texts, shown, n, row) {
  const said = shown.flatMap((r) => texts.runs[r].judgements.flatMap((judgement) =>
    judgement.verdicts.filter((verdict) => verdict[0] === n && verdict[3]).map((verdict) => ({ r, judgement, verdict }))));
  if (!said.length) return null;
  const matters = shown.some((r) => row[SAID][r][FIRST] === n) || said.some(({ verdict }) => verdict[1] === "incorrect") || row[GOLD] === n;
  return el("details", { class: "critiques", open: matters },
    el("summary", {}, plural(said.length, "critique")),
    said.map(({ r, judgement, verdict }) => el("blockquote", { class: verdict[1] },
      el("p", { class: "who" }, el("span", { class: `verdict ${verdict[1]}` }, verdict[1]),
        shown.length > 1 && el("span", {}, el("i", { class: `run-${r % 8}`, "aria-hidden": "true" }), store.runs[r].name),
        judgement.judge && el("span", {}, judgement.judge),
        texts.runs[r].judgements.length > 1 && el("span", {}, `sample ${judgement.sample + 1}`),
        verdict[2] !== null && el("span", {}, `P ${chance(verdict[2])}`)),
      el("p", { class: "text" }, verdict[3]))));
}

function answers(texts) {
  if (texts.final_answer === undefined && texts.gold_answer === undefined) return null;
  return el("dl", { class: "answers" },
    texts.final_answer !== undefined && el("div", {}, el("dt", {}, "Final answer"), el("dd", {}, texts.final_answer)),
    texts.gold_answer !== undefined && el("div", {}, el("dt", {}, "Gold answer"), el("dd", {}, texts.gold_answer)));
}

function judgementsOf(row, texts, r) {
  const { judgements } = texts.runs[r], cost = row[SAID][r][COST];
  if (!judgements.length) return null;
  const tokens = row[SAID][r][TOKENS];
  const head = ["#", "Judge", "Status", "First error", "How", "Tokens in / out", "Reply"];
  const rows = judgements.map((j) => [j.sample + 1, j.judge || judgeOf(store.runs[r].card).model, WORDS[j.status] || j.status, j.status === "ok" ? place(j.first) : "–",
    [...j.how, ...j.notes].join("; ") || "–", j.tokens ? `${count(j.tokens[0])} / ${count(j.tokens[2])}` : "–", j.keys.join(" ") || "–"]);
  return el("details", { class: "more", open: judgements.some((j) => j.status !== "ok") },
    el("summary", {}, `${plural(judgements.length, "judgement")} of ${store.runs[r].name}`, tokens > 0 && el("small", {}, `${count(tokens)} tokens, ${money(cost)}`)),
    el("div", { class: "scroll" }, table(head, rows)));
}
