// The page: the selection, the visible parts, and updates. Each part has a module of its own.

import { Drawing } from "./drawing.js";
import { themed } from "./look.js";
import { Gangs, admissionRows, chosen, gangDetails, nodeDetails, nodeTable, numbers, describeGang } from "./panels.js";
import { Store, letter } from "./store.js";
import { Stream } from "./stream.js";

const TOKEN = "railwright-token"; // key in sessionStorage, used only if the reader opts in
const by = (id) => document.getElementById(id);
const store = new Store();
const now = { fabric: "", gang: "", node: "", text: "", state: "", order: "attention", view: "drawing", all: false, why: undefined };
let dirty = new Set();

const drawing = new Drawing(
  { scroller: by("drawing"), canvas: by("canvas"), spacer: by("spacer"), options: [by("option-a"), by("option-b")], summary: by("drawing-summary"), hint: by("hint") },
  store,
  { chosen: (name) => chooseNode(name), cleared: () => (now.node ? chooseNode("") : chooseGang("")) },
);
const gangs = new Gangs(by("gangs"), by("gangs-none"), { chosen: (key) => chooseGang(key) });

// --- selection ------------------------------------------------------------------------------------------------------

function chooseGang(key) {
  Object.assign(now, { gang: key, all: false });
  const gang = store.gang(key);
  if (gang && gang.fabric !== now.fabric && store.fabric(gang.fabric)) now.fabric = drawing.fabric = gang.fabric;
  const first = gang?.ranks.find((rank) => rank.node);
  show("gangs", "fabric", "details");
  render();
  const cell = first && drawing.made?.cells.get(first.node);
  if (cell) drawing.show(cell);
  if (gang && matchMedia("(width < 760px)").matches) by("details").parentElement.scrollIntoView(); // below the list there
  if (now.node) ask();
}

function chooseNode(name) {
  now.node = name;
  now.why = undefined;
  show("details", "marks");
  if (name) {
    drawing.move(name);
    ask();
  }
  render();
}

/** Ask the server why the selected gang is, or is not, on the selected node. */
async function ask() {
  const found = store.node(now.fabric, now.node);
  const pod = found?.node.pods?.[0];
  const subject = now.gang || pod?.gang || pod?.pod || "";
  if (!subject) return;
  now.subject = subject;
  now.why = undefined;
  const mine = `${subject} ${now.node}`;
  const query = new URLSearchParams({ gang: subject, node: now.node });
  let answer;
  try {
    const got = await fetch(`api/why?${query}`, { headers: stream.headers(), cache: "no-store", credentials: "omit" });
    answer = await got.json();
    if (!got.ok) answer = { error: answer.error?.reason ?? got.statusText };
  } catch (error) {
    answer = { error: error.message };
  }
  if (mine !== `${now.subject} ${now.node}`) return; // another choice by now
  now.why = answer;
  show("details");
}

// --- rendering ------------------------------------------------------------------------------------------------------

/** Redraw these parts in the next frame. */
function show(...parts) {
  for (const part of parts) dirty.add(part);
  show.asked ??= requestAnimationFrame(render);
}

function render() {
  cancelAnimationFrame(show.asked);
  show.asked = undefined;
  const parts = dirty;
  dirty = new Set();
  if (parts.has("site")) site();
  const all = store.gangs;
  if (parts.has("gangs")) gangs.show(chosen([...all], now), now.gang);
  if (parts.has("site") || parts.has("gangs")) numbers(by("numbers"), store.fabric(now.fabric), all);
  if (parts.has("layout")) drawing.relay();
  if (parts.has("fabric") || parts.has("gangs") || parts.has("marks") || parts.has("layout")) {
    Object.assign(drawing, { gang: now.gang, node: now.node });
    drawing.sought(matching(all));
    if (parts.has("gangs")) drawing.coloured(all);
    drawing.repaint();
    if (now.view === "table" && !(parts.size === 1 && parts.has("marks"))) table();
    summarise(all);
  }
  if (parts.has("details")) details();
  if (parts.has("admissions")) {
    const rows = admissionRows(store.admissions, now.text);
    by("admissions").replaceChildren(...rows);
    by("admissions-count").textContent = `${rows.length}${rows.length < store.admissions.length ? ` of ${store.admissions.length}` : ""}`;
  }
}

