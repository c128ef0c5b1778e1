// The details of a gang, a node or a rail: state, age, reasons with codes, ranks, and the commands that show more. And
// the server's explanation of why a pod is, or is not, on a node.

import { buildState, describeGang, describeWait } from "./gang_list.js";
import { build, buildAge, buildBadge, buildLink, buildTable, formatCount } from "./look.js";
import { RAIL_STATES, formatLetter, isPlaced, mapHolders } from "./store.js";

// --- a gang ---

const RANKS = 64; // rows that are shown at first; a button shows the rest

/** Build the details. `on` gets chooseNode, showAllRanks, close and report. */
export function buildGangDetails(gang, hasAllRanks, on) {
  const details = build("div", { class: "gang" });
  const title = build("h3", {}, buildBadge(gang.colour, formatLetter(gang.colour)), ` ${gang.name} `, build("small", {}, `${gang.namespace} · ${gang.fabric || "no fabric"}`));
  details.append(title, build("p", {}, buildState(gang), ` ${describeGang(gang)}`, describeLeaves(gang)));
  const times = buildTimes(gang);
  if (times) details.append(times);
  if (gang.why?.length) details.append(buildReasons(gang.why));
  const pod = (gang.ranks.find((rank) => !rank.node) ?? gang.ranks[0])?.pod;
  if (pod) details.append(buildCommand(listExplainCommand(gang.namespace, pod), on.report));
  const ranks = gang.ranks.slice(0, hasAllRanks ? gang.ranks.length : RANKS);
  const hasRails = gang.ranks.some((rank) => rank.rails); // they come as claims
  const columns = ["Rank", "Pod", "Node", "Leaf", ...(hasRails ? ["Rails"] : [])];
  details.append(buildTable(columns, ranks.map((rank) => listRankCells(rank, hasRails, on)), { class: "ranks" }));
  if (!hasAllRanks && gang.ranks.length > RANKS) {
    const button = build("button", { type: "button" }, `Show all ${gang.ranks.length} ranks`);
    button.addEventListener("click", on.showAllRanks);
    details.append(button);
  }
  details.append(build("p", { class: "quiet" }, "Bandwidths are modelled, never measured."), buildClose("Close the gang", on.close));
  return details;
}

/** A button that closes a panel. */
function buildClose(text, close) {
  const button = build("button", { type: "button" }, text);
  button.addEventListener("click", close);
  return button;
}

/** Reasons in words, each with its code behind it. */
function buildReasons(reasons) {
  const items = reasons.map(({ code, message, fix }) => build("li", {}, fix ? `${message}; ${fix}` : message, code ? " " : "", code ? build("code", { class: "code" }, code) : ""));
  return build("ul", { class: "reasons" }, ...items);
}

function buildTimes(gang) {
  if (!isPlaced(gang)) return gang.created_at ? build("p", { class: "quiet" }, "waiting since ", buildAge(gang.created_at)) : "";
  if (!gang.placed_at) return "";
  const wait = describeWait(gang);
  return build("p", { class: "quiet" }, "placed ", buildAge(gang.placed_at), wait && `, ${wait}`);
}

function describeLeaves(gang) {
  if (!gang.leaves) return "";
  const least = gang.min_leaves && gang.min_leaves < gang.leaves ? `, ${gang.min_leaves} would suffice` : "";
  return ` · ${formatCount(gang.leaves, "leaf")}${least}`;
}

function listRankCells(rank, hasRails, on) {
  const node = rank.node ? buildLink(rank.node, () => on.chooseNode(rank.node)) : "waits";
  const pod = rank.pod + (rank.assumed ? " (assumed)" : "");
  const rails = (rank.rails ?? []).map(({ rail, device }) => `${rail} ${device}`).join(", ");
  return [build("td", { class: "number" }, String(rank.rank)), pod, node, (rank.leaf ?? "").split(" in ")[0], ...(hasRails ? [rails] : [])];
}

// --- a node, and a rail ---

/**
 * Build the details of a node. `selection` has the fabric's rails, the selected rail, and the subject of the explanation;
 * `explanation` is undefined until it arrives. `on` gets chooseGang, chooseRail, close and report.
 */
