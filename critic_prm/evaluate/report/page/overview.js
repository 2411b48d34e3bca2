
// --- overview: results of each run and differences between runs ------------------------------------------------------------------

const WIDE_SCREEN = matchMedia("(min-width: 1100px)"); // as in page.css
const CHARTS = [subsetChart, reliabilityChart, rocChart, positionChart, spreadChart, statusChart];

function renderOverview() {
  const runs = store.runs.map((run, n) => ({ run, cls: `run-${n % 8}`, n }));
  show(byId("overview-view"),
    heading(),
    el("div", { class: "cards" }, runs.map(runCard)),
    comparisons(runs),
    charts(runs));
}

/** The charts that have data, in rows of three and of two, so that no row has a gap. */
function charts(runs) {
  const drawn = CHARTS.filter((chart) => chart(runs)), left = drawn.length % 3;
  const wide = left === 0 || !WIDE_SCREEN.matches ? 0 : left === 2 ? 2 : Math.min(drawn.length, 4);
  return el("div", { class: `charts${drawn.length === 1 ? " single" : ""}` }, drawn.map((chart, n) => {
    W = n < wide ? WIDE : NARROW;
    const figure = chart(runs);
    if (n < wide) figure.classList.add("wide");
    return figure;
  }));
}

/** The title of the report, what is in it, and when and how it was made. */
function heading() {
  const { at, by, command } = store.made, gold = store.rows.filter((row) => row[GOLD] !== null).length;
  const size = [plural(store.runs.length, "run"), store.rows.length && plural(store.rows.length, "trajectory", "trajectories"), store.rows.length && `${count(gold)} with gold labels`];
  return el("header", { class: "report-head" },
    el("h1", {}, byId("title").textContent),
    el("p", {}, size.filter(Boolean).join(" · ")),
    (at || by) && el("p", {}, `Report made ${at && day(at)}${by && ` by ${by}`}`),
    command && el("p", {}, el("code", {}, command)));
}

function runCard({ run, cls, n }) {
  const { model, style } = judgeOf(run.card), counts = run.counts, mean = run.scores?.mean || {};
  const bad = counts.trajectories - (counts.statuses.ok || 0);
  const facts = [];
  if (counts.trajectories) {
    facts.push(["Trajectories", count(counts.trajectories), `${plural(counts.steps, "step")}, ${share(counts.judged, counts.steps)} judged`]);
    facts.push(["Unusable", bad ? share(bad, counts.trajectories) : "0", bad ? plural(bad, "label") : "all labels readable"]);
  }
  if (mean.auroc?.[0] !== undefined) facts.push(["Step AUROC", decimal(mean.auroc[0]), range(mean.auroc, decimal)]);
  if (mean.ece?.[0] !== undefined) facts.push(["Calibration error", decimal(mean.ece[0]), range(mean.ece, decimal)]);
  return el("section", { class: `card ${cls}`, "aria-labelledby": `run-name-${n}` },
    el("h2", { id: `run-name-${n}` }, el("i", { class: cls, "aria-hidden": "true" }), run.name),
    el("p", { class: "judge" }, [model, style].filter(Boolean).join(", ")),
    mean.f1?.[0] !== undefined && mean.f1[0] !== null && [
      el("p", { class: "big" }, el("strong", {}, percent(mean.f1[0])),
        el("span", {}, run.scores.oracle ? "first-error F1, oracle threshold" : "first-error F1", mean.f1[1] !== null && el("br"), mean.f1[1] !== null && `95%: ${percent(mean.f1[1])} to ${percent(mean.f1[2])}`)),
      el("p", { class: "meaning" }, meaningOf(mean))],
    facts.length > 0 && el("dl", { class: "facts-grid" }, facts.map(([name, value, more]) => el("div", {}, el("dt", {}, name), el("dd", {}, el("b", {}, value), more && el("small", {}, more))))),
    el("dl", { class: "origin" }, originOf(run).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))));
}

/** What first-error F1 is the mean of, and what is good. */
function meaningOf(mean) {
  const [found, kept] = [mean.accuracy_erroneous?.[0], mean.accuracy_correct?.[0]];
  const parts = typeof found === "number" && typeof kept === "number";
  return `Harmonic mean of first errors found exactly${parts ? ` (${percent(found)}%)` : ""} and correct solutions accepted${parts ? ` (${percent(kept)}%)` : ""}. Best is 100; a critic that never finds an error gets 0.`;
}

