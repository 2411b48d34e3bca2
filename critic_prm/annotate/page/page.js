"use strict";
// Texts are inserted as text nodes only; no code here builds markup from strings.

const byId = (id) => document.getElementById(id);

/** Create an element with attributes and children; strings become text nodes. */
function el(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const number = (n) => n.toLocaleString("en-US");
const STATES = ["undecided", "begun", "decided", "skipped"];
const DECIDED = 2, SKIPPED = 3;
const WORDS = { correct: ["✓", "Correct", "1"], incorrect: ["✗", "Incorrect", "2"], neutral: ["○", "Neutral", "3"], corrected: ["↺", "Corrected", "4"] };

let session = null;
let box = null; // the solution on the page, see `boxed`
let current = 0; // the step that keys act on
let list = { start: 0, show: "all" };
const undone = []; // changes that can be undone: [position, content before]

// --- requests -----------------------------------------------------------------------------------------------------------------

async function get(path, query) {
  return answered(await fetch(`${path}?${new URLSearchParams(query || {})}`));
}

async function post(path, body) {
  return answered(await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }));
}

async function answered(response) {
  const value = await response.json();
  if (response.ok) return value;
  throw Object.assign(new Error(value.problem || `the server answered ${response.status}`), { status: response.status, current: value.current });
}

function complain(text) {
  byId("alert").textContent = text;
  byId("alert").hidden = !text;
}

const say = (text) => { byId("said").textContent = text; };

// --- one solution and its answer --------------------------------------------------------------------------------------------------

/** A solution with what can be changed about it: marks and comments by step, a note, whether it is skipped. */
function boxed(solution) {
  const one = { ...solution, shown: {}, continued: false, changed: false, saving: null };
  accept(one, solution);
  return one;
}

/** Take over an answer as the server has it. */
function accept(one, saved) {
  const human = saved.human || {};
  one.revision = saved.revision;
  one.state = saved.state;
  one.marks = new Map((human.verdicts || []).filter((v) => v.verdict).map((v) => [v.step, v.verdict]));
  one.comments = new Map((human.verdicts || []).filter((v) => v.critique).map((v) => [v.step, v.critique]));
  one.note = human.note || "";
  one.skipped = Boolean(human.skipped);
  const first = firstError(one);
  if (first >= 0 && [...one.marks.keys()].some((step) => step > first)) one.continued = true;
}

const content = (one) => ({ marks: new Map(one.marks), comments: new Map(one.comments), note: one.note, skipped: one.skipped, continued: one.continued });

/** What is sent of an answer. */
function sent(one) {
  const steps = [...new Set([...one.marks.keys(), ...one.comments.keys()])].sort((a, b) => a - b);
  const verdicts = steps.map((step) => ({ step, verdict: one.marks.get(step) || null, critique: one.comments.get(step) || "" }));
  return { verdicts, note: one.note, skipped: one.skipped };
}

/** The first step marked incorrect; -1 without one. */
function firstError(one) {
  const wrong = [...one.marks].filter(([, verdict]) => verdict === "incorrect").map(([step]) => step);
  return wrong.length ? Math.min(...wrong) : -1;
}

/** The last step that is asked about: the first error, unless the person continues after it. */
function lastAsked(one) {
  const first = firstError(one);
  return session.all_steps || one.continued || first < 0 ? one.steps.length - 1 : first;
}

const complete = (one) => !one.skipped && Array.from({ length: lastAsked(one) + 1 }, (_, step) => step).every((step) => one.marks.has(step));

/** Change the answer, draw it and save it. */
function change(act, words) {
  undone.push([box.at, content(box)]);
  if (undone.length > 500) undone.shift();
  act();
  if (words) say(words);
  draw();
  save(box);
}

/** Save a solution's answer. Changes made meanwhile are saved after it; a failed attempt is repeated. */
function save(one) {
  one.changed = true;
  one.saving ||= saveAll(one).finally(() => { one.saving = null; });
  return one.saving;
}