export function buildNodeDetails({ node, leaf }, store, selection, explanation, on) {
  const details = build("div", { class: "node" });
  const place = [leaf.name || "no leaf", ...leaf.above].join(" in ");
  details.append(build("h3", {}, `Node ${node.name} `, build("small", {}, place)));
  for (const note of [node.note, ...(node.rail_notes ?? [])].filter(Boolean)) details.append(build("p", { class: "note" }, note));
  if (node.gpus) details.append(build("p", { class: "quiet" }, `${node.gpus_used ?? 0} of ${formatCount(node.gpus, "GPU")} in use`));
  details.append(buildCommand(listDescribeCommand(node.name), on.report));
  if (selection.subject) details.append(buildExplanation(explanation, selection.subject, on));
  const holders = mapHolders(node);
  const rows = [...node.rails].map((state, rail) => {
    const name = selection.rails[rail] ?? String(rail);
    const cells = [buildLink(name, () => on.chooseRail(name)), buildRailState(node, rail), ...buildHolder(holders.get(rail), store, on)];
    return build("tr", { class: name === selection.rail ? "chosen" : false }, ...cells.map((cell) => build("td", {}, cell)));
  });
  details.append(buildTable(["Rail", "State", "Held by"], rows, { class: "ranks" }), buildClose("Close the node", on.close));
  return details;
}

function buildRailState(node, rail) {
  const state = node.rails[rail];
  return build("span", { class: `rail-state ${state}` }, RAIL_STATES[state] ?? state);
}

function buildHolder(pod, store, on) {
  if (!pod) return ["nobody"];
  const gang = store.getGang(pod.gang);
  const text = `${pod.pod}${pod.assumed ? " (assumed)" : ""}`;
  if (!gang) return [text];
  return [build("span", {}, buildBadge(gang.colour, formatLetter(gang.colour)), " ", buildLink(text, () => on.chooseGang(gang.key)))];
}

function buildExplanation(explanation, subject, on) {
  if (explanation === undefined) return build("p", { class: "quiet" }, `Loading the explanation for ${subject} …`);
  if (explanation.error) return build("p", { class: "quiet" }, `No explanation for ${subject}: ${explanation.error}`);
  const [namespace, ...pod] = explanation.pod.split("/");
  const command = buildCommand(listExplainCommand(namespace, pod.join("/")), on.report);
  const terms = Object.entries(explanation.terms ?? {}).map(([name, term]) => [name, build("td", { class: "number" }, term.value.toFixed(2)), term.message]);
  const table = terms.length ? buildTable(["Term", "Value", "Because"], terms, { class: "ranks" }) : "";
  const box = build("div", { class: "reason" });
  if (explanation.here) {
    box.append(build("h4", {}, `${explanation.pod} is here`));
    box.append(build("p", {}, `This is where it is. If it were placed now, its own devices counted as free: ${explanation.score} of 100.`));
    if (table) box.append(build("details", {}, build("summary", {}, "Terms of that score"), table));
    box.append(command);
    return box;
  }
  box.append(build("h4", {}, explanation.rejection ? `Why ${explanation.pod} cannot be here` : `What ${explanation.pod} would get here now`));
  const reasons = [explanation.rejection, ...(explanation.reasons ?? [])].filter(Boolean);
  if (reasons.length) box.append(buildReasons(reasons));
  if (table) box.append(build("p", {}, `Score ${explanation.score} of 100 at present`), table);
  box.append(command);
  return box;
}

