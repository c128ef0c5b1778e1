// Ages as short text, "2 min ago", with the absolute time in the title. Texts on the page stay current.

import { build } from "./look.js";

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
