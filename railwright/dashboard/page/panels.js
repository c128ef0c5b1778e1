// The panels next to the drawing: gangs, details, table of nodes, admissions, figures. All text is inserted as text,
// never as markup.

import { badge, colour, element } from "./look.js";
import { STATES, attention, letter } from "./store.js";

const RANKS = 64; // rows of a gang that are shown at first; a button shows the rest
const number = new Intl.NumberFormat("en");

/** The gangs that pass the filters, in the selected order. */
export function chosen(gangs, { text, state, order }) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = gangs.filter((gang) => {
    if (state === "placed" && gang.state !== "placed") return false;
    if (state === "waiting" && gang.state === "placed") return false;
    if (state === "worse" && attention(gang) !== 1) return false;
    return words.every((word) => matches(gang, word));
  });
  const by = {
    attention: (a, b) => attention(b) - attention(a) || (a.bandwidth ?? 0) - (b.bandwidth ?? 0),
    size: (a, b) => b.size - a.size,
    bandwidth: (a, b) => (a.bandwidth ?? -1) - (b.bandwidth ?? -1),
    name: () => 0,
  }[order];
  return matching.sort((a, b) => by(a, b) || a.key.localeCompare(b.key, "en", { numeric: true }));
}

function matches(gang, word) {
  return (
    gang.key.toLowerCase().includes(word) ||
    letter(gang.colour).toLowerCase() === word ||
    gang.ranks.some((rank) => rank.node?.toLowerCase() === word || rank.pod.toLowerCase().includes(word))
  );
}

export function share(value) {
  return value === undefined ? "–" : value.toFixed(2);
}

/** Describe a gang: "bandwidth 0.88 of 0.88 possible", or how many of its pods are placed. */
export function describeGang(gang) {
  if (gang.state !== "placed") return `${gang.placed} of ${gang.size} placed`;
  if (gang.best === undefined) return gang.bandwidth === undefined ? "not evaluated yet" : `bandwidth ${share(gang.bandwidth)}`;
  return `bandwidth ${share(gang.bandwidth)} of ${share(gang.best)} possible`;
}

const WORDS = { placed: "placed", starting: "starting", waiting: "waiting", unplaceable: "no room" };

/** The list of gangs: rows are reused, so that focus and scroll position stay. */
export class Gangs {
  constructor(list, none, on) {
    Object.assign(this, { list, none, on, rows: new Map(), at: "", selected: "" });
    list.addEventListener("click", (event) => {
      const row = event.target.closest("[role=option]");
      if (row) this.choose(row.dataset.key);
    });
    list.addEventListener("keydown", (event) => this.handleKey(event));
    list.addEventListener("focusin", (event) => event.target.dataset.key && this.rove(event.target.dataset.key));
  }

  show(gangs, selected) {
    this.selected = selected;
    const order = gangs.map((gang) => gang.key);
    for (const [key, row] of this.rows) {
      if (!order.includes(key)) {
        row.node.remove();
        this.rows.delete(key);
      }
    }
    let before = null;
    for (const gang of gangs) {
      const row = this.row(gang);
      const expected = before ? before.nextSibling : this.list.firstChild;
      if (row !== expected) this.list.insertBefore(row, expected);
      row.setAttribute("aria-selected", String(gang.key === selected));
      before = row;
    }
    this.order = order;
    this.none.hidden = order.length > 0;
    if (!order.includes(this.at)) this.at = order[0] ?? "";
    this.rove(this.at);
  }

  /** Discard what the rows show, because the colours have changed; the next `show` builds every row again. */
  forget() {
    for (const row of this.rows.values()) row.gang = undefined;
  }

  row(gang) {
    const old = this.rows.get(gang.key);
    if (old?.gang === gang) return old.node;
    const node = old?.node ?? element("li", { role: "option", "data-key": gang.key, tabindex: -1 });
    const name = element("span", { class: "name" }, ` ${gang.name} `, element("small", {}, gang.namespace));
    const state = element("span", { class: `state ${gang.state}` }, WORDS[gang.state] ?? gang.state);
    const mark = badge(gang.colour, letter(gang.colour));
    mark.removeAttribute("aria-hidden"); // the row's text is its name
    const ranks = `${describeGang(gang).replace("bandwidth ", "")} · ${gang.size} ranks`;
    node.replaceChildren(element("span", { class: "hidden" }, "Gang "), mark, name, " ", state, bar(gang), " ", element("span", { class: "told" }, ranks));
    this.rows.set(gang.key, { node, gang });
    return node;
  }

  rove(key) {
    this.rows.get(this.at)?.node.setAttribute("tabindex", -1);
    this.at = key;
    this.rows.get(key)?.node.setAttribute("tabindex", 0);
  }

  choose(key) {
    this.rove(key);
    this.on.chosen(key === this.selected ? "" : key);
  }

