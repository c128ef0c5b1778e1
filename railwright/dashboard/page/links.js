// Links to a gang, node or rail: they are in the fragment of the page's address, so that no server sees them.

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
