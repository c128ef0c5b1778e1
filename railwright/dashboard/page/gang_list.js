// The list of gangs, its filters and its keyboard.

import { build, buildAge, buildBadge, formatDuration, getColour, measureSeconds } from "./look.js";
import { formatLetter, getState, isPlaced, rankAttention } from "./store.js";

/** The gangs that pass the filters, in the chosen order. */
export function filterGangs(gangs, { text, state, namespace, order }) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = gangs.filter((gang) => {
    if (namespace && gang.namespace !== namespace) return false;
    if (state === "placed" && !isPlaced(gang)) return false;
    if (state === "waiting" && isPlaced(gang)) return false;
    if (state === "worse" && gang.state !== "spread") return false;
    return words.every((word) => matchesWord(gang, word));
  });
  const compare = {
    attention: (one, other) => rankAttention(other) - rankAttention(one) || (one.bandwidth ?? 0) - (other.bandwidth ?? 0),
    size: (one, other) => other.size - one.size,
    bandwidth: (one, other) => (one.bandwidth ?? -1) - (other.bandwidth ?? -1),
    age: (one, other) => (one.created_at ?? "").localeCompare(other.created_at ?? ""),
    name: () => 0,
  }[order];
  return matches.sort((one, other) => compare(one, other) || one.key.localeCompare(other.key, "en", { numeric: true }));
}

function matchesWord(gang, word) {
  return (
    gang.key.toLowerCase().includes(word) ||
    gang.name.toLowerCase().includes(word) ||
    formatLetter(gang.colour).toLowerCase() === word ||
    gang.ranks.some((rank) => rank.node?.toLowerCase() === word || rank.pod.toLowerCase().includes(word))
  );
}

function formatBandwidth(value) {
  return value === undefined ? "–" : value.toFixed(2);
}

/** Describe a gang: "bandwidth 0.88 of 0.88 possible", or how many of its pods are placed. */
export function describeGang(gang) {
  if (!isPlaced(gang)) return `${gang.placed} of ${gang.size} placed`;
  if (gang.best === undefined) return gang.bandwidth === undefined ? "not evaluated yet" : `bandwidth ${formatBandwidth(gang.bandwidth)}`;
  return `bandwidth ${formatBandwidth(gang.bandwidth)} of ${formatBandwidth(gang.best)} possible`;
}

/** The state of a gang as a label; its title is the extender's Event of that state. */
export function buildState(gang) {
  const { word, style, event } = getState(gang);
  return build("span", { class: `state ${style}`, title: event }, word);
}

/** How long a gang has been placed or waiting, as one element; "" if unknown. */
function buildGangAge(gang) {
  const placed = isPlaced(gang);
  const age = buildAge(placed ? gang.placed_at : gang.created_at, "");
  return age && build("span", {}, build("span", { class: "hidden" }, placed ? ", placed for " : ", waiting for "), age);
}

/** How long a placed gang waited, in words; "" if unknown. */
export function describeWait(gang) {
  const seconds = gang.placed_at ? measureSeconds(gang.created_at, gang.placed_at) : undefined;
  return seconds === undefined ? "" : `waited ${formatDuration(seconds)}`;
}

/** The list of gangs: rows are reused, so that focus and scroll position stay. */
export class GangList {
  constructor(list, emptyText, on) {
    Object.assign(this, { list, emptyText, on, rows: new Map(), order: [], focused: "", selected: "" });
    list.addEventListener("click", (event) => {
      const row = event.target.closest("[role=option]");
      if (row) this.choose(row.dataset.key);
    });
    list.addEventListener("keydown", (event) => this.handleKey(event));
    list.addEventListener("focusin", (event) => event.target.dataset.key && this.setTabStop(event.target.dataset.key));
  }

  show(gangs, selected) {
    this.selected = selected;
    this.order = gangs.map((gang) => gang.key);
    const keys = new Set(this.order);
    for (const [key, row] of this.rows) {
      if (keys.has(key)) continue;
      row.element.remove();
      this.rows.delete(key);
    }
    let previous = null;
    for (const gang of gangs) {
      const row = this.updateRow(gang);
      const expected = previous ? previous.nextSibling : this.list.firstChild;
      if (row !== expected) this.list.insertBefore(row, expected);
      row.setAttribute("aria-selected", String(gang.key === selected));
      previous = row;
    }
    this.emptyText.hidden = this.order.length > 0;
    this.list.hidden = !this.order.length;
    if (!keys.has(this.focused)) this.focused = this.order[0] ?? "";
    this.setTabStop(this.focused);
  }

  /** Discard the content of the rows, because the colours have changed; the next `show` builds every row again. */
  discardRows() {
    for (const row of this.rows.values()) row.gang = undefined;
  }

  updateRow(gang) {
    const row = this.rows.get(gang.key);
    if (row?.gang === gang) return row.element;
    const element = row?.element ?? build("li", { role: "option", "data-key": gang.key, tabindex: -1 });
    const name = build("span", { class: "name", title: gang.key }, ` ${gang.name} `);
    const namespace = build("small", {}, gang.namespace);
    const badge = buildBadge(gang.colour, formatLetter(gang.colour));
    badge.removeAttribute("aria-hidden"); // the row's text is its name for a screen reader
    const text = `${describeGang(gang).replace("bandwidth ", "")} · ${gang.size} ranks`;
    const facts = build("span", { class: "facts" }, build("span", {}, text), buildGangAge(gang));
    element.replaceChildren(build("span", { class: "hidden" }, "Gang "), badge, name, namespace, " ", buildState(gang), buildBar(gang), " ", facts);
    this.rows.set(gang.key, { element, gang });
    return element;
  }

  /** Make one row the list's only stop of the Tab key. */
  setTabStop(key) {
    this.rows.get(this.focused)?.element.setAttribute("tabindex", -1);
    this.focused = key;
    this.rows.get(key)?.element.setAttribute("tabindex", 0);
  }

  choose(key) {
    this.setTabStop(key);
    this.on.choose(key === this.selected ? "" : key);
  }

  handleKey(event) {
    const index = this.order.indexOf(this.focused);
    const goal = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: this.order.length - 1 }[event.key];
    if (goal !== undefined) {
      const key = this.order[Math.min(this.order.length - 1, Math.max(0, goal))];
      this.setTabStop(key);
      this.rows.get(key)?.element.focus();
    } else if (event.key === "Enter" || event.key === " ") this.choose(this.focused);
    else if (event.key === "Escape") this.on.choose("");
    else return;
    event.preventDefault();
  }
}

/** The bandwidth of a placed gang with a tick at the best possible, or the placed share of a waiting one. */
function buildBar(gang) {
  const placed = isPlaced(gang);
  const share = placed ? (gang.bandwidth ?? 0) : gang.placed / Math.max(1, gang.size);
  const value = build("span", { class: placed ? "value" : "value partly" });
  value.style.setProperty("width", `${Math.round(share * 100)}%`);
  value.style.setProperty("--gang", getColour(gang.colour));
  const bar = build("span", { class: "score", "aria-hidden": "true" }, value);
  if (placed && gang.best !== undefined) {
    const tick = build("span", { class: "best" });
    tick.style.setProperty("left", `${Math.round(gang.best * 100)}%`);
    bar.append(tick);
  }
  return bar;
}