  handleKey(event) {
    const at = this.order.indexOf(this.at);
    const goal = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: this.order.length - 1 }[event.key];
    if (goal !== undefined) {
      const key = this.order[Math.min(this.order.length - 1, Math.max(0, goal))];
      this.rove(key);
      this.rows.get(key)?.node.focus();
    } else if (event.key === "Enter" || event.key === " ") this.choose(this.at);
    else if (event.key === "Escape") this.on.chosen("");
    else return;
    event.preventDefault();
  }
}

function bar(gang) {
  const made = element("span", { class: "score", "aria-hidden": "true" });
  const placed = gang.state === "placed";
  const value = placed ? (gang.bandwidth ?? 0) : gang.placed / Math.max(1, gang.size);
  const full = element("span", { class: placed ? "value" : "value partly" });
  full.style.setProperty("width", `${Math.round(value * 100)}%`);
  full.style.setProperty("--gang", colour(gang.colour));
  made.append(full);
  if (placed && gang.best !== undefined) {
    const best = element("span", { class: "best" });
    best.style.setProperty("left", `${Math.round(gang.best * 100)}%`);
    made.append(best);
  }
  return made;
}

// --- details --------------------------------------------------------------------------------------------------------

/** The details of a gang. */
export function gangDetails(gang, all, on) {
  const made = element("div", { class: "gang" });
  made.append(
    element("h3", {}, badge(gang.colour, letter(gang.colour)), ` ${gang.name} `, element("small", {}, `${gang.namespace} · ${gang.fabric}`)),
    element("p", {}, element("span", { class: `state ${gang.state}` }, WORDS[gang.state] ?? gang.state), ` ${describeGang(gang)}`, describeLeaves(gang)),
    element("p", { class: "quiet" }, "Bandwidths are modelled, never measured."),
  );
  if (gang.why?.length) made.append(element("ul", { class: "why" }, ...gang.why.map((reason) => element("li", {}, reason.message))));
  const rows = gang.ranks.slice(0, all ? gang.ranks.length : RANKS).map((rank) => rankRow(rank, on));
  const head = element("tr", {}, ...["Rank", "Pod", "Node", "Leaf"].map((each) => element("th", { scope: "col" }, each)));
  made.append(element("table", { class: "ranks" }, element("thead", {}, head), element("tbody", {}, ...rows)));
  if (!all && gang.ranks.length > RANKS) {
    const more = element("button", { type: "button" }, `Show all ${gang.ranks.length} ranks`);
    more.addEventListener("click", on.all);
    made.append(more);
  }
  return made;
}

function describeLeaves(gang) {
  if (!gang.leaves) return "";
  const least = gang.min_leaves && gang.min_leaves < gang.leaves ? `, ${gang.min_leaves} would suffice` : "";
  return ` · ${gang.leaves} ${gang.leaves === 1 ? "leaf" : "leaves"}${least}`;
}

function rankRow(rank, on) {
  let node = rank.node || "waits";
  if (rank.node) {
    node = element("button", { type: "button", class: "link" }, rank.node);
    node.addEventListener("click", () => on.node(rank.node));
  }
  return element("tr", {}, element("td", { class: "number" }, String(rank.rank)), element("td", {}, rank.pod + (rank.assumed ? " (assumed)" : "")), element("td", {}, node), element("td", {}, (rank.leaf ?? "").split(" in ")[0]));
}

/** The details of a node: rails, pods and, for a gang, the explanation. `why` is undefined until it arrives. */
export function nodeDetails(found, store, rails, subject, why, on) {
  const { node, leaf } = found;
  const made = element("div", { class: "node" });
  const where = [leaf.name || "no leaf", ...leaf.above].join(" in ");
  made.append(element("h3", {}, `Node ${node.name} `, element("small", {}, where + (node.note ? ` · ${node.note}` : ""))));
  if (subject) made.append(reason(why, subject));
  const holder = new Map();
  for (const pod of node.pods ?? []) for (const rail of pod.rails) holder.set(rail, pod);
  const rows = [...node.rails].map((state, at) => {
    const pod = holder.get(at);
    const gang = pod && store.gang(pod.gang);
    const who = pod ? [gang ? badge(gang.colour, letter(gang.colour)) : "", ` ${pod.pod}${pod.assumed ? " (assumed)" : ""}`] : ["nobody"];
    return element("tr", {}, element("td", {}, rails[at] ?? String(at)), element("td", {}, element("span", { class: `rail-state ${state}` }, STATES[state] ?? state)), element("td", {}, ...who));
  });
  const head = element("tr", {}, ...["Rail", "State", "Held by"].map((each) => element("th", { scope: "col" }, each)));
  made.append(element("table", { class: "ranks" }, element("thead", {}, head), element("tbody", {}, ...rows)));
  const close = element("button", { type: "button" }, "Close the node");
  close.addEventListener("click", () => on.node(""));
  made.append(close);
  return made;
}

