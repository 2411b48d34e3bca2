
// --- elements -----------------------------------------------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";

/** Create an element with attributes and children; strings become text nodes. */
function el(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (key === "vars") for (const [property, text] of Object.entries(value)) node.style.setProperty(property, text);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
  return node;
}

/** Replace the children of an element. */
function show(node, ...children) {
  node.replaceChildren();
  return fill(node, {}, children);
}

const byId = (id) => document.getElementById(id);
const hidden = (text) => el("span", { class: "sr" }, text);

// --- formatting of numbers and labels -----------------------------------------------------------------------------------------

const count = (n) => n.toLocaleString("en-US");
const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many || one + "s"}`;
const percent = (x) => (x === null || x === undefined ? "–" : (100 * x).toFixed(1));
const decimal = (x) => (x === null || x === undefined ? "–" : x.toFixed(3));
const share = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(part === whole ? 0 : 1)}%` : "–");
/** A probability with two digits; one that is not exactly 0 or 1 is not shown as if it were. */
const chance = (p) => (p === null ? "–" : p > 0 && p < 0.005 ? "<0.01" : p < 1 && p >= 0.995 ? ">0.99" : p.toFixed(2));
const short = (n) => (n >= 1e6 ? `${(n / 1e6).toFixed(1)}M` : n >= 1e4 ? `${Math.round(n / 1e3)}k` : count(n));

function money(usd) {
  if (usd === null || usd === undefined) return "price unknown";
  return usd === 0 ? "$0" : usd < 0.01 ? `$${usd.toFixed(4)}` : `$${usd.toFixed(2)}`;
}

/** An ISO date in UTC as "22 Nov 2026, 14:05 UTC"; as it is if it cannot be read. */
function day(text) {
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return text;
  const [on, at] = [{ day: "numeric", month: "short", year: "numeric" }, { hour: "2-digit", minute: "2-digit" }];
  return `${date.toLocaleDateString("en-GB", { ...on, timeZone: "UTC" })}, ${date.toLocaleTimeString("en-GB", { ...at, timeZone: "UTC" })} UTC`;
}

/** Colours for a P(correct): `--end` is the colour of the nearer verdict, `--sure` its strength, from 0 at one half to 1. */
function hue(p) {
  return p === null ? null : { "--p": p.toFixed(3), "--end": p < 0.5 ? "var(--bad)" : "var(--good)", "--sure": Math.abs(2 * p - 1).toFixed(3) };
}

/** A first error as text. Steps are 1-based on the page and 0-based in files. */
function place(first) {
  return first === null ? "undecided" : first < 0 ? "no error" : `step ${first + 1}`;
}

const WORDS = {
  ok: "usable",
  truncated: "truncated",
  count_mismatch: "steps miscounted",
  unparseable: "unreadable",
  refused: "refused",
  provider_error: "provider error",
};

/** A short name of the critic. */
function judgeOf(card) {
  const names = [card.provider, card.model].filter((name, n, all) => name && !(n === 0 && all[1] === name));
  const model = names.join("/") || "unnamed critic";
  return { model, style: card.style ? `style ${card.style}` : card.student ? `${card.student} student` : "" };
}
