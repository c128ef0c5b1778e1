// The table of nodes, and the rows of admissions and Events. All text is inserted as text, never as markup.

import { build, buildAge, buildLink, buildTable } from "./look.js";
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

/** Keep the rows whose text has all words, in the namespace if one is given. */
function filterRows(rows, { text, namespace }, describe) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter((row) => {
    if (namespace && !row.object.startsWith(`${namespace}/`)) return false;
    const content = describe(row).toLowerCase();
    return words.every((word) => content.includes(word));
  });
}

const OUTCOMES = { injected: "injected", skipped: "skipped", missed: "not injected" };

/** The rows of the admissions: one for the pods of a gang with equal results. */
export function buildAdmissionRows(admissions, filters, store, on) {
  const describe = (row) => `${row.object} ${row.gang ?? ""} ${row.message ?? ""} ${OUTCOMES[row.outcome] ?? row.outcome}`;
  return filterRows(admissions, filters, describe).map((row) => {
    const counts = [row.rails, row.added, row.user_values].map((count) => buildCell(count ? String(count) : "", { class: "number" }));
    const outcome = build("span", { class: `outcome ${row.outcome}` }, OUTCOMES[row.outcome] ?? row.outcome);
    return buildRow(buildCell(buildAge(row.at)), buildCell(buildSubject(row, store, on)), buildCell(outcome), buildCell(row.fabric ?? ""), ...counts, buildCell(row.message ?? ""));
  });
}

/** "gnn-11: 16 pods", or the pod's name; then the namespace. */
function buildSubject(row, store, on) {
  const [namespace, ...rest] = row.object.split("/");
  const gang = store.getGang(row.gang);
  const name = gang?.name ?? (row.gang ?? "").split("/").slice(1).join("/");
  const text = row.count > 1 && name ? `${name}: ${row.count} pods` : rest.join("/");
  return build("span", {}, gang ? buildLink(text, () => on.chooseGang(gang.key)) : text, " ", build("small", {}, namespace));
}

/** The rows of the Events. */
export function buildEventRows(events, filters) {
  const describe = (row) => `${row.object} ${row.kind} ${row.reason} ${row.code ?? ""} ${row.message}`;
  return filterRows(events, filters, describe).map((row) => {
    const [namespace, ...rest] = row.object.split("/");
    const subject = build("span", {}, `${row.kind} ${rest.join("/")} `, build("small", {}, namespace));
    const reason = build("span", { class: `outcome ${row.is_warning ? "warning" : ""}` }, row.reason);
    const count = row.count > 1 ? ` (${row.count} times)` : "";
    const code = row.code ? build("code", { class: "code" }, row.code) : "";
    return buildRow(buildCell(buildAge(row.at)), buildCell(subject), buildCell(reason), buildCell(build("span", {}, `${row.message}${count}`, code ? " " : "", code)));
  });
}

// explicit roles: the layout of rows on small screens removes the implicit ones
function buildRow(...cells) {
  return build("tr", { role: "row" }, ...cells);
}

function buildCell(content, attributes = {}) {
  return build("td", { role: "cell", ...attributes }, content);
}