async function saveAll(one) {
  while (one.changed) {
    one.changed = false;
    const body = sent(one);
    try {
      const saved = await post("mark", { at: one.at, revision: one.revision, ...body });
      Object.assign(one, { revision: saved.revision, state: saved.state });
      noted(one, saved);
      complain("");
    } catch (error) {
      if (error.status === 409) {
        const same = JSON.stringify(body) === JSON.stringify(sent(boxed(error.current)));
        Object.assign(one, { revision: error.current.revision });
        if (same) continue; // it was saved, only the reply was lost
        one.changed = false;
        taken(one, error.current, "This answer was changed in another tab. The saved one is shown; your last change was not applied.");
      } else if (error.status) {
        complain(`Not saved: ${error.message}`);
        return;
      } else {
        one.changed = true;
        complain("Not saved: the server cannot be reached. Is critic-prm annotate still running? Trying again…");
        await new Promise((done) => setTimeout(done, 1500));
      }
    }
  }
}

/** Show an answer that came from elsewhere. */
function taken(one, saved, words) {
  accept(one, saved);
  if (one === box) draw();
  if (words) complain(words);
}

/** Tell the rest of the page, and other tabs, that an answer was saved. */
function noted(one, saved) {
  progress(saved.counts);
  refreshEntry(one.at, saved.state, firstError(one));
  tabs.postMessage({ at: one.at, saved });
}

const tabs = new BroadcastChannel("critic-prm annotate " + location.pathname);
tabs.addEventListener("message", ({ data: { at, saved } }) => {
  progress(saved.counts);
  if (box && box.at === at && !box.changed && !box.saving && saved.revision > box.revision) taken(box, saved);
  refreshEntry(at, saved.state, saved.human?.first_error ?? -1);
});

// --- what a person does -----------------------------------------------------------------------------------------------------------

function mark(step, verdict) {
  if (step > lastAsked(box)) goOn();
  const again = box.marks.get(step) === verdict;
  if (again) { move(1); return; }
  change(() => {
    box.skipped = false;
    box.marks.set(step, verdict);
    if (session.all_steps || verdict !== "incorrect") return;
    for (let before = 0; before < step; before++) if (!box.marks.has(before)) box.marks.set(before, "correct");
    if (!box.continued) for (const later of [...box.marks.keys()]) if (later > step) box.marks.delete(later);
  }, `Step ${step + 1} ${verdict}.`);
  if (complete(box)) say(`Step ${step + 1} ${verdict}. ${resultOf(box)}`);
  if (step < lastAsked(box)) focusStep(step + 1);
  else { focusStep(step); if (complete(box)) byId("result").scrollIntoView({ block: "nearest" }); }
}

function clear(step) {
  if (box.marks.has(step)) change(() => box.marks.delete(step), `Step ${step + 1} not marked.`);
}

function rest() {
  const open = Array.from({ length: lastAsked(box) + 1 }, (_, step) => step).filter((step) => !box.marks.has(step));
  if (!open.length) return;
  change(() => { box.skipped = false; open.forEach((step) => box.marks.set(step, "correct")); });
  say(resultOf(box));
  focusStep(open.at(-1));
  byId("result")?.scrollIntoView({ block: "nearest" });
}

function goOn() {
  const first = firstError(box);
  if (first < 0 || first === box.steps.length - 1 || box.continued) return;
  box.continued = true;
  draw();
  focusStep(first + 1);
  say("Continue after the first error.");
}

async function skip() {
  if (!box.skipped) change(() => { box.skipped = true; }, "Skipped.");
  await next();
}

async function undo() {
  const last = undone.pop();
  if (!last) { say("Nothing to undo."); return; }
  const [at, before] = last;
  if (box.at !== at) await open(at);
  Object.assign(box, before);
  draw();
  say("Undone.");
  save(box);
}

async function next() {
  await box.saving;
  const { at, counts } = await get("next", { at: box.at });
  progress(counts);
  if (at !== null) { await open(at); return; }
  const skipped = counts[SKIPPED] ? ` ${number(counts[SKIPPED])} are skipped: choose them in the list.` : "";
  say("All solutions are decided.");
  byId("result-all")?.remove();
  byId("solution").append(el("p", { class: "result good", id: "result-all" }, `All solutions are decided or skipped. The answers are in ${session.out}; you can close this page.${skipped}`));
  byId("result-all").scrollIntoView({ block: "nearest" });
}

function step(by) {
  const to = box.at + by;
  return to >= 0 && to < session.total ? open(to) : null;
}

function move(by) {
  focusStep(Math.max(0, Math.min(box.steps.length - 1, current + by)));
}