/** Where the labels of a run come from and what they cost. */
function originOf(run) {
  const { file, date, command, input, samples, sampling } = run.origin, { tokens, cost, bought, quantiles } = run.money;
  const facts = [["Input", input], ["Command", command && el("code", {}, command)], ["File", file], ["Date", date && day(date)]];
  if (samples) facts.push(["Samples", `${samples[0] === samples[1] ? count(samples[0]) : `${samples[0]} to ${samples[1]}`} per trajectory${Object.keys(sampling).length ? `; ${Object.entries(sampling).map(([k, v]) => `${k} ${v}`).join(", ")}` : ""}`]);
  if (run.scores) facts.push(["Intervals", `95%, ${count(run.origin.resamples)} resamples of problems; first errors by ${run.scores.words || "the critic's own verdicts"}`]);
  if (tokens.input + tokens.output) {
    facts.push(["Tokens", `${short(tokens.input)} in, ${short(tokens.output)} out${quantiles ? `; median ${short(quantiles[1])} per trajectory` : ""}`]);
    facts.push(["Cost", [cost === null ? "price unknown: the model is in no price table" : `${money(cost)} at list prices`,
      typeof bought === "number" && `${money(bought)} paid by the run that wrote the file`].filter(Boolean).join("; ")]);
  } else facts.push(["Cost", run.origin.replies ? "unknown: the replies report no tokens" : "none: computed locally"]);
  return facts.filter(([, value]) => value);
}

const range = (metric, show) => (metric[1] === null ? "" : `95%: ${show(metric[1])} to ${show(metric[2])}`);

/** For each pair of runs with common trajectories: how often they agree, and which is right when they disagree. */
function comparisons(runs) {
  const pairs = [];
  for (const a of runs) for (const b of runs) if (a.n < b.n && a.run.counts.trajectories && b.run.counts.trajectories) pairs.push([a, b]);
  const shown = pairs.map(([a, b]) => comparison(a, b)).filter(Boolean);
  return shown.length ? el("div", { class: "pairs" }, shown) : null;
}

function comparison(a, b) {
  const both = store.rows.filter((row) => row[SAID][a.n] !== null && row[SAID][b.n] !== null);
  if (!both.length) return null;
  const counts = { "": 0, fixed: 0, broken: 0, changed: 0 };
  for (const row of both) counts[flip(row, a.n, b.n)]++;
  const gold = both.some((row) => row[GOLD] !== null), flips = both.length - counts[""];
  const f1 = store.differences.find((one) => one.a === a.n && one.b === b.n);
  const parts = [
    ["same", counts[""], "Same first error"],
    ["a-right", counts.broken, `Only ${a.run.name} correct`],
    ["b-right", counts.fixed, `Only ${b.run.name} correct`],
    ["different", counts.changed, gold ? "Different, neither correct" : "Different first errors"],
  ].filter(([kind, n]) => n > 0 || kind === "same");
  return el("section", { class: "card pair" },
    el("h2", {}, el("i", { class: a.cls, "aria-hidden": "true" }), a.run.name, el("span", { class: "against" }, " compared with "), el("i", { class: b.cls, "aria-hidden": "true" }), b.run.name),
    el("p", { class: "judge" }, `${plural(both.length, "trajectory", "trajectories")} judged by both; they agree on ${share(counts[""], both.length)}.`,
      f1 && ` First-error F1 differs by ${signed(f1.difference)}${f1.interval.low === null ? "" : ` [${signed(f1.interval.low)}, ${signed(f1.interval.high)}]`}${f1.p === null ? "" : `, p ${f1.p < 0.001 ? "< 0.001" : `= ${f1.p.toFixed(3)}`}`} (${a.run.name} minus ${b.run.name}).`),
    el("p", { class: "outcome", "aria-hidden": "true" }, parts.map(([kind, n]) => n > 0 && el("i", { class: `${kind}${kind === "a-right" ? ` ${a.cls}` : kind === "b-right" ? ` ${b.cls}` : ""}`, vars: { "--n": n } }))),
    el("dl", {}, parts.map(([kind, n, name]) => el("div", {},
      el("dt", {}, el("i", { class: `${kind}${kind === "a-right" ? ` ${a.cls}` : kind === "b-right" ? ` ${b.cls}` : ""}`, "aria-hidden": "true" }), name), el("dd", {}, el("b", {}, count(n)), el("small", {}, share(n, both.length)))))),
    flips > 0 && el("button", { type: "button", on: { click: () => showFlips(a.n, b.n) } }, `See the ${plural(flips, "difference")}`));
}

const signed = (x) => (x < 0 ? "−" : "+") + Math.abs(100 * x).toFixed(1);
