
// --- the list: filters, sorting, pages -------------------------------------------------------------------------------------------

const PAGE = 50;
const view = { show: "all", source: "", sort: "disagree", a: 0, b: 1, query: "", page: 0, found: [], selected: -1 };

/** Whether a test holds for one of the shown runs. */
const some = (test) => (row) => shownRuns().some((r) => test(row, r));

/** The filters. Each has a name, an explanation and a test; filters that match no row are left out. */
const SHOWS = [
  { id: "all", name: "All", title: "Every trajectory", test: () => true },
  { id: "wrong", name: "Disagrees with gold", title: "The first error of a shown run is not the gold one", test: some(wrong) },
  { id: "uncertain", name: "Uncertain", title: "A step's P(correct) is within 0.15 of the threshold", test: some((row, r) => nearness(row, r) <= 100 * MARGIN) },
  { id: "split", name: "Split votes", title: "Judgements of a step disagree", test: some((row, r) => row[SAID][r] !== null && row[SAID][r][SPLIT] === 1) },
  { id: "errors", name: "Error found", title: "A shown run names a first error", test: some((row, r) => usable(row[SAID][r]) && row[SAID][r][FIRST] >= 0) },
  { id: "unusable", name: "Unusable", title: "The judgement could not be read, or is undecided", test: some((row, r) => row[SAID][r] !== null && !usable(row[SAID][r])) },
  { id: "flips", name: "Flips", title: "The two runs name different first errors", test: (row) => compared() && flip(row, view.a, view.b) !== "" },
];

const number = (x, nothing) => (x === null || x === undefined ? nothing : x);
const SORTS = [
  { id: "disagree", name: "Disagreements first", key: (row) => (disagrees(row) ? 0 : 1) },
  { id: "file", name: "File order", key: null },
  { id: "uncertain", name: "Least certain", key: (row) => nearness(row, view.a) },
  { id: "lowest", name: "Lowest P(correct)", key: (row) => lowest(row, view.a) },
  { id: "highest", name: "Highest minimum P", key: (row) => (lowest(row, view.a) > 100 ? 1 : -lowest(row, view.a)) },
  { id: "steps", name: "Most steps", key: (row) => -row[STEPS] },
  { id: "cost", name: "Most tokens", key: (row) => -number(row[SAID][view.a]?.[TOKENS], 0) },
  { id: "id", name: "Id", key: (row) => row[ID] },
];

const compared = () => view.b !== view.a && view.b < store.runs.length && store.runs[view.b].counts.trajectories > 0;

function setUpList() {
  const sources = [...new Set(store.rows.map((row) => row[SOURCE]))].filter(Boolean).sort();
  const runs = store.runs.map((run, n) => [String(n), run.name]).filter(([n]) => store.runs[n].counts.trajectories);
  view.a = runs.length ? Number(runs[0][0]) : 0;
  view.b = runs.length > 1 ? Number(runs[1][0]) : view.a;
  const selects = [];
  if (sources.length > 1) selects.push(choice("source", "Source", [["", "All sources"], ...sources.map((s) => [s, s])]));
  selects.push(choice("sort", "Sort", SORTS.map(({ id, name }) => [id, name])));
  if (runs.length > 1) {
    selects.push(choice("a", "Run", runs), choice("b", "Compare with", runs));
  }
  byId("selects").replaceChildren(...selects);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  let waiting = 0;
  byId("search").addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { view.query = event.target.value.trim().toLowerCase(); refresh(); }, 120);
  });
  byId("previous").addEventListener("click", () => turn(-1));
  byId("next").addEventListener("click", () => turn(1));
}

function choice(name, title, options) {
  const select = el("select", { id: `choose-${name}`, on: { change: (event) => {
    view[name] = name === "a" || name === "b" ? Number(event.target.value) : event.target.value;
    refresh();
    if (view.selected >= 0) showDetail(view.selected);
  } } }, options.map(([value, text]) => el("option", { value, selected: String(view[name]) === value }, text)));
  return el("label", {}, el("span", {}, title), select);
}

/** Select and sort the trajectories to show; the time this takes is recorded. */
function find() {
  const began = performance.now();
  const show = SHOWS.find(({ id }) => id === view.show), words = view.query.split(/\s+/).filter(Boolean);
  const counts = Object.fromEntries(SHOWS.map(({ id }) => [id, 0]));
  const found = [];
  store.rows.forEach((row, index) => {
    if (view.source && row[SOURCE] !== view.source) return;
    if (words.length) {
      const text = store.searchable[index] ?? `${row[ID]}\n${row[SOURCE]}\n${row[EXCERPT]}`.toLowerCase();
      if (!words.every((word) => text.includes(word))) return;
    }
    for (const one of SHOWS) if (one.test(row)) counts[one.id]++;
    if (show.test(row)) found.push(index);
  });
  const { key } = SORTS.find(({ id }) => id === view.sort);
  if (key !== null) {
    const keys = new Map(found.map((index) => [index, key(store.rows[index])]));
    found.sort((x, y) => { const a = keys.get(x), b = keys.get(y); return a < b ? -1 : a > b ? 1 : x - y; });
  }
  report.filterMilliseconds = performance.now() - began;
  return { found, counts };
}

