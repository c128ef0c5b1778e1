// The page: the selection and its link, the filters, and which parts are drawn again. Each part has a module of its own.

import { Explanation, buildGangDetails, buildMissing, buildNodeDetails, buildRailDetails } from "./details.js";
import { Drawing } from "./drawing.js";
import { Feed } from "./feed.js";
import { GangList, describeGang, filterGangs } from "./gang_list.js";
import { build, darkScheme, formatCount, refreshAges } from "./look.js";
import { findMatches, formatLink, parseLink, updateOptions } from "./selection.js";
import { Store, formatLetter } from "./store.js";
import { buildSummary, showNumbers } from "./summary.js";
import { buildNodeTable } from "./tables.js";
import { TokenForm, readToken } from "./sign_in.js";

const AGE_INTERVAL = 5000; // milliseconds between two updates of the ages
const STACKED = "(width < 760px)"; // the details are below the list of gangs
const get = (id) => document.getElementById(id);
const store = new Store();
const selection = { fabric: "", gang: "", node: "", rail: "" };
const filters = { text: "", state: "", namespace: "", order: "attention", onlyBroken: false };
const page = { form: "drawing", hasAllRanks: false, details: "", problems: "" };
const link = parseLink(location.hash);
if (link) Object.assign(selection, link);

const drawing = new Drawing(
  { scroller: get("drawing"), canvas: get("canvas"), spacer: get("spacer"), options: [get("option-a"), get("option-b")], summary: get("drawing-summary"), hint: get("hint") },
  store,
  { choose: (name) => chooseNode(name), clear: () => (selection.node ? chooseNode("") : select({ gang: "", rail: "" })) },
);
const gangList = new GangList(get("gangs"), get("gangs-none"), { choose: (key) => chooseGang(key) });

// --- selection ------------------------------------------------------------------------------------------------------

/** Change the selection, and with it the page's address: the browser's back button returns to the old one. */
function select(changes) {
  Object.assign(selection, changes);
  page.hasAllRanks = false;
  const address = buildAddress();
  if (address !== location.pathname + location.search + location.hash) history.pushState(null, "", address);
  showSelection();
}

function buildAddress() {
  return `${location.pathname}${location.search}${formatLink(selection, store.fabricNames[0])}`;
}

/** Draw everything that depends on the selection. */
function showSelection() {
  chooseFabricOfSelection();
  requestRender("gangs", "site", "layout", "details");
  render();
  const gang = store.getGang(selection.gang);
  const name = selection.node || gang?.ranks.find((rank) => rank.node)?.node;
  const cell = name && drawing.layout?.cells.get(name);
  if (cell) drawing.scrollToCell(cell);
}

function chooseGang(key) {
  select({ gang: key, rail: "" });
  showDetails(key);
}

function chooseNode(name) {
  select({ node: name });
  if (name) drawing.moveCursor(name);
}

function chooseRail(rail) {
  select({ rail, node: "", gang: "" });
  showDetails(rail);
}

/** Where the parts are below each other, scroll to the details of what was chosen. */
function showDetails(name) {
  if (name && matchMedia(STACKED).matches) get("details").parentElement.scrollIntoView({ block: "end" });
}

/** Show the fabric of the selected node or gang; the first one if the selected fabric does not exist. */
function chooseFabricOfSelection() {
  const fabrics = store.fabricNames;
  if (!fabrics.length) return;
  const ofGang = store.getGang(selection.gang)?.fabric;
  const hasNode = selection.node && store.getNode(selection.fabric, selection.node);
  const wished = hasNode ? selection.fabric : store.findFabricOfNode(selection.node) || (fabrics.includes(ofGang) && ofGang) || selection.fabric;
  selection.fabric = fabrics.includes(wished) ? wished : fabrics[0];
  drawing.fabric = selection.fabric;
}

// --- rendering ------------------------------------------------------------------------------------------------------

let pendingParts = new Set();
let frame;

/** Draw these parts in the next frame. */
function requestRender(...parts) {
  for (const part of parts) pendingParts.add(part);
  frame ??= requestAnimationFrame(render);
}

function render() {
  cancelAnimationFrame(frame);
  frame = undefined;
  const parts = pendingParts;
  pendingParts = new Set();
  const { gangs } = store;
  if (parts.has("site")) showSite();
  if (parts.has("gangs")) {
    updateOptions(get("namespace"), [...new Set(gangs.map((gang) => gang.namespace))].sort(), filters.namespace);
    gangList.show(filterGangs([...gangs], filters), selection.gang);
  }
  if (parts.has("site") || parts.has("gangs") || parts.has("layout")) showNumbers(get("numbers"), store.getFabric(selection.fabric), gangs, store.hasData);
  if (parts.has("layout")) drawing.updateLayout();
  if (parts.has("fabric") || parts.has("gangs") || parts.has("layout")) showFabric(gangs, parts.has("gangs"));
  if (parts.has("details")) showDetailsOf(selection);
}