/** Show or hide what a judge says, or the reference answer. The server notes that it was shown. */
async function reveal(what) {
  const one = box;
  if (!one.hidden.includes(what)) { say(what === "judge" ? "No judge has judged this solution." : "There is no reference answer."); return; }
  if (one.shown[what] !== undefined) delete one.shown[what];
  else {
    await one.saving;
    let saved;
    try {
      saved = await post("reveal", { at: one.at, revision: one.revision, what });
    } catch (error) {
      if (error.status !== 409) { complain(error.message); return; }
      taken(one, error.current);
      saved = await post("reveal", { at: one.at, revision: one.revision, what });
    }
    one.revision = saved.revision;
    one.shown[what] = saved.shown;
    tabs.postMessage({ at: one.at, saved });
  }
  if (one === box) draw();
  say(one.shown[what] === undefined ? "Hidden." : "Shown.");
}

// --- drawing ------------------------------------------------------------------------------------------------------------------------

function progress(counts) {
  const [, , decided, skipped] = counts;
  byId("progress").max = session.total;
  byId("progress").value = decided;
  byId("progress").textContent = `${decided} of ${session.total}`;
  byId("done").replaceChildren(`${number(decided)} of ${number(session.total)}`, el("span", { class: "wide" }, ` decided${skipped ? `, ${number(skipped)} skipped` : ""}`));
}

/** What the marks of a solution come to, in words. */
function resultOf(one) {
  if (one.skipped) return "Skipped.";
  if (!complete(one)) return "";
  const first = firstError(one);
  return first < 0 ? `No error in ${one.steps.length} ${one.steps.length === 1 ? "step" : "steps"}.` : `First error: step ${first + 1}.`;
}

function draw() {
  const one = box, last = lastAsked(one), opened = document.activeElement, result = resultOf(one);
  const focus = opened?.closest?.(".step") ? "step" : null;
  byId("solution").replaceChildren(
    el("header", { class: "head" }, el("h2", { id: "heading" }, one.id),
      el("p", {}, `${number(one.at + 1)} of ${number(session.total)}, ${one.steps.length} ${one.steps.length === 1 ? "step" : "steps"}`)),
    el("section", { class: "problem", "aria-label": "Problem" }, el("h3", {}, "Problem"), el("p", { class: "text" }, one.problem),
      one.images.map((image) => el("img", { src: image, alt: "Image of the problem" }))),
    el("h3", { class: "steps-title" }, "Steps"),
    el("ol", { class: "steps" }, one.steps.map((step, n) => [stepOf(one, step, n, n > last), n === last && bannerOf(one, result, last)])),
    el("div", { class: "below" },
      one.note || one.editing === "note" ? talk(one, "note") : el("button", { type: "button", class: "quiet start", on: { click: () => comment("note") } }, "Note on the solution ", el("kbd", {}, "n")),
      answersOf(one),
      (one.people || []).filter((p) => p.note).map((p) => el("p", { class: "opinion" }, el("span", { class: "who" }, `Note by ${p.name}`), p.note)),
      summaryOf(one.shown.judge)));
  byId("solution").setAttribute("aria-labelledby", "heading");
  for (const button of document.querySelectorAll(".actions button")) {
    const does = button.dataset.do;
    if (does === "judge") { button.hidden = !session.judged; button.setAttribute("aria-pressed", String(one.shown.judge !== undefined)); button.disabled = !one.hidden.includes("judge"); }
    if (does === "undo") button.disabled = !undone.length;
    if (does === "back") button.disabled = one.at === 0;
    if (does === "rest") button.disabled = !Array.from({ length: last + 1 }, (_, n) => n).some((n) => !one.marks.has(n));
  }
  if (focus && one.editing === undefined) focusStep(current, false);
  const area = document.querySelector("textarea");
  if (area && document.activeElement !== area) { area.focus(); area.setSelectionRange(area.value.length, area.value.length); }
}

/** What the marks come to, below the last step that is asked about. */
function bannerOf(one, result, last) {
  return result && el("li", { class: `result ${one.skipped ? "" : firstError(one) < 0 ? "good" : "bad"}`, id: "result" }, el("span", {}, result),
    el("button", { type: "button", on: { click: () => run(next) } }, "Next undecided ", el("kbd", {}, "Enter")),
    !one.skipped && last < one.steps.length - 1 && el("button", { type: "button", on: { click: goOn } }, "Continue after the error ", el("kbd", {}, "e")));
}

