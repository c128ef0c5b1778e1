// The figures in the header, and the details while nothing is selected: use, free space, and what needs attention.

import { buildState } from "./gang_list.js";
import { build, buildBadge, buildLink, formatCount } from "./look.js";
import { countRails, formatLetter, isBroken, isPlaced, rankAttention } from "./store.js";

const MOST_LISTED = 8; // gangs and nodes that need attention
const format = new Intl.NumberFormat("en").format;

/** Show the figures of a fabric and its gangs; dashes while nothing has been read. */
export function showNumbers(list, fabric, gangs, hasData) {
  const waiting = gangs.filter((gang) => !isPlaced(gang)).length;
  const worse = gangs.filter((gang) => gang.state === "spread").length;
  const figures = [
    { name: "rails used", text: formatShare(fabric?.rails_busy, countUsableRails(fabric)), title: "of the rails that are not dead" },
    { name: "GPUs used", text: formatShare(fabric?.gpus_used, fabric?.gpus), title: fabric && `${fabric.gpus_used} of ${fabric.gpus}` },
    { name: "free leaves", text: fabric && `${fabric.leaves_free}/${fabric.leaves.length}`, title: "leaves without any pod, all of whose nodes can be used" },
    { name: "dead rails", text: fabric && format(fabric.rails_dead), style: fabric?.rails_dead ? "bad" : "" },
    { name: "gangs", text: format(gangs.length) },
    { name: "waiting", text: format(waiting), style: waiting ? "worse" : "" },
    { name: "bandwidth/best", text: formatMeans(gangs), title: "modelled bandwidth of the placed gangs, 1.00 at most: the mean as they are placed, and if each had its best placement now" },
    { name: "spread", text: format(worse), style: worse ? "worse" : "", title: "they could have fewer leaves or more bandwidth now" },
  ];
  const items = figures.map(({ name, text, title, style }) => build("div", { class: style || false, title: title || false }, build("dt", {}, name), build("dd", {}, hasData && text ? text : "–")));
  list.replaceChildren(...items);
}

/** The mean modelled bandwidth of the placed gangs, and the mean of the best that each could have now. */
function formatMeans(gangs) {
  const placed = gangs.filter((gang) => gang.bandwidth !== undefined);
  const mean = (read) => (placed.reduce((sum, gang) => sum + read(gang), 0) / placed.length).toFixed(2);
  return placed.length ? `${mean((gang) => gang.bandwidth)}/${mean((gang) => Math.max(gang.bandwidth, gang.best ?? 0))}` : undefined;
}

function countUsableRails(fabric) {
  return fabric && fabric.rails_free + fabric.rails_busy;
}

function formatShare(part, whole) {
  return whole ? `${Math.round((100 * part) / whole)}%` : undefined;
}

/** Build the summary of a fabric. `on` gets chooseGang, chooseNode and chooseRail. */
export function buildSummary(fabric, gangs, store, on) {
  const nodes = store.listNodes(fabric.name).map(({ node }) => node);
  const summary = build("div", { class: "summary" }, build("h3", {}, `Fabric ${fabric.name} `, build("small", {}, `transport ${fabric.transport}`)));
  const facts = [
    `${formatCount(fabric.nodes, "node")} on ${formatCount(fabric.leaves.length, "leaf")}, ${fabric.leaves_free} of them free`,
    `${format(fabric.rails_busy)} of ${formatCount(countUsableRails(fabric), "rail")} in use, ${fabric.rails_dead} dead`,
    fabric.gpus ? `${format(fabric.gpus_used)} of ${formatCount(fabric.gpus, "GPU")} in use` : "",
  ];
  summary.append(build("ul", { class: "facts" }, ...facts.filter(Boolean).map((fact) => build("li", {}, capitalize(fact)))));
  const urgent = gangs.filter((gang) => gang.fabric === fabric.name && rankAttention(gang)).sort((one, other) => rankAttention(other) - rankAttention(one));
  if (urgent.length) summary.append(build("h4", {}, "Gangs that need attention"), buildList(urgent, (gang) => buildGangItem(gang, on)));
  const broken = nodes.filter(isBroken);
  if (broken.length) summary.append(build("h4", {}, "Nodes that need attention"), buildList(broken, (node) => buildNodeItem(node, on)));
  const rails = fabric.rails.map((rail) => buildLink(rail, () => on.chooseRail(rail)));
  summary.append(build("h4", {}, "Who holds a rail"), build("p", { class: "links" }, ...rails));
  summary.append(build("p", { class: "quiet" }, "Choose a gang to see its ranks and its bandwidth, then a node to see why a rank is there or not."));
  return summary;
}

function capitalize(text) {
  return text[0].toUpperCase() + text.slice(1);
}

function buildList(objects, buildItem) {
  const rest = objects.length - MOST_LISTED;
  const items = objects.slice(0, MOST_LISTED).map((object) => build("li", {}, ...buildItem(object)));
  if (rest > 0) items.push(build("li", { class: "quiet" }, `and ${rest} more`));
  return build("ul", { class: "attention" }, ...items);
}

function buildGangItem(gang, on) {
  const why = gang.why?.[0]?.message;
  const link = buildLink(gang.name, () => on.chooseGang(gang.key));
  return [buildBadge(gang.colour, formatLetter(gang.colour)), " ", link, " ", build("small", {}, gang.namespace), " ", buildState(gang), why ? build("span", { class: "why" }, ` ${why}`) : ""];
}

function buildNodeItem(node, on) {
  const faults = countRails(node).filter(([word]) => word === "dead" || word === "degraded");
  const text = [node.note, ...faults.map(([word, count]) => formatCount(count, `${word} rail`))].filter(Boolean).join(", ");
  return [buildLink(node.name, () => on.chooseNode(node.name)), ` ${text}`];
}
