// The details of a gang: its state, age, reasons with codes, and ranks.

import { buildAge } from "./ages.js";
import { buildCommand, listExplainCommand } from "./commands.js";
import { buildState, describeGang, describeWait } from "./gang_list.js";
import { build, buildBadge, buildLink, buildTable, formatCount } from "./look.js";
import { formatLetter } from "./store.js";

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
export function buildClose(text, close) {
  const button = build("button", { type: "button" }, text);
  button.addEventListener("click", close);
  return button;
}

/** Reasons in words, each with its code behind it. */
export function buildReasons(reasons) {
  const items = reasons.map(({ code, message }) => build("li", {}, message, code ? " " : "", code ? build("code", { class: "code" }, code) : ""));
  return build("ul", { class: "reasons" }, ...items);
}

function buildTimes(gang) {
  if (gang.state !== "placed") return gang.created_at ? build("p", { class: "quiet" }, "waiting since ", buildAge(gang.created_at)) : "";
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