function stepOf(one, step, n, after) {
  const [text, observation] = typeof step === "string" ? [step, null] : step;
  const verdict = one.marks.get(n);
  const says = after ? "after the first error" : verdict || "not marked";
  return el("li", { class: `step ${verdict || ""} ${after ? "after" : ""} ${n === current ? "current" : ""}`, id: `step-${n}`, tabindex: "-1", "aria-label": `Step ${n + 1} of ${one.steps.length}, ${says}`, "aria-current": n === current ? "step" : null, on: { click: () => { if (current !== n) focusStep(n, false); } } },
    el("div", { class: "number" }, String(n + 1)),
    el("div", { class: "words" },
      one.doubt.includes(n) && el("span", { class: "doubt" }, "The critics were in doubt about this step"),
      el("p", { class: "text" }, text),
      observation !== null && observation !== undefined && el("div", { class: "observation" }, el("h4", {}, "Observation, not judged"), el("pre", {}, observation)),
      (one.comments.has(n) || one.editing === n) && talk(one, n),
      opinionsOn(one, n)),
    !after && el("div", { class: "choose", role: "group", "aria-label": `Verdict on step ${n + 1}` },
      Object.entries(WORDS).map(([value, [sign, word, key]]) =>
        el("button", { type: "button", class: value, "aria-pressed": String(verdict === value), title: `${word} (${key})`, on: { click: () => { if (verdict === value) clear(n); else mark(n, value); } } },
          el("b", { "aria-hidden": "true" }, sign), word)),
      el("button", { type: "button", class: "talk", title: "Comment (c)", "aria-label": `Comment on step ${n + 1}`, on: { click: () => comment(n) } }, "…")));
}

function opinionsOn(one, n) {
  const said = [...(one.people || []), ...(one.shown.judge || [])].flatMap((who) => {
    const verdict = (who.verdicts || []).find(([step]) => step === n), p = who.p?.[n];
    if (!verdict && (p === null || p === undefined)) return [];
    const [, value, chance, critique] = verdict || [n, null, p, ""];
    return [el("div", { class: "opinion" },
      el("p", { class: "who" }, el("span", {}, who.name), value && el("span", { class: `verdict ${value}` }, value), chance !== null && chance !== undefined && el("span", {}, `P(correct) ${chance.toFixed(2)}`)),
      critique && el("p", { class: "text" }, critique))];
  });
  return said.length > 0 && el("div", { class: "opinions" }, said);
}

/** First errors and statuses of the judges, where no step shows them. */
function summaryOf(judges) {
  return judges && el("div", { class: "opinions" }, judges.map((who) => el("p", { class: "opinion hint" },
    `${who.name}: ${who.status && who.status !== "ok" ? `unusable (${who.status})` : who.first_error === null || who.first_error === undefined ? "undecided" : who.first_error < 0 ? "no error" : `first error in step ${who.first_error + 1}`}`)));
}

function answersOf(one) {
  const reference = one.shown.reference;
  if (!one.final_answer && !one.hidden.includes("reference")) return null;
  return el("dl", { class: "answers" },
    one.final_answer && el("div", {}, el("dt", {}, "Final answer of the solution"), el("dd", {}, one.final_answer)),
    one.hidden.includes("reference") && el("div", {}, el("dt", {}, "Reference answer"), el("dd", {}, reference !== undefined ? reference : el("button", { type: "button", on: { click: () => run(() => reveal("reference")) } }, "Show ", el("kbd", {}, "r")))));
}

// --- comments -----------------------------------------------------------------------------------------------------------------------

const words = (one, where) => (where === "note" ? one.note : one.comments.get(where) || "");

/** A comment, or the field to write it. */
function talk(one, where) {
  const label = where === "note" ? "Note on the solution" : `Comment on step ${where + 1}`;
  if (one.editing !== where) return el("button", { type: "button", class: "comment", "aria-label": `${label}: ${words(one, where)}`, on: { click: () => comment(where) } }, words(one, where));
  let timer = 0;
  const write = (text) => {
    clearTimeout(timer);
    if (text === words(one, where)) return;
    if (where === "note") one.note = text;
    else if (text) one.comments.set(where, text);
    else one.comments.delete(where);
    save(one);
  };
  return el("textarea", { "aria-label": label, placeholder: `${label}. Esc or Ctrl+Enter ends it.`, rows: "2", maxlength: "20000", on: {
    input: ({ target }) => { clearTimeout(timer); timer = setTimeout(() => write(target.value), 600); },
    blur: ({ target }) => { if (one.editing === where) { delete one.editing; write(target.value); if (one === box) draw(); } },
  } }, words(one, where));
}

