
// --- charts: SVG with a table of the same numbers -------------------------------------------------------------------------------

const NARROW = 400, WIDE = 600, H = 270; // widths of drawings in rows of three and of two, which give both the same scale
let W = NARROW;
const LEFT = 44, RIGHT = 14, TOP = 12, BOTTOM = 42;
const across = (x) => LEFT + x * (W - LEFT - RIGHT);
const up = (y) => H - BOTTOM - y * (H - TOP - BOTTOM);

/** A figure with heading, drawing, legend and data table. */
function figure(title, said, drawing, head, rows, key) {
  return el("figure", { class: "chart", "aria-label": title },
    el("figcaption", {}, el("h3", {}, title), said && el("p", {}, said)),
    drawing,
    key && key.length > 1 && el("ul", { class: "key" }, key.map(([name, mark]) => el("li", {}, el("i", { class: mark }), name))),
    el("details", { class: "numbers" }, el("summary", {}, "Numbers"), el("div", { class: "scroll" }, table(head, rows))));
}

function table(head, rows) {
  return el("table", {},
    el("thead", {}, el("tr", {}, head.map((text) => el("th", { scope: "col" }, text)))),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell, n) => el(n ? "td" : "th", n ? {} : { scope: "row" }, String(cell)))))));
}

function canvas(label, height, ...children) {
  return svg("svg", { viewBox: `0 0 ${W} ${height}`, role: "img", "aria-label": label }, children);
}

function axes(xTitle, yTitle, ticks = [0, 0.25, 0.5, 0.75, 1]) {
  const words = (t) => (t === 0 || t === 1 ? String(t) : String(t).replace(/^0/, ""));
  return svg("g", { class: "axes", "aria-hidden": "true" },
    ticks.map((t) => [
      svg("line", { x1: across(0), x2: across(1), y1: up(t), y2: up(t), class: t === 0 ? "base" : "grid" }),
      svg("text", { x: LEFT - 8, y: up(t) + 4, "text-anchor": "end" }, words(t)),
      svg("text", { x: across(t), y: H - BOTTOM + 17, "text-anchor": "middle" }, words(t)),
    ]),
    svg("text", { x: across(0.5), y: H - 6, "text-anchor": "middle", class: "title" }, xTitle),
    svg("text", { x: 12, y: up(0.5), "text-anchor": "middle", class: "title", transform: `rotate(-90 12 ${up(0.5)})` }, yTitle));
}

const line = (points, cls) => svg("polyline", { points: points.map(([x, y]) => `${across(x).toFixed(1)},${up(y).toFixed(1)}`).join(" "), class: `line ${cls}` });

function reliabilityChart(runs) {
  const some = runs.filter(({ run }) => run.reliability.length);
  if (!some.length) return null;
  const most = Math.max(...some.flatMap(({ run }) => run.reliability.map((bin) => bin.n)));
  const drawing = canvas("Reliability diagram; the numbers are in the table below", H,
    axes("P(correct)", "Share of correct steps"),
    svg("line", { x1: across(0), y1: up(0), x2: across(1), y2: up(1), class: "ideal" }),
    some.map(({ run, cls }) => [
      run.continuous && line(run.reliability.map((bin) => [bin.p, bin.right]), cls),
      run.reliability.map((bin) => svg("circle", { cx: across(bin.p), cy: up(bin.right), r: 3 + 5 * Math.sqrt(bin.n / most), class: `dot ${cls}` },
        svg("title", {}, `${run.name}: P(correct) ${chance(bin.p)}, correct ${chance(bin.right)}, ${plural(bin.n, "step")}`))),
    ]));
  const rows = some.flatMap(({ run }) => run.reliability.map((bin) => [run.name, chance(bin.p), chance(bin.right), count(bin.n)]));
  const points = some.some(({ run }) => !run.continuous) ? " Points without a line: scores with few values, such as votes; nothing is measured between them." : "";
  return figure("Reliability", `On the diagonal, P(correct) equals the share of correct steps. Larger dots hold more steps.${points}`, drawing,
    ["Run", "Mean P(correct)", "Correct", "Steps"], rows, some.map(({ run, cls }) => [run.name, cls]));
}