function showSite() {
  const { source, policy } = store.overview;
  const fabrics = store.fabricNames;
  showState();
  get("source").textContent = policy ? `${source} · policy ${policy.replace("sha256:", "").slice(0, 8)}` : source;
  get("source").title = policy;
  chooseFabricOfSelection();
  get("fabric-field").hidden = fabrics.length < 2;
  get("fabric").replaceChildren(...fabrics.map((name) => new Option(name, name, false, name === selection.fabric)));
  updateOptions(get("rail"), store.getFabric(selection.fabric)?.rails ?? [], selection.rail, "holders of ");
}

function showFabric(gangs, haveGangsChanged) {
  Object.assign(drawing, { gang: selection.gang, node: selection.node });
  drawing.setMatches(findMatches(store, gangs, selection, filters));
  if (haveGangsChanged) drawing.setGangs(gangs);
  drawing.requestPaint();
  if (page.form === "table") showNodeTable();
  const fabric = store.getFabric(selection.fabric);
  if (!fabric) return;
  const text = `Fabric ${fabric.name}: ${formatCount(fabric.nodes, "node")} on ${formatCount(fabric.leaves.length, "leaf")}, ${formatCount(fabric.rails_free, "rail")} free, ${fabric.rails_busy} busy, ${fabric.rails_dead} dead; ${formatCount(gangs.length, "gang")}. The button Table shows the same as a table.`;
  if (get("drawing-summary").textContent !== text) get("drawing-summary").textContent = text;
}

function showNodeTable() {
  const fabric = store.getFabric(selection.fabric);
  const box = get("table");
  const focusedText = box.contains(document.activeElement) ? document.activeElement.textContent : "";
  box.replaceChildren(fabric ? buildNodeTable(fabric, store, drawing.matches, { chooseNode }) : "");
  if (focusedText) [...box.querySelectorAll("button")].find((button) => button.textContent === focusedText)?.focus();
}

/** Show the details of what is selected; of the fabric if nothing is. */
function showDetailsOf({ fabric: fabricName, gang: key, node: nodeName, rail }) {
  const fabric = store.getFabric(fabricName);
  const entry = store.getNode(fabricName, nodeName);
  const gang = store.getGang(key);
  const on = { chooseGang, chooseNode, chooseRail, report: announce };
  const parts = [];
  if (entry) {
    const subject = explanation.request(entry.node, key);
    parts.push(buildNodeDetails(entry, store, { rails: fabric.rails, rail, subject }, explanation.value, { ...on, close: () => chooseNode("") }));
  } else if (nodeName) parts.push(buildMissing("Node", nodeName, store.isComplete, { close: () => chooseNode("") }));
  if (gang) parts.push(buildGangDetails(gang, page.hasAllRanks, { ...on, close: () => chooseGang(""), showAllRanks: () => ((page.hasAllRanks = true), requestRender("details")) }));
  else if (key) parts.push(buildMissing("Gang", key, store.isComplete, { close: () => chooseGang("") }));
  if (rail && !nodeName) {
    const isKnown = fabric?.rails.includes(rail);
    const close = () => chooseRail("");
    parts.push(isKnown ? buildRailDetails(fabric, rail, store, { ...on, close }) : buildMissing("Rail", rail, store.isComplete, { close }));
  }
  if (!parts.length) parts.push(fabric ? buildSummary(fabric, store.gangs, store, on) : build("p", { class: "quiet" }, "Nothing has been read yet."));
  replaceDetails(parts);
}

/** Replace the details if they differ; keep the focus and what is unfolded. */
function replaceDetails(parts) {
  const content = parts.map((part) => part.outerHTML).join("");
  if (content === page.details) return;
  page.details = content;
  const box = get("details");
  const buttons = () => [...box.querySelectorAll("button, summary")];
  const focused = buttons().indexOf(document.activeElement);
  const focusedText = document.activeElement?.textContent;
  const isOpen = box.querySelector("details")?.open;
  box.replaceChildren(...parts);
  if (isOpen) box.querySelector("details")?.setAttribute("open", "");
  if (focused < 0) return;
  const same = buttons().filter((button) => button.textContent === focusedText);
  (same.includes(buttons()[focused]) ? buttons()[focused] : same[0])?.focus();
}

