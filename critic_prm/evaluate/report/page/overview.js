
// --- overview: results of each run and differences between runs ------------------------------------------------------------------

function renderOverview() {
  const runs = store.runs.map((run, n) => ({ run, cls: `run-${n % 8}`, n }));
  show(byId("overview-view"),
    el("h1", { class: "sr" }, "Overview"),
    el("div", { class: "cards" }, runs.map(runCard)),
    comparisons(runs),
    el("div", { class: "charts" }, [subsetChart, reliabilityChart, rocChart, positionChart, spreadChart, statusChart].map((chart) => chart(runs))));
}

function runCard({ run, cls, n }) {
  const { model, style } = judgeOf(run.card), counts = run.counts, mean = run.scores?.mean || {};
  const bad = counts.trajectories - (counts.statuses.ok || 0);
  const facts = [];
  if (counts.trajectories) {
    facts.push(["Trajectories", count(counts.trajectories), `${plural(counts.steps, "step")}, ${share(counts.judged, counts.steps)} judged`]);
    facts.push(["Unusable", bad ? share(bad, counts.trajectories) : "0", bad ? plural(bad, "label") : "every label could be read"]);
  }
  if (mean.auroc?.[0] !== undefined) facts.push(["Step AUROC", decimal(mean.auroc[0]), range(mean.auroc, decimal)]);
  if (mean.ece?.[0] !== undefined) facts.push(["Calibration error", decimal(mean.ece[0]), range(mean.ece, decimal)]);
  const tokens = run.money.tokens;
  if (tokens.input + tokens.output) {
    const each = run.money.quantiles ? `median ${short(run.money.quantiles[1])} a trajectory` : "";
    facts.push(["Tokens", short(tokens.input + tokens.output), `${short(tokens.input)} in, ${short(tokens.output)} out; ${each}`]);
    facts.push(["Cost", money(run.money.cost), [run.money.cost === null ? "the model is in no price table" : "of the replies, at list prices",
      run.money.bought > 0 && `${money(run.money.bought)} paid by the run that wrote the file`].filter(Boolean).join("; ")]);
  }
  return el("section", { class: `card ${cls}`, "aria-labelledby": `run-name-${n}` },
    el("h2", { id: `run-name-${n}` }, el("i", { class: cls, "aria-hidden": "true" }), run.name),
    el("p", { class: "judge" }, [model, style].filter(Boolean).join(", ")),
    mean.f1?.[0] !== undefined && mean.f1[0] !== null && el("p", { class: "big" }, el("strong", {}, percent(mean.f1[0])),
      el("span", {}, run.scores.oracle ? "first-error F1, oracle threshold" : "first-error F1", mean.f1[1] !== null && el("br"), mean.f1[1] !== null && `95%: ${percent(mean.f1[1])} to ${percent(mean.f1[2])}`)),
    el("dl", {}, facts.map(([name, value, more]) => el("div", {}, el("dt", {}, name), el("dd", {}, el("b", {}, value), more && el("small", {}, more))))));
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
  const cell = (kind, name, said) => counts[kind] > 0 || kind === "" ? el("div", { class: kind || "alike" }, el("dt", {}, name), el("dd", {}, el("b", {}, count(counts[kind])), el("small", {}, said))) : null;
  return el("section", { class: "card pair" },
    el("h2", {}, el("i", { class: a.cls, "aria-hidden": "true" }), a.run.name, el("span", { class: "against" }, " against "), el("i", { class: b.cls, "aria-hidden": "true" }), b.run.name),
    el("p", { class: "judge" }, `${plural(both.length, "trajectory", "trajectories")} that both judged; they decide alike on ${share(counts[""], both.length)}.`,
      f1 && ` First-error F1 differs by ${signed(f1.difference)}${f1.interval.low === null ? "" : ` [${signed(f1.interval.low)}, ${signed(f1.interval.high)}]`}${f1.p === null ? "" : `, p = ${f1.p < 0.001 ? "<0.001" : f1.p.toFixed(3)}`} (the first minus the second).`),
    el("dl", {},
      cell("", "Alike", "the same first error"),
      gold && cell("fixed", "Only the second is right", "the first is not"),
      gold && cell("broken", "Only the first is right", "the second is not"),
      cell("changed", gold ? "Both wrong, differently" : "Different first errors", gold ? "or without gold" : "")),
    flips > 0 && el("button", { type: "button", on: { click: () => showFlips(a.n, b.n) } }, `See the ${plural(flips, "flip")}`));
}

const signed = (x) => (x < 0 ? "−" : "+") + Math.abs(100 * x).toFixed(1);