function rocChart(runs) {
  const some = runs.filter(({ run }) => run.roc.length);
  if (!some.length) return null;
  const drawing = canvas("ROC curve of finding wrong steps; areas are in the table below", H,
    axes("Share of correct steps flagged", "Share of wrong steps flagged"),
    svg("line", { x1: across(0), y1: up(0), x2: across(1), y2: up(1), class: "ideal" }),
    some.map(({ run, cls }) => line(run.roc, cls)));
  const area = ({ roc }) => roc.slice(1).reduce((sum, [x, y], n) => sum + ((x - roc[n][0]) * (y + roc[n][1])) / 2, 0);
  const at = (roc, x) => (roc.find((point) => point[0] >= x) || roc[roc.length - 1])[1];
  return figure("ROC of steps", "For every threshold on P(correct): incorrect steps found, against correct steps flagged by mistake.", drawing,
    ["Run", "Area", "Found at 5% flagged", "Found at 10%", "Found at 20%"],
    some.map(({ run }) => [run.name, decimal(area(run)), ...[0.05, 0.1, 0.2].map((x) => percent(at(run.roc, x)) + "%")]),
    some.map(({ run, cls }) => [run.name, cls]));
}

function subsetChart(runs) {
  const some = runs.filter(({ run }) => run.scores);
  const names = [...new Set(some.flatMap(({ run }) => run.scores.subsets.map((s) => s.name)))];
  const lines = names.map((name) => ({ name, of: ({ run }) => run.scores.subsets.find((s) => s.name === name)?.metrics.f1 }));
  if (names.length > 1) lines.push({ name: "mean", of: ({ run }) => run.scores.mean.f1 });
  const drawn = lines.filter((row) => some.some((one) => row.of(one)?.[0] !== null && row.of(one)?.[0] !== undefined));
  if (!drawn.length || some.every(({ run }) => run.scores.subsets.length < 2)) return null; // the cards show a single one
  const gap = 14 * some.length + 14, height = TOP + gap * drawn.length + BOTTOM, left = 130;
  const x = (v) => left + v * (W - left - RIGHT);
  const clip = (text) => (text.length > 19 ? text.slice(0, 18) + "…" : text);
  const drawing = canvas("First-error F1 by subset with 95% intervals; the numbers are in the table below", height,
    svg("g", { class: "axes", "aria-hidden": "true" }, [0, 0.25, 0.5, 0.75, 1].map((t) => [
      svg("line", { x1: x(t), x2: x(t), y1: TOP, y2: height - BOTTOM, class: t ? "grid" : "base" }),
      svg("text", { x: x(t), y: height - BOTTOM + 17, "text-anchor": "middle" }, 100 * t),
    ]), svg("text", { x: x(0.5), y: height - 6, "text-anchor": "middle", class: "title" }, "First-error F1")),
    drawn.map((row, n) => {
      const top = TOP + n * gap;
      return [
        svg("text", { x: left - 10, y: top + gap / 2 + 4, "text-anchor": "end", class: row.name === "mean" ? "name strong" : "name" }, clip(row.name), svg("title", {}, row.name)),
        some.map((one, m) => {
          const [value, low, high] = row.of(one) || [null, null, null];
          const y = top + gap / 2 + (m - (some.length - 1) / 2) * 13;
          return value !== null && [
            low !== null && svg("line", { x1: x(low), x2: x(high), y1: y, y2: y, class: `whisker ${one.cls}` }),
            svg("circle", { cx: x(value), cy: y, r: 4.5, class: `dot solid ${one.cls}` }, svg("title", {}, `${one.run.name}, ${row.name}: ${interval(row.of(one))}`)),
          ];
        }),
      ];
    }));
  const rows = drawn.flatMap((row) => some.map((one) => [row.name, one.run.name, interval(row.of(one))]));
  return figure("First-error F1 by subset", "With 95% intervals. The mean is over subsets.", drawing,
    ["Subset", "Run", "F1 [95%]"], rows, some.map(({ run, cls }) => [run.name, cls]));
}

function interval(metric, show = percent) {
  if (!metric || metric[0] === null) return "–";
  return metric[1] === null ? show(metric[0]) : `${show(metric[0])} [${show(metric[1])}, ${show(metric[2])}]`;
}

