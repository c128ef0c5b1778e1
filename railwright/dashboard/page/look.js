// The appearance of a gang: a colour, a pattern and a letter, so that gangs differ without colour too. Also
// elements with text, and ages as short text, "2 min ago", with the absolute time in the title, which stay current.

const HUES = [212, 28, 145, 285, 48, 352, 178, 318, 95, 245, 12, 195];
const PATTERNS = 6; // 12 colours by 6 patterns: 72 gangs before any two differ in the letter only
const TILE = 8; // pixels of a pattern's side

/** A gang's colour in CSS. */
export function getColour(index, strength = 1) {
  const dark = darkScheme.matches;
  const hue = HUES[index % HUES.length];
  return `hsl(${hue} ${dark ? 65 : 68}% ${dark ? 62 : 42}% / ${strength})`;
}

const fills = new Map();

/** The fill of a gang's cell: its colour, tinted, with its pattern. */
export function getFill(context, index) {
  const key = `${index % (HUES.length * PATTERNS)} ${darkScheme.matches}`;
  if (!fills.has(key)) fills.set(key, paintPattern(context, index));
  return fills.get(key);
}

function paintPattern(context, index) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = TILE;
  const pen = tile.getContext("2d");
  pen.fillStyle = getColour(index, darkScheme.matches ? 0.3 : 0.2);
  pen.fillRect(0, 0, TILE, TILE);
  pen.strokeStyle = pen.fillStyle = getColour(index, 0.45);
  pen.lineWidth = 1.4;
  PAINTERS[getPattern(index)](pen);
  return context.createPattern(tile, "repeat");
}

function getPattern(index) {
  return Math.floor(index / HUES.length) % PATTERNS;
}

function paintLines(pen, ...points) {
  pen.beginPath();
  for (let start = 0; start < points.length; start += 4) {
    pen.moveTo(points[start], points[start + 1]);
    pen.lineTo(points[start + 2], points[start + 3]);
  }
  pen.stroke();
}

const PAINTERS = [
  () => {},
  (pen) => paintLines(pen, -2, 6, 6, -2, 2, 10, 10, 2),
  (pen) => paintLines(pen, -2, 2, 6, 10, 2, -2, 10, 6),
  (pen) => pen.fillRect(2, 2, 3, 3),
  (pen) => paintLines(pen, 0, 4, 8, 4),
  (pen) => paintLines(pen, 4, 0, 4, 8, 0, 4, 8, 4),
];

export const darkScheme = matchMedia("(prefers-color-scheme: dark)");

/** A count with its noun in singular or plural: `1 leaf`, `3 pods`. */
export function formatCount(count, noun) {
  const plural = noun === "leaf" ? "leaves" : `${noun}s`;
  return `${count.toLocaleString("en-US")} ${count === 1 ? noun : plural}`;
}

/** Build an element with text, never with markup. */
export function build(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== undefined) element.setAttribute(key, String(value));
  }
  element.append(...children.filter((child) => child !== undefined && child !== ""));
  return element;
}

/** Build a button that looks like a link. */
export function buildLink(text, choose) {
  const link = build("button", { type: "button", class: "link" }, text);
  link.addEventListener("click", choose);
  return link;
}

/** Build a table with a head. Cells are elements, or values for one. `role` is explicit where CSS changes the layout. */
export function buildTable(heads, rows, attributes = {}) {
  const head = build("tr", {}, ...heads.map((text) => build("th", { scope: "col" }, text)));
  const body = rows.map((cells) => (cells instanceof Element ? cells : build("tr", {}, ...cells.map(buildCell))));
  return build("table", attributes, build("thead", {}, head), build("tbody", {}, ...body));
}

function buildCell(content) {
  return content instanceof HTMLTableCellElement ? content : build("td", {}, content);
}

/** Build a gang's badge: its letter on its colour and pattern. */
export function buildBadge(index, letter) {
  const badge = build("span", { class: "badge", "data-pattern": getPattern(index), "aria-hidden": "true" }, letter);
  badge.style.setProperty("--gang", getColour(index));
  return badge;
}

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** The time between two moments as one number with a unit; hours up to two days. */
export function formatDuration(seconds) {
  const whole = Math.max(0, Math.floor(seconds)); // the clock of this machine may be behind that of the cluster
  if (whole < MINUTE) return `${whole} s`;
  if (whole < HOUR) return `${Math.floor(whole / MINUTE)} min`;
  if (whole < 2 * DAY) return `${Math.floor(whole / HOUR)} h`;
  return `${Math.floor(whole / DAY)} d`;
}

/** The seconds from one RFC 3339 time to another, or to now; undefined if one is missing or invalid. */
export function measureSeconds(from, to) {
  const start = Date.parse(from ?? "");
  const end = to === undefined ? Date.now() : Date.parse(to);
  return Number.isNaN(start) || Number.isNaN(end) ? undefined : (end - start) / 1000;
}

/** An element with the age of a time; "" if the time is unknown. */
export function buildAge(at, suffix = " ago") {
  const seconds = measureSeconds(at);
  if (seconds === undefined) return "";
  const title = new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
  return build("time", { datetime: at, title, "data-suffix": suffix }, `${formatDuration(seconds)}${suffix}`);
}

/** Write the present age into all elements that `buildAge` made. */
export function refreshAges() {
  for (const time of document.querySelectorAll("time[data-suffix]")) {
    const text = `${formatDuration(measureSeconds(time.dateTime))}${time.dataset.suffix}`;
    if (time.textContent !== text) time.textContent = text;
  }
}
