// The appearance of a gang: a colour, a pattern and a letter, so that gangs differ without colour too. And the theme.

const HUES = [212, 28, 145, 285, 48, 352, 178, 318, 95, 245, 12, 195];
const PATTERNS = 6; // 12 colours by 6 patterns: 72 gangs before any two look alike but for the letter

/** A gang's colour in CSS. */
export function colour(index, strength = 1) {
  const dark = isDark();
  const hue = HUES[index % HUES.length];
  return `hsl(${hue} ${dark ? 65 : 68}% ${dark ? 62 : 42}% / ${strength})`;
}

const made = new Map();

/** The fill of a gang's cell: its colour, tinted, with its pattern. */
export function tint(context, index) {
  const key = `${index % (HUES.length * PATTERNS)} ${isDark()}`;
  if (!made.has(key)) made.set(key, pattern(context, index));
  return made.get(key);
}

function pattern(context, index) {
  const kind = Math.floor(index / HUES.length) % PATTERNS;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d");
  pen.fillStyle = colour(index, isDark() ? 0.3 : 0.2);
  pen.fillRect(0, 0, 8, 8);
  pen.strokeStyle = pen.fillStyle = colour(index, 0.45);
  pen.lineWidth = 1.4;
  LINES[kind](pen);
  return context.createPattern(tile, "repeat");
}

function line(pen, ...points) {
  pen.beginPath();
  for (let at = 0; at < points.length; at += 4) {
    pen.moveTo(points[at], points[at + 1]);
    pen.lineTo(points[at + 2], points[at + 3]);
  }
  pen.stroke();
}

const LINES = [
  () => {},
  (pen) => line(pen, -2, 6, 6, -2, 2, 10, 10, 2),
  (pen) => line(pen, -2, 2, 6, 10, 2, -2, 10, 6),
  (pen) => pen.fillRect(2, 2, 3, 3),
  (pen) => line(pen, 0, 4, 8, 4),
  (pen) => line(pen, 4, 0, 4, 8, 0, 4, 8, 4),
];

let chosen = localStorage.getItem("railwright-theme") ?? "auto";
const system = matchMedia("(prefers-color-scheme: dark)");

/** True if the page is dark now. */
export function isDark() {
  return chosen === "auto" ? system.matches : chosen === "dark";
}

/** Manages the theme and its button; calls `changed` whenever the colours change. */
export function themed(button, changed) {
  const show = () => {
    document.documentElement.dataset.theme = isDark() ? "dark" : "light";
    button.textContent = { auto: "Auto", light: "Light", dark: "Dark" }[chosen];
    button.setAttribute("aria-label", `${button.textContent} theme: press for the next`);
    changed();
  };
  button.addEventListener("click", () => {
    chosen = { auto: "light", light: "dark", dark: "auto" }[chosen] ?? "auto";
    localStorage.setItem("railwright-theme", chosen);
    show();
  });
  system.addEventListener("change", show);
  show();
}

/** An element with text, never with markup. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== undefined) made.setAttribute(key, String(value));
  }
  made.append(...children.filter((each) => each !== undefined && each !== ""));
  return made;
}

/** A gang's badge: letter on its colour and pattern. */
export function badge(index, text) {
  const made = element("span", { class: "badge", "data-pattern": Math.floor(index / HUES.length) % PATTERNS, "aria-hidden": "true" }, text);
  made.style.setProperty("--gang", colour(index));
  return made;
}