function comment(where) {
  undone.push([box.at, content(box)]);
  if (where !== "note") current = where;
  box.editing = where;
  draw();
}

// --- moving ---------------------------------------------------------------------------------------------------------------------------

function focusStep(n, scroll = true) {
  current = n;
  for (const item of document.querySelectorAll(".step.current")) { item.classList.remove("current"); item.removeAttribute("aria-current"); }
  const item = byId(`step-${n}`);
  if (!item) return;
  item.classList.add("current");
  item.setAttribute("aria-current", "step");
  if (document.activeElement?.tagName !== "TEXTAREA") item.focus({ preventScroll: true });
  if (scroll) item.scrollIntoView({ block: "nearest" });
}

async function open(at) {
  if (location.hash !== `#${at + 1}`) history.pushState(null, "", `#${at + 1}`);
  box = boxed(await get("solution", { at }));
  const from = firstError(box) >= 0 && !box.continued ? firstError(box) : box.steps.findIndex((_, n) => !box.marks.has(n));
  current = Math.max(0, from);
  document.body.classList.remove("listed");
  byId("to-list").setAttribute("aria-expanded", "false");
  document.title = `${box.id} · Annotate`;
  draw();
  scrollTo(0, 0);
  focusStep(current, current > 0);
  say(`Solution ${at + 1} of ${session.total}.`);
  await showInList(at);
}

async function fetched() {
  const at = Number(location.hash.slice(1)) - 1;
  await open(Number.isInteger(at) && at >= 0 && at < session.total ? at : session.first ?? 0);
}

// --- list -----------------------------------------------------------------------------------------------------------------------------

async function showInList(at) {
  const start = at - (at % session.window);
  if (list.show === "all" && start !== list.start) await drawList(start);
  for (const link of document.querySelectorAll(".rows a")) {
    const here = Number(link.dataset.at) === at;
    if (here) { link.setAttribute("aria-current", "true"); link.scrollIntoView({ block: "nearest" }); }
    else link.removeAttribute("aria-current");
  }
}

async function drawList(start) {
  const { rows, total, start: from } = await get("rows", { start, show: list.show });
  list.start = from;
  byId("rows").replaceChildren(...rows.map(entry));
  byId("count").textContent = list.show === "all" ? "" : number(total);
  const pages = Math.max(1, Math.ceil(total / session.window));
  byId("page").textContent = `${number(from / session.window + 1)} / ${number(pages)}`;
  byId("previous-page").disabled = from === 0;
  byId("next-page").disabled = from + session.window >= total;
  if (box) document.querySelector(`.rows a[data-at="${box.at}"]`)?.setAttribute("aria-current", "true");
}

function entry([at, id, excerpt, state, first, steps]) {
  const { cls, sign, word } = badge(state, first);
  return el("li", {}, el("a", { href: `#${at + 1}`, "data-at": at },
    el("span", { class: `state ${cls}`, role: "img", "aria-label": word, title: word }, sign),
    el("span", { class: "id" }, id), el("span", { class: "excerpt" }, excerpt)));
}

function badge(state, first) {
  if (state === DECIDED) return first !== null && first >= 0 ? { cls: "bad", sign: "✗", word: `first error: step ${first + 1}` } : { cls: "good", sign: "✓", word: "no error" };
  return { cls: STATES[state], sign: state === SKIPPED ? "–" : "", word: STATES[state] };
}

async function refreshEntry(at, state, first) {
  const link = document.querySelector(`.rows a[data-at="${at}"]`);
  if (!link) return;
  const { cls, sign, word } = badge(state, first);
  const mark = link.querySelector(".state");
  mark.className = `state ${cls}`;
  mark.textContent = sign;
  mark.setAttribute("aria-label", word);
  mark.title = word;
}

// --- keys -------------------------------------------------------------------------------------------------------------------------------