function site() {
  const { source, policy, problems, fabrics } = store.site;
  if (heard === "live") store.site.away ? away() : connected("live", "live");
  by("source").textContent = `${source}${policy ? ` · policy ${policy.replace("sha256:", "").slice(0, 8)}` : ""}`;
  const box = by("problems");
  const text = problems.join("; ");
  if (box.textContent !== text) box.textContent = text;
  box.hidden = !text;
  if (!fabrics.includes(now.fabric)) now.fabric = fabrics[0] ?? "";
  drawing.fabric = now.fabric;
  by("fabric-field").hidden = fabrics.length < 2;
  by("fabric").replaceChildren(...fabrics.map((name) => new Option(name, name, false, name === now.fabric)));
}

/** The nodes that match the search; null without a search. */
function matching(all) {
  const text = now.text.trim().toLowerCase();
  if (!text) return null;
  const found = new Set();
  const named = all.filter((gang) => gang.key.toLowerCase().includes(text) || letter(gang.colour).toLowerCase() === text);
  for (const gang of named) for (const rank of gang.ranks) if (rank.node) found.add(rank.node);
  for (const name of drawing.made?.order ?? []) {
    const { node, leaf } = store.node(now.fabric, name) ?? {};
    if (node && [name, leaf.name, ...leaf.above, ...(node.pods ?? []).map((pod) => pod.pod)].some((each) => each.toLowerCase().includes(text))) found.add(name);
  }
  return found;
}

function table() {
  const fabric = store.fabric(now.fabric);
  const box = by("table");
  const focused = box.contains(document.activeElement) ? document.activeElement.textContent : "";
  box.replaceChildren(fabric ? nodeTable(fabric, store, drawing.found, { node: chooseNode }) : "");
  if (focused) [...box.querySelectorAll("button")].find((each) => each.textContent === focused)?.focus();
}

function summarise(all) {
  const fabric = store.fabric(now.fabric);
  if (!fabric) return;
  const text = `Fabric ${fabric.name}: ${fabric.nodes} nodes on ${fabric.leaves.length} leaves, ${fabric.rails_free} rails free, ${fabric.rails_busy} busy, ${fabric.rails_dead} dead; ${all.length} gangs. The button Table shows the same as a table.`;
  if (by("drawing-summary").textContent !== text) by("drawing-summary").textContent = text;
}

function details() {
  const gang = store.gang(now.gang);
  const found = store.node(now.fabric, now.node);
  const parts = [];
  if (found) {
    const pod = found.node.pods?.[0];
    const subject = now.gang || pod?.gang || pod?.pod || "";
    parts.push(nodeDetails(found, store, store.fabric(now.fabric).rails, subject, now.why, { node: chooseNode }));
  }
  if (gang) parts.push(gangDetails(gang, now.all, { node: chooseNode, all: () => ((now.all = true), show("details")) }));
  if (parts.length) by("details").replaceChildren(...parts);
  else details.empty && by("details").replaceChildren(details.empty.cloneNode(true));
}
details.empty = by("details").firstElementChild.cloneNode(true);

function say(text) {
  by("status").textContent = text;
}

// --- updates from the server ----------------------------------------------------------------------------------------

function taken(delta) {
  const old = new Map(Object.keys(delta.sections).map((key) => [key, store.sections.get(key)]));
  const states = new Map(store.sections.size ? store.gangs.map((gang) => [gang.key, gang.state]) : []);
  const names = store.take(delta);
  const parts = new Set();
  for (const key of names) {
    const kind = key.split("/", 1)[0];
    parts.add({ site: "site", fabric: "layout", leaf: "fabric", gang: "gangs", admissions: "admissions" }[kind]);
    if (kind === "fabric") parts.add("site");
    if (kind !== "leaf") continue;
    const leaf = store.sections.get(key);
    if (!leaf || old.get(key)?.nodes.length !== leaf.nodes.length || leaf.nodes.some((node, at) => node.name !== old.get(key).nodes[at].name)) parts.add("layout");
    else if (!delta.full) drawing.changed(old.get(key), key.slice(5));
  }
  if (delta.full) for (const part of ["site", "layout", "fabric", "gangs", "admissions"]) parts.add(part);
  if (now.gang && !store.gang(now.gang)) now.gang = "";
  show(...parts, "details");
  if (!delta.full && states.size) announce(states);
}

