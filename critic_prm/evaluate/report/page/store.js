
// --- data: the index is loaded at the start, blocks of texts on demand ---------------------------------------------------------

/** Decode a script element: base64 of gzipped JSON. The element is removed, so that the data is not in memory twice. */
async function unpack(element) {
  const text = element.textContent;
  element.remove();
  const bytes = Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const ID = 0, SOURCE = 1, EXCERPT = 2, STEPS = 3, GOLD = 4, SAID = 5; // places in a row of the index
const P = 0, FIRST = 1, STATUS = 2, SPLIT = 3, TOKENS = 4, COST = 5; // places in what a run said of it

const store = {
  rows: [],
  runs: [],
  sealed: [], // blocks that are still packed
  blocks: [], // promises of blocks
  searchable: [], // lower-case text per trajectory, once its block was read for searching

  async open() {
    Object.assign(this, await unpack(byId("index")));
    this.sealed = [...document.querySelectorAll("script.block")];
    this.searchable = new Array(this.rows.length);
  },

  blockOf(number) {
    this.blocks[number] ??= unpack(this.sealed[number]);
    return this.blocks[number];
  },

  async texts(index) {
    return (await this.blockOf(Math.floor(index / this.block)))[index % this.block];
  },

  /** Make all texts searchable, one block at a time, yielding to the page between blocks. */
  async prepareSearch(progress) {
    for (let number = 0; number < this.sealed.length; number++) {
      const rows = await this.blockOf(number);
      rows.forEach((row, offset) => {
        const index = number * this.block + offset;
        this.searchable[index] = flat(row, `${this.rows[index][ID]}\n${this.rows[index][SOURCE]}`);
      });
      progress(number + 1, this.sealed.length);
      await new Promise((go) => setTimeout(go));
    }
  },
};

/** The searchable text of a trajectory, in lower case. */
function flat(row, head) {
  const parts = [head, row.problem, row.final_answer || ""];
  for (const step of row.steps) typeof step === "string" ? parts.push(step) : parts.push(...step);
  for (const run of row.runs) {
    for (const judgement of run ? run.judgements : []) for (const verdict of judgement.verdicts) parts.push(verdict[3]);
  }
  return parts.join("\n").toLowerCase();
}

// --- properties of a trajectory ------------------------------------------------------------------------------------------------

const thresholdOf = (run) => (typeof run.card.threshold === "number" ? run.card.threshold : 0.5);
const MARGIN = 0.15; // a step this near to the threshold is uncertain

const usable = (said) => said !== null && store.statuses[said[STATUS]] === "ok" && said[FIRST] !== null;
const wrong = (row, r) => row[GOLD] !== null && usable(row[SAID][r]) && row[SAID][r][FIRST] !== row[GOLD];
const right = (row, r) => row[GOLD] !== null && usable(row[SAID][r]) && row[SAID][r][FIRST] === row[GOLD];

/** The runs that are shown: the chosen one and the one it is compared with. */
const shownRuns = () => (compared() ? [view.a, view.b] : [view.a]);

/** Whether a shown run disagrees with gold or, without gold, the shown runs with each other. */
const disagrees = (row) => shownRuns().some((r) => wrong(row, r)) || (compared() && flip(row, view.a, view.b) !== "");

/** Distance of the least certain judged step from the threshold, in percent; 100 if no step was judged. */
function nearness(row, r) {
  const said = row[SAID][r];
  if (said === null) return 100;
  const threshold = 100 * thresholdOf(store.runs[r]);
  let least = 100;
  for (const p of said[P]) if (p >= 0 && Math.abs(p - threshold) < least) least = Math.abs(p - threshold);
  return least;
}

function lowest(row, r) {
  const said = row[SAID][r];
  let least = 101;
  for (const p of said === null ? [] : said[P]) if (p >= 0 && p < least) least = p;
  return least;
}

/** Difference between the decisions of two runs: "" if equal, "fixed" or "broken" by the second if there is gold, else "changed". */
function flip(row, a, b) {
  const one = row[SAID][a], other = row[SAID][b];
  if (one === null || other === null || one[FIRST] === other[FIRST]) return "";
  if (right(row, b)) return "fixed";
  return right(row, a) ? "broken" : "changed";
}