function refresh() {
  const { found, counts } = find();
  view.found = found;
  view.page = 0;
  const possible = SHOWS.filter(({ id }) => id === "all" || id === view.show || counts[id] > 0 || everPossible(id));
  byId("chips").replaceChildren(...possible.map((show) => el("button", {
    type: "button", title: show.title, disabled: counts[show.id] === 0 && show.id !== view.show, "aria-pressed": String(show.id === view.show), "data-show": show.id,
    on: { click: () => { view.show = show.id; refresh(); byId("chips").querySelector(`[data-show=${show.id}]`)?.focus(); } },
  }, show.name, el("span", {}, count(counts[show.id])))));
  drawPage();
}

const everPossible = (id) => (id === "flips" ? compared() : id === "wrong" ? store.runs[view.a]?.counts.gold > 0 : id !== "split");

function drawPage() {
  const pages = Math.max(1, Math.ceil(view.found.length / PAGE)), first = view.page * PAGE;
  const part = view.found.slice(first, first + PAGE);
  byId("count").textContent = !view.found.length ? "Nothing fits. Take away a filter or a word."
    : view.found.length === store.rows.length ? plural(view.found.length, "trajectory", "trajectories")
    : `${count(view.found.length)} of ${plural(store.rows.length, "trajectory", "trajectories")}`;
  byId("rows").replaceChildren(...part.map(rowOf));
  byId("rows").parentElement.scrollTop = 0;
  byId("pages").hidden = pages < 2;
  byId("page").textContent = `${view.page + 1} / ${count(pages)}`;
  byId("previous").disabled = view.page === 0;
  byId("next").disabled = view.page === pages - 1;
}

function turn(by) {
  const pages = Math.ceil(view.found.length / PAGE);
  view.page = Math.min(Math.max(view.page + by, 0), Math.max(0, pages - 1));
  drawPage();
}

function rowOf(index) {
  const row = store.rows[index], said = row[SAID][view.a], two = compared();
  return el("li", {}, el("a", { href: `#t/${index}`, "aria-current": index === view.selected ? "true" : null },
    el("span", { class: "top" }, el("span", { class: "id" }, row[ID]), !two && badge(row, view.a)),
    el("span", { class: "excerpt" }, row[EXCERPT]),
    two ? shownRuns().map((r) => el("span", { class: "of-run" }, el("i", { class: `run-${r % 8}`, "aria-hidden": "true" }), strip(row, r), hidden(`${store.runs[r].name}: `), badge(row, r)))
      : strip(row, view.a),
    hidden(`${plural(row[STEPS], "step")}; ${said ? `first error: ${place(said[FIRST])}` : "not judged"}${row[GOLD] === null ? "" : `; gold: ${place(row[GOLD])}`}`)));
}

/** The outcome of one run as a single word. */
function badge(row, r) {
  const said = row[SAID][r];
  if (said === null) return el("span", { class: "badge none" }, "not in this run");
  const status = store.statuses[said[STATUS]];
  if (status !== "ok") return el("span", { class: "badge unusable" }, WORDS[status]);
  if (said[FIRST] === null) return el("span", { class: "badge unusable" }, "undecided");
  const text = said[FIRST] < 0 ? "no error" : `step ${said[FIRST] + 1}`;
  if (row[GOLD] === null) return el("span", { class: said[FIRST] < 0 ? "badge clean" : "badge error" }, text);
  const fits = said[FIRST] === row[GOLD];
  return el("span", { class: fits ? "badge fits" : "badge differs" }, fits ? `${text} ✓` : `${text}, gold ${place(row[GOLD])}`);
}

/** One cell per step, coloured by P(correct), with a ring at the critic's first error and a mark below the gold one. */
function strip(row, r) {
  const said = row[SAID][r], percents = said === null ? new Array(row[STEPS]).fill(-1) : said[P];
  return el("span", { class: "strip", "aria-hidden": "true" }, percents.slice(0, 60).map((p, step) => el("i", {
    class: [p < 0 ? "unjudged" : "", said !== null && said[FIRST] === step ? "first" : "", row[GOLD] === step ? "gold" : ""].join(" ").trim() || null,
    vars: hue(p < 0 ? null : p / 100),
  })), percents.length > 60 && el("b", {}, `+${percents.length - 60}`));
}

function showFlips(a, b) {
  view.a = a; view.b = b; view.show = "flips";
  for (const name of ["a", "b"]) if (byId(`choose-${name}`)) byId(`choose-${name}`).value = String(view[name]);
  refresh();
  location.hash = "#list";
}
