
// --- the page ------------------------------------------------------------------------------------------------------------------------

const THEMES = { auto: "Theme: auto", light: "Theme: light", dark: "Theme: dark" };

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  byId("theme").textContent = THEMES[name];
}

/** Show the view given by the URL fragment: #overview, #list or #t/NUMBER. */
async function route() {
  const [where, which] = location.hash.slice(1).split("/"), index = Number(which);
  const one = where === "t" && Number.isInteger(index) && index >= 0 && index < store.rows.length;
  const list = store.rows.length > 0 && (one || where === "list");
  byId("overview-view").hidden = list;
  byId("list-view").hidden = !list;
  byId("list-view").classList.toggle("reading", one);
  for (const [link, here] of [["to-overview", !list], ["to-list", list]]) {
    if (here) byId(link).setAttribute("aria-current", "page");
    else byId(link).removeAttribute("aria-current");
  }
  if (one) {
    await showDetail(index);
    if (matchMedia("(max-width: 899px)").matches) { scrollTo(0, 0); byId("detail").focus({ preventScroll: true }); }
  } else if (list && view.selected < 0 && view.found.length && matchMedia("(min-width: 900px)").matches) {
    await showDetail(view.found[0]);
  }
}

function move(by) {
  const at = view.found.indexOf(view.selected), to = at < 0 ? view.page * PAGE : at + by;
  if (to < 0 || to >= view.found.length) return;
  if (Math.floor(to / PAGE) !== view.page) { view.page = Math.floor(to / PAGE); drawPage(); }
  location.hash = `#t/${view.found[to]}`;
  const link = byId("rows").children[to % PAGE]?.firstChild;
  link?.scrollIntoView({ block: "nearest" });
  if (byId("rows").contains(document.activeElement)) link?.focus({ preventScroll: true });
}

/** Arrows choose a trajectory, except in the trajectory itself, which they scroll. */
function arrow(by) {
  const reading = byId("detail").contains(document.activeElement) || byId("list-view").classList.contains("reading") && matchMedia("(max-width: 899px)").matches;
  return !byId("list-view").hidden && !reading && (() => move(by));
}

const KEYS = {
  j: () => move(1), k: () => move(-1), "[": () => turn(-1), "]": () => turn(1),
  o: () => { location.hash = "#overview"; }, t: () => { location.hash = "#list"; },
  "/": () => { if (byId("list-view").hidden) location.hash = "#list"; setTimeout(() => byId("search").focus()); },
  "?": () => byId("keys").showModal(),
  c: () => { const all = [...document.querySelectorAll(".critiques")], open = all.some((one) => !one.open); all.forEach((one) => { one.open = open; }); },
  Escape: () => { if (byId("list-view").classList.contains("reading")) location.hash = "#list"; },
};

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  const typing = /^(input|select|textarea)$/i.test(event.target.tagName);
  if (typing) { if (event.key === "Escape") event.target.blur(); return; }
  const show = /^[1-9]$/.test(event.key) && byId("chips").children[Number(event.key) - 1];
  const act = event.key === "ArrowDown" ? arrow(1) : event.key === "ArrowUp" ? arrow(-1) : KEYS[event.key] || (show && !byId("list-view").hidden && (() => show.click()));
  if (!act) return;
  event.preventDefault();
  act();
}

async function start() {
  setTheme("auto");
  byId("theme").addEventListener("click", () => {
    const names = Object.keys(THEMES);
    setTheme(names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length]);
  });
  byId("help").addEventListener("click", () => byId("keys").showModal());
  byId("skip").addEventListener("click", (event) => { event.preventDefault(); (byId("list-view").hidden ? byId("main") : byId("detail")).focus(); });
  byId("rows").addEventListener("click", (event) => { if (event.detail === 0 && event.target.closest("a")) setTimeout(() => byId("detail").focus()); }); // Enter
  await store.open();
  byId("loading").remove();
  byId("to-list").hidden = !store.rows.length;
  setUpList();
  renderOverview();
  WIDE_SCREEN.addEventListener("change", renderOverview);
  refresh();
  addEventListener("hashchange", route);
  addEventListener("keydown", pressed);
  addEventListener("beforeprint", () => document.querySelectorAll(".critiques").forEach((one) => { one.open = true; }));
  await route();
  report.openMilliseconds = performance.now();
  document.documentElement.dataset.ready = "open";
  const search = byId("search"), words = search.placeholder;
  await store.prepareSearch((done, all) => { search.placeholder = done < all ? `Reading texts, ${Math.round((100 * done) / all)}%` : words; });
  if (view.query) refresh();
  document.documentElement.dataset.ready = "searchable";
}

start().catch((error) => {
  const notice = byId("loading") || document.body.appendChild(el("p", { class: "notice" }));
  notice.textContent = `This report cannot be shown: ${error}. It needs a browser of 2023 or later.`;
  throw error;
});