/** Grouped bars. `series` are [name, class, numbers]. */
function bars(title, said, xTitle, labels, series, every = 1) {
  const most = Math.max(1, ...series.flatMap(([, , numbers]) => numbers));
  const step = (W - LEFT - RIGHT) / labels.length, wide = Math.min((step * 0.8) / series.length, 44);
  const top = niceTop(most);
  const drawing = canvas(`${title}; the numbers are in the table below`, H,
    svg("g", { class: "axes", "aria-hidden": "true" }, [0, 0.5, 1].map((t) => [
      svg("line", { x1: LEFT, x2: W - RIGHT, y1: up(t), y2: up(t), class: t ? "grid" : "base" }),
      svg("text", { x: LEFT - 8, y: up(t) + 4, "text-anchor": "end" }, short(Math.round(t * top * 10) / 10)),
    ]),
    labels.map((text, n) => n % every === 0 && svg("text", { x: LEFT + (n + 0.5) * step, y: H - BOTTOM + 17, "text-anchor": "middle" }, text)),
    svg("text", { x: across(0.5), y: H - 6, "text-anchor": "middle", class: "title" }, xTitle)),
    series.map(([name, cls, numbers], s) => numbers.map((n, i) => n > 0 && svg("rect", {
      x: (LEFT + (i + 0.5) * step + (s - series.length / 2) * wide).toFixed(1), y: up(n / top).toFixed(1), width: Math.max(1, wide - 1).toFixed(1),
      height: (up(0) - up(n / top)).toFixed(1), rx: 1.5, class: `bar-of ${cls}`,
    }, svg("title", {}, `${name}, ${labels[i]}: ${count(n)}`)))));
  return figure(title, said, drawing, [xTitle, ...series.map(([name]) => name)],
    labels.map((text, i) => [text, ...series.map(([, , numbers]) => count(numbers[i]))]), series.map(([name, cls]) => [name, cls]));
}

/** A round, even upper limit of an axis, at least `most`. */
function niceTop(most) {
  if (most <= 10) return 2 * Math.ceil(most / 2);
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 3, 4, 5, 6, 8, 10].map((n) => n * power).find((n) => n >= most);
}

function positionChart(runs) {
  const some = runs.filter(({ run }) => run.counts.trajectories);
  if (!some.length) return null;
  const series = some.map(({ run, cls }) => [run.name, cls, run.positions.said]);
  const gold = some.find(({ run }) => run.positions.gold);
  if (gold) series.push(["gold", "gold", gold.run.positions.gold]);
  const all = some[0].run.positions.said.length, last = Math.max(0, ...series.map(([, , numbers]) => numbers.findLastIndex((n) => n > 0)));
  if (!series.some(([, , numbers]) => numbers.some((n) => n > 0))) return null;
  const labels = Array.from({ length: last + 1 }, (_, n) => (n === all - 1 ? `${n + 1}+` : String(n + 1)));
  const cut = series.map(([name, cls, numbers]) => [name, cls, numbers.slice(0, labels.length)]);
  return bars("Position of the first error", "Solutions by the step of their first error; those without one are left out.", "Step", labels, cut);
}

function spreadChart(runs) {
  const some = runs.filter(({ run }) => run.counts.judged);
  if (!some.length) return null;
  const bins = some[0].run.spread.length;
  const labels = some[0].run.spread.map((_, n) => String(Number((n / bins).toFixed(2))).replace(/^0(?=.)/, ""));
  return bars("Confidence", "Steps by P(correct).", "P(correct), from", labels,
    some.map(({ run, cls }) => [run.name, cls, run.spread]), 4);
}

function statusChart(runs) {
  const some = runs.filter(({ run }) => run.counts.trajectories);
  if (!some.length) return null;
  const names = [...new Set(some.flatMap(({ run }) => Object.keys(run.counts.statuses)))];
  if (names.join() === "ok") return null; // the cards say that every label could be read
  const gap = 46, height = TOP + gap * some.length + 4;
  const drawing = canvas("Labels by status; the numbers are in the table below", height, some.map(({ run }, n) => {
    let x = 0;
    return [
      svg("text", { x: 0, y: TOP + n * gap + 8, class: "name" }, run.name.length > 46 ? run.name.slice(0, 45) + "…" : run.name),
      names.map((status) => {
        const part = (run.counts.statuses[status] || 0) / run.counts.trajectories, width = part * W;
        const bar = part > 0 && svg("rect", { x: x.toFixed(1), y: TOP + n * gap + 15, width: Math.max(width, 2).toFixed(1), height: 14, rx: 2, class: `status ${status}` },
          svg("title", {}, `${run.name}, ${WORDS[status]}: ${count(run.counts.statuses[status])}`));
        x += width;
        return bar;
      }),
    ];
  }));
  return figure("Status", "Labels by status. An unusable judgement has no score; nothing is imputed.", drawing,
    ["Status", ...some.map(({ run }) => run.name)],
    names.map((status) => [WORDS[status] || status, ...some.map(({ run }) => `${count(run.counts.statuses[status] || 0)} (${share(run.counts.statuses[status] || 0, run.counts.trajectories)})`)]),
    names.map((status) => [WORDS[status] || status, `status ${status}`]));
}