/** Announce changes of gangs to a screen reader in a few words. */
function announce(states) {
  const said = [];
  for (const gang of store.gangs) {
    const before = states.get(gang.key);
    if (before === undefined) said.push(`gang ${letter(gang.colour)} ${gang.name} is new`);
    else if (before !== gang.state) said.push(`gang ${letter(gang.colour)} ${gang.name}: ${describeGang(gang)}`);
  }
  if (said.length) say(said.length > 3 ? `${said.length} gangs changed` : said.join("; "));
}

let heard = ""; // the last state of the stream
const stream = new Stream("api/stream", {
  change: taken,
  denied: (status, reason) => {
    sessionStorage.removeItem(TOKEN);
    connected("denied", "not signed in");
    by("token-why").textContent = status === 401 && !stream.token ? "This dashboard requires permission from the cluster." : `Refused: ${reason}`;
    by("token-back").hidden = false;
    by("token-text").focus();
  },
  state: (name, detail) => {
    const seconds = detail?.since ? Math.round((Date.now() - detail.since) / 1000) : 0;
    heard = name;
    if (name === "live" && store.site.away) return away();
    const text = { live: "live", stale: `stale since ${seconds} s`, reconnecting: seconds ? `reconnecting, stale since ${seconds} s` : "reconnecting" }[name];
    connected(name, text, detail?.reason);
  },
});

/** The server is reachable but reports that the cluster is not, so nothing on the page is live. */
function away() {
  connected("away", "cluster unreachable", store.site.away);
}

function connected(state, text, reason) {
  const box = by("connection");
  if (box.dataset.state !== state) say(state === "live" ? "live" : `${text}${reason ? `: ${reason}` : ""}`);
  if (box.dataset.state !== state) box.dataset.state = state;
  if (by("connection-text").textContent !== text) by("connection-text").textContent = text;
  box.title = reason ?? "";
}

// --- input ----------------------------------------------------------------------------------------------------------

by("token").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = by("token-text").value.trim();
  if (by("token-keep").checked) sessionStorage.setItem(TOKEN, token);
  by("token-text").value = "";
  by("token-back").hidden = true;
  by("drawing").focus();
  stream.start(token);
});
by("search").addEventListener("input", (event) => {
  now.text = event.target.value;
  show("gangs", "fabric", "admissions");
});
for (const id of ["state", "order"]) by(id).addEventListener("change", (event) => ((now[id] = event.target.value), show("gangs")));
by("fabric").addEventListener("change", (event) => {
  now.fabric = drawing.fabric = event.target.value;
  show("site", "layout", "details");
});
function press(name, value, then) {
  for (const each of document.querySelectorAll(`[data-${name}]`)) each.setAttribute("aria-pressed", String(each.dataset[name] === value));
  then(value);
}
document.addEventListener("click", (event) => {
  const { size, view } = event.target.dataset ?? {};
  if (size) press("size", size, () => ((drawing.size = size), show("layout")));
  if (view) {
    press("view", view, () => (now.view = view));
    by("drawing").hidden = view !== "drawing";
    by("table").hidden = view !== "table";
    show("layout");
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  by("search").focus();
  event.preventDefault();
});
by("token").addEventListener("keydown", (event) => {
  if (event.key !== "Tab") return; // the form is all there is while it is open
  const inside = [...by("token").querySelectorAll("input, button")];
  const edge = event.shiftKey ? inside[0] : inside.at(-1);
  if (document.activeElement !== edge) return;
  (event.shiftKey ? inside.at(-1) : inside[0]).focus();
  event.preventDefault();
});

themed(by("theme"), () => {
  drawing.relook();
  gangs.forget();
  show("gangs", "fabric", "details");
});
globalThis.railwright = { store, now, drawing, stream }; // for tests, and for whoever is curious
stream.start(sessionStorage.getItem(TOKEN) ?? "");
