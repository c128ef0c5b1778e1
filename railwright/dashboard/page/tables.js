// The table of nodes. All text is inserted as text, never as markup.

import { build, buildLink, buildTable } from "./look.js";
import { countRails, formatLetter } from "./store.js";

/** The fabric as a table, the accessible equivalent of the drawing. `matches`: names to show, null for all. */
export function buildNodeTable(fabric, store, matches, on) {
  const rows = [];
  for (const { node, leaf } of store.listNodes(fabric.name)) {
    if (matches && !matches.has(node.name)) continue;
    const name = build("th", { scope: "row" }, buildLink(node.name, () => on.chooseNode(node.name)));
    const rails = countRails(node).map(([word, count]) => `${count} ${word}`).join(", ");
    const pods = (node.pods ?? []).map((pod) => describePod(pod, store)).join(", ");
    rows.push([leaf.above.join(" in "), leaf.name, name, rails, pods, node.note ?? ""]);
  }
  const table = buildTable(["Spine", "Leaf", "Node", "Rails", "Gangs and pods", "Note"], rows);
  table.prepend(build("caption", { class: "hidden" }, `Nodes of fabric ${fabric.name}`));
  return table;
}

function describePod(pod, store) {
  const gang = store.getGang(pod.gang);
  return gang ? `${formatLetter(gang.colour)}${pod.rank >= 0 ? ` rank ${pod.rank}` : ""} (${gang.name})` : pod.pod;
}