/** Have a screen reader announce a text. */
function announce(text) {
  get("status").textContent = text;
}

// --- updates from the server ----------------------------------------------------------------------------------------

function takeOverview(overview) {
  const isFirst = !store.hasData;
  const oldStates = new Map(store.gangs.map((gang) => [gang.key, gang.state]));
  store.apply(overview);
  requestRender("site", "layout", "fabric", "gangs", "details");
  if (isFirst) return;
  announceGangs(oldStates);
}

/** Announce changes of gangs to a screen reader in a few words. */
function announceGangs(oldStates) {
  const texts = [];
  for (const gang of store.gangs) {
    const name = `gang ${formatLetter(gang.colour)} ${gang.name}`;
    if (!oldStates.has(gang.key)) texts.push(`${name} is new`);
    else if (oldStates.get(gang.key) !== gang.state) texts.push(`${name}: ${describeGang(gang)}`);
  }
  if (texts.length) announce(texts.length > 3 ? `${texts.length} gangs changed` : texts.join("; "));
}

/** Show whether the data is current, and what is wrong with it. `name`: state of the feed. */
function showState(name = get("connection").dataset.feed, { since, reason } = {}) {
  const problems = name === "live" ? store.overview.problems : [reason].filter(Boolean);
  const state = name === "live" && problems.length ? "incomplete" : name;
  const words = { connecting: "connecting", live: "live", incomplete: "live, incomplete", denied: "not signed in" };
  const text = words[state] ?? `${state}${since ? ` since ${Math.round((Date.now() - since) / 1000)} s` : ""}`;
  if (get("connection").dataset.state !== state) announce(text);
  Object.assign(get("connection").dataset, { state, feed: name });
  get("connection-text").textContent = text;
  const content = problems.join("\n");
  get("problems").hidden = !content;
  if (page.problems === content) return; // an alert is announced again with every change
  page.problems = content;
  get("problems").replaceChildren(...problems.map((problem) => build("p", {}, problem)));
}

const feed = new Feed("api/overview", {
  change: takeOverview,
  deny: (status, reason) => {
    showState("denied");
    tokenForm.show(status === 401 && !feed.token ? "This dashboard requires permission from the cluster." : `Refused: ${reason}`);
  },
  state: showState,
});
const explanation = new Explanation(store, feed, () => requestRender("details"));
const tokenForm = new TokenForm({ back: get("token-back"), form: get("token"), reason: get("token-reason"), field: get("token-text"), keep: get("token-keep") }, (token) => {
  get("drawing").focus();
  feed.start(token);
});

// --- input ----------------------------------------------------------------------------------------------------------

get("search").addEventListener("input", (event) => {
  filters.text = event.target.value;
  requestRender("gangs", "fabric");
});
for (const id of ["state", "order", "namespace"]) {
  get(id).addEventListener("change", (event) => {
    filters[id] = event.target.value;
    requestRender("gangs");
  });
}
get("broken").addEventListener("change", (event) => {
  filters.onlyBroken = event.target.checked;
  requestRender("fabric");
});
get("rail").addEventListener("change", (event) => chooseRail(event.target.value));
get("fabric").addEventListener("change", (event) => select({ fabric: event.target.value, gang: "", node: "", rail: "" }));

/** Mark the pressed button of a group. */
function press(name, value) {
  for (const button of document.querySelectorAll(`[data-${name}]`)) button.setAttribute("aria-pressed", String(button.dataset[name] === value));
}
document.addEventListener("click", (event) => {
  const { size, form } = event.target.closest("button")?.dataset ?? {};
  if (size) {
    press("size", size);
    drawing.size = size;
    requestRender("layout");
  }
  if (form) {
    press("form", form);
    page.form = form;
    get("drawing").hidden = form !== "drawing";
    get("table").hidden = form !== "table";
    requestRender("layout");
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  get("search").focus();
  event.preventDefault();
});
globalThis.addEventListener("popstate", () => {
  const chosen = parseLink(location.hash);
  if (!chosen) return; // a skip link
  Object.assign(selection, chosen, { fabric: chosen.fabric || store.fabricNames[0] || "" });
  showSelection();
});
setInterval(refreshAges, AGE_INTERVAL);

function showColours() {
  drawing.readTheme();
  gangList.discardRows();
  requestRender("gangs", "fabric", "details");
}
darkScheme.addEventListener("change", showColours);
showColours();
globalThis.railwright = { store, selection, filters, drawing, feed }; // for tests and for the curious
feed.start(readToken());
