// What is selected, which the fragment of the page's address has so that no server sees it; and the filters of the fabric.

import { formatLetter, isBroken, mapHolders } from "./store.js";

const KEYS = ["fabric", "gang", "node", "rail"];

/** The selection in a fragment; undefined if the fragment is an element of the page, as of the skip links. */
export function parseLink(hash) {
  const text = hash.replace(/^#/, "");
  if (text && !text.includes("=")) return undefined;
  const parameters = new URLSearchParams(text);
  return Object.fromEntries(KEYS.map((key) => [key, parameters.get(key) ?? ""]));
}

/** The fragment of a selection; "" if nothing is selected. A fabric alone is not a selection. */
export function formatLink(selection, defaultFabric) {
  const parameters = new URLSearchParams();
  for (const key of KEYS) {
    if (selection[key] && !(key === "fabric" && selection.fabric === defaultFabric)) parameters.set(key, selection[key]);
  }
  const text = parameters.toString().replaceAll("%2F", "/").replaceAll("%3A", ":");
  return text && `#${text}`;
}

/** The names of the nodes that search, rail and the filter of broken nodes leave; null without any of these. */
export function findMatches(store, gangs, selection, filters) {
  const text = filters.text.trim().toLowerCase();
  const rail = selection.rail && !selection.node ? (store.getFabric(selection.fabric)?.rails.indexOf(selection.rail) ?? -1) : -1;
  if (!text && !filters.onlyBroken && rail < 0) return null;
  const matchingGangs = text ? gangs.filter((gang) => gang.key.toLowerCase().includes(text) || formatLetter(gang.colour).toLowerCase() === text) : [];
  const nodesOfGangs = new Set(matchingGangs.flatMap((gang) => gang.ranks.map((rank) => rank.node)));
  const matches = new Set();
  for (const { node, leaf } of store.listNodes(selection.fabric)) {
    const names = [node.name, leaf.name, ...leaf.above, ...(node.pods ?? []).map((pod) => pod.pod)];
    const hasText = !text || nodesOfGangs.has(node.name) || names.some((name) => name.toLowerCase().includes(text));
    const hasRail = rail < 0 || mapHolders(node).has(rail) || "dw".includes(node.rails[rail]);
    if (hasText && hasRail && (!filters.onlyBroken || isBroken(node))) matches.add(node.name);
  }
  return matches;
}

/** Update the options of a select element after its first one, which stands for no choice. */
export function updateOptions(element, names, chosen, prefix = "") {
  const present = [...element.options].slice(1).map((option) => option.value);
  if (present.join() !== names.join()) element.replaceChildren(element.options[0], ...names.map((name) => new Option(prefix + name, name)));
  if (element.value !== chosen) element.value = chosen;
}