function reason(why, subject) {
  const made = element("div", { class: "reason" });
  if (why === undefined) return element("p", { class: "quiet" }, `Loading the explanation for ${subject} …`);
  if (why.error) return element("p", { class: "quiet" }, `No explanation for ${subject}: ${why.error}`);
  const title = why.here ? `${why.pod} is here` : why.rejection ? `Why ${why.pod} cannot be here` : `What ${why.pod} would get here`;
  made.append(element("h4", {}, title));
  const lines = [why.rejection, why.reason, ...(why.rails ?? []), ...(why.short ?? []), ...(why.degradations ?? [])].filter(Boolean);
  made.append(element("ul", { class: "why" }, ...lines.map((reason) => element("li", {}, reason.message))));
  const terms = Object.entries(why.terms ?? {});
  if (terms.length) {
    const rows = terms.map(([name, term]) => element("tr", {}, element("td", {}, name), element("td", { class: "number" }, term.value.toFixed(2)), element("td", {}, term.message)));
    const head = element("tr", {}, ...["Term", "Value", "Because"].map((each) => element("th", { scope: "col" }, each)));
    made.append(element("p", {}, `Score ${why.score} of 100 at present`), element("table", { class: "ranks" }, element("thead", {}, head), element("tbody", {}, ...rows)));
  }
  return made;
}

// --- tables and numbers ---------------------------------------------------------------------------------------------

/** The fabric as a table, the accessible equivalent of the drawing. */
export function nodeTable(fabric, store, found, on) {
  const body = element("tbody");
  for (const id of fabric.leaves) {
    const leaf = store.leaf(id);
    for (const node of leaf?.nodes ?? []) {
      if (found && !found.has(node.name)) continue;
      const name = element("button", { type: "button", class: "link" }, node.name);
      name.addEventListener("click", () => on.node(node.name));
      const counts = [..."fbwd-"].map((state) => [STATES[state], [...node.rails].filter((each) => each === state).length]).filter(([, count]) => count);
      const pods = (node.pods ?? []).map((pod) => {
        const gang = store.gang(pod.gang);
        return gang ? `${letter(gang.colour)}${pod.rank >= 0 ? ` rank ${pod.rank}` : ""} (${gang.name})` : pod.pod;
      });
      body.append(element("tr", {}, element("td", {}, leaf.above.join(" in ")), element("td", {}, leaf.name), element("th", { scope: "row" }, name), element("td", {}, counts.map(([state, count]) => `${count} ${state}`).join(", ")), element("td", {}, pods.join(", ")), element("td", {}, node.note ?? "")));
    }
  }
  const head = element("tr", {}, ...["Spine", "Leaf", "Node", "Rails", "Gangs and pods", "Note"].map((each) => element("th", { scope: "col" }, each)));
  return element("table", {}, element("caption", { class: "hidden" }, `Nodes of fabric ${fabric.name}`), element("thead", {}, head), body);
}

const OUTCOMES = { injected: "injected", skipped: "skipped", missed: "not injected", event: "rejected or warned" };

/** The rows of the admissions. */
export function admissionRows(admissions, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = admissions.filter((row) => words.every((word) => `${row.object} ${row.gang ?? ""} ${row.message ?? ""} ${row.outcome}`.toLowerCase().includes(word)));
  return matching.map((row) => {
    const object = row.kind && row.kind !== "Pod" ? `${row.kind} ${row.object}` : row.object;
    const count = row.count > 1 ? ` (${row.count} times)` : "";
    const cells = [when(row.at), object, element("span", { class: `outcome ${row.outcome}` }, OUTCOMES[row.outcome] ?? row.outcome), row.fabric ?? ""];
    // explicit roles: the layout of rows on small screens removes the implicit ones
    const cell = (inside, more = {}) => element("td", { role: "cell", ...more }, inside);
    const counts = [row.rails, row.added, row.user_values].map((each) => cell(each ? String(each) : "", { class: "number" }));
    return element("tr", { role: "row" }, ...cells.map((each) => cell(each)), ...counts, cell(`${row.message ?? ""}${count}`));
  });
}

function when(at) {
  const date = new Date(at);
  if (!at || Number.isNaN(date.getTime())) return at || "";
  const today = date.toDateString() === new Date().toDateString();
  const text = today ? date.toLocaleTimeString() : date.toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });
  return element("time", { datetime: at }, text);
}

/** The figures of the fabric and its gangs. */
export function numbers(list, fabric, gangs) {
  const waiting = gangs.filter((gang) => gang.state !== "placed").length;
  const worse = gangs.filter((gang) => attention(gang) === 1).length;
  const pairs = [["nodes", fabric?.nodes], ["rails free", fabric?.rails_free], ["busy", fabric?.rails_busy], ["dead", fabric?.rails_dead], ["gangs", gangs.length], ["waiting", waiting], ["could be better", worse]];
  list.replaceChildren(...pairs.map(([name, count]) => element("div", { class: count && (name === "dead" || name === "waiting" || name === "could be better") ? "look" : "" }, element("dt", {}, name), element("dd", {}, count === undefined ? "–" : number.format(count)))));
}