/** The details of a rail on all nodes of a fabric: who holds it, and where it is broken. */
export function buildRailDetails(fabric, rail, store, on) {
  const number = fabric.rails.indexOf(rail);
  const counts = new Map();
  const holders = new Map(); // gang's key or pod's name -> { gang, nodes }
  const broken = [];
  for (const { node } of store.listNodes(fabric.name)) {
    const state = node.rails[number];
    counts.set(state, (counts.get(state) ?? 0) + 1);
    if (/[dw]/.test(state)) broken.push(node);
    const pod = mapHolders(node).get(number);
    if (!pod) continue;
    const key = pod.gang || pod.pod;
    if (!holders.has(key)) holders.set(key, { gang: store.getGang(pod.gang), name: key, nodes: 0 });
    holders.get(key).nodes += 1;
  }
  const text = [...counts].map(([state, count]) => `${count} ${RAIL_STATES[state] ?? state}`).join(", ");
  const details = build("div", { class: "rail-details" }, build("h3", {}, `Rail ${rail} `, build("small", {}, fabric.name)), build("p", {}, `On ${formatCount(fabric.nodes, "node")}: ${text}.`));
  if (broken.length) {
    const rows = broken.map((node) => [buildLink(node.name, () => on.chooseNode(node.name)), buildRailState(node, number)]);
    details.append(build("h4", {}, "Degraded or dead"), buildTable(["Node", "State"], rows, { class: "ranks" }));
  }
  const rows = [...holders.values()].sort((one, other) => other.nodes - one.nodes).map(({ gang, name, nodes }) => {
    const holder = gang ? build("span", {}, buildBadge(gang.colour, formatLetter(gang.colour)), " ", buildLink(`${gang.namespace}/${gang.name}`, () => on.chooseGang(gang.key))) : name;
    return [holder, build("td", { class: "number" }, String(nodes))];
  });
  details.append(build("h4", {}, "Held by"), rows.length ? buildTable(["Gang or pod", "Nodes"], rows, { class: "ranks holders" }) : build("p", { class: "quiet" }, "nobody"));
  details.append(buildClose("Close the rail", on.close));
  return details;
}

/** What is said of a link to something that does not exist. */
export function buildMissing(kind, name, isComplete, on) {
  const text = isComplete
    ? `${kind} ${name} does not exist now: it has ended, was deleted, or the link is of another cluster.`
    : `${kind} ${name} is not known yet: the cluster has not been read completely.`;
  return build("div", { class: "missing" }, build("p", { class: "note" }, text), buildClose("Close", on.close));
}

/** The explanation of one node for one gang or pod: asked for once, and again when the gang has changed. */
export class Explanation {
  /** `received` is called when an explanation has arrived. */
  constructor(store, feed, received) {
    Object.assign(this, { store, feed, received, key: "", value: undefined });
  }

  /** Ask for the explanation of a node for a gang, or for the pod on the node. Returns the gang or pod; "" for neither. */
  request(node, gangKey) {
    const pod = node.pods?.[0];
    const subject = gangKey || pod?.gang || pod?.pod || "";
    const gang = this.store.getGang(subject);
    const key = [subject, node.name, gang?.state, gang?.placed].join(" ");
    if (!subject || key === this.key) return subject;
    Object.assign(this, { key, value: undefined });
    this.fetch(subject, node.name).then((value) => {
      if (key !== this.key) return; // another choice by now
      this.value = value;
      this.received();
    });
    return subject;
  }

  async fetch(subject, node) {
    try {
      const path = `api/why?${new URLSearchParams({ gang: subject, node })}`;
      const response = await fetch(path, { headers: this.feed.buildHeaders(), cache: "no-store", credentials: "omit" });
      const answer = await response.json();
      return response.ok ? answer : { error: answer.error?.reason ?? response.statusText };
    } catch {
      return { error: "the server of this dashboard does not answer" };
    }
  }
}

// --- commands to copy ---

/**
 * A command line with a button that copies it; where the browser does not permit that, the button selects the text.
 * `report` gets what to tell a screen reader.
 */
export function buildCommand(parts, report) {
  const text = parts.map(quote).join(" ");
  const code = build("code", {}, text);
  const button = build("button", { type: "button", class: "copy", "aria-label": `Copy: ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    const isCopied = await copy(text);
    if (!isCopied) getSelection().selectAllChildren(code);
    button.textContent = isCopied ? "Copied" : "Ctrl+C";
    report(isCopied ? "copied" : "selected: press Ctrl+C to copy");
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  return build("div", { class: "command" }, code, button);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text); // absent without TLS, except on loopback
    return true;
  } catch {
    return false;
  }
}

/** An argument as a POSIX shell needs it. Names of objects need no quotes; those in a snapshot may be anything. */
function quote(argument) {
  return /^[\w./:=@%+,-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", `'\\''`)}'`;
}

/** The command that explains the placement of a pod. */
function listExplainCommand(namespace, pod) {
  return ["kubectl", "railwright", "explain", `pod/${pod}`, "-n", namespace];
}

/** The command that shows a node with its conditions, taints and pods. */
function listDescribeCommand(node) {
  return ["kubectl", "describe", "node", node];
}