const KEYS = {
  1: () => mark(current, "correct"), 2: () => mark(current, "incorrect"), 3: () => mark(current, "neutral"), 4: () => mark(current, "corrected"),
  0: () => clear(current), Backspace: () => clear(current),
  j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1),
  a: rest, e: goOn, s: skip, u: undo, Enter: next, "[": () => step(-1), "]": () => step(1),
  c: () => comment(current), n: () => comment("note"), v: () => reveal("judge"), r: () => reveal("reference"),
  l: toggleList, "?": () => byId("keys").showModal(),
};
const ALWAYS = new Set(["ArrowDown", "ArrowUp", "Enter", "Backspace"]); // keys that are no characters

const ACTIONS = { back: () => step(-1), skip, undo, judge: () => reveal("judge"), rest, next };

function pressed(event) {
  if (byId("keys").open || !box) return;
  const target = event.target, typing = /^(input|select|textarea)$/i.test(target.tagName);
  if (typing) {
    if (event.key === "Escape" || (event.key === "Enter" && (event.ctrlKey || event.metaKey))) { event.preventDefault(); target.blur(); focusStep(current); }
    return;
  }
  if ((event.ctrlKey || event.metaKey) && event.key === "z") { event.preventDefault(); run(undo); return; }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") { if (document.body.classList.contains("listed")) toggleList(); focusStep(current); return; }
  if (event.key === "Enter" && target.closest("button, a, summary")) return;
  if (!byId("letters").checked && !ALWAYS.has(event.key)) return;
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  run(act);
}

/** Carry out actions one after the other: a key pressed while the next solution is being fetched is meant for that one. */
function run(act) {
  work = work.then(act).catch((error) => complain(error.status ? error.message : `The server cannot be reached (${error.message}). Is critic-prm annotate still running?`));
}

let work = Promise.resolve();

function toggleList() {
  const listed = document.body.classList.toggle("listed");
  byId("to-list").setAttribute("aria-expanded", String(listed));
  if (listed) (document.querySelector(".rows a[aria-current]") || document.querySelector(".rows a") || byId("show")).focus();
}

// --- theme and start ----------------------------------------------------------------------------------------------------------------------

const THEMES = { auto: "Auto", light: "Light", dark: "Dark" };
const dark = matchMedia("(prefers-color-scheme: dark)");
let theme = localStorage.getItem("theme") || "auto";

function paint() {
  document.documentElement.dataset.shade = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
  byId("theme").textContent = THEMES[theme];
  byId("theme").setAttribute("aria-label", `Colours: ${THEMES[theme].toLowerCase()}`);
}

function turnTheme() {
  const names = Object.keys(THEMES);
  theme = names[(names.indexOf(theme) + 1) % names.length];
  localStorage.setItem("theme", theme);
  paint();
}

async function start() {
  paint();
  dark.addEventListener("change", paint);
  session = await get("session");
  byId("source").textContent = session.source;
  byId("about").textContent = `Annotator: ${session.by}. Answers: ${session.out}. ${session.all_steps ? "Every step is asked about." : "A solution is done at its first error."}`;
  progress(session.counts);
  byId("letters").checked = localStorage.getItem("letters") !== "off";
  byId("letters").addEventListener("change", ({ target }) => localStorage.setItem("letters", target.checked ? "on" : "off"));
  byId("theme").addEventListener("click", turnTheme);
  byId("help").addEventListener("click", () => byId("keys").showModal());
  byId("to-list").addEventListener("click", toggleList);
  byId("show").addEventListener("change", ({ target }) => { list.show = target.value; target.blur(); run(() => drawList(0)); });
  byId("previous-page").addEventListener("click", () => run(() => drawList(Math.max(0, list.start - session.window))));
  byId("next-page").addEventListener("click", () => run(() => drawList(list.start + session.window)));
  for (const button of document.querySelectorAll(".actions button")) button.addEventListener("click", () => run(ACTIONS[button.dataset.do]));
  addEventListener("keydown", pressed);
  addEventListener("popstate", () => run(fetched));
  addEventListener("beforeunload", (event) => { if (box && (box.changed || box.saving)) event.preventDefault(); });
  await drawList(0);
  await fetched();
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  complain(`This page cannot be shown: ${error.message}`);
  byId("loading")?.remove();
  throw error;
});
