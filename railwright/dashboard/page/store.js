// The data from the server, and look-ups in it. Owns no element.

/** The sections of the overview, and indexes over them that are rebuilt on demand after a change. */
export class Store {
  constructor() {
    this.sections = new Map();
    this.clean = false;
  }

  /** Apply a delta; return the names of the changed sections. */
  take(delta) {
    if (delta.full) this.sections.clear();
    for (const key of delta.removed) this.sections.delete(key);
    for (const [key, value] of Object.entries(delta.sections)) this.sections.set(key, value);
    this.clean = false;
    return [...Object.keys(delta.sections), ...delta.removed];
  }

  get site() {
    return this.sections.get("site") ?? { source: "", policy: "", problems: [], fabrics: [], gangs: 0, away: "" };
  }

  get admissions() {
    return this.sections.get("admissions") ?? [];
  }

  fabric(name) {
    return this.sections.get(`fabric/${name}`);
  }

  leaf(id) {
    return this.sections.get(`leaf/${id}`);
  }

  get gangs() {
    this.index();
    return this.known.gangs;
  }

  gang(key) {
    return this.sections.get(`gang/${key}`);
  }

  /** The node of a fabric by name: { node, leaf, id }. */
  node(fabric, name) {
    this.index();
    return this.known.nodes.get(`${fabric} ${name}`);
  }

  index() {
    if (this.clean) return;
    const nodes = new Map();
    const gangs = [];
    for (const [key, value] of this.sections) {
      if (key.startsWith("gang/")) gangs.push(value);
      if (!key.startsWith("leaf/")) continue;
      for (const node of value.nodes) nodes.set(`${value.fabric} ${node.name}`, { node, leaf: value, id: key.slice(5) });
    }
    this.known = { nodes, gangs };
    this.clean = true;
  }
}

/** A gang's letter: A to Z, then AA and so on. */
export function letter(colour) {
  let text = "";
  for (let left = colour + 1; left > 0; left = Math.floor((left - 1) / 26)) text = String.fromCharCode(65 + ((left - 1) % 26)) + text;
  return text;
}

/** True if a gang could improve: it waits, or its bandwidth is below the best possible. */
export function attention(gang) {
  if (gang.state !== "placed") return gang.state === "unplaceable" ? 3 : 2;
  return gang.best !== undefined && gang.bandwidth !== undefined && gang.bandwidth < gang.best - 0.005 ? 1 : 0;
}

export const STATES = { f: "free", b: "busy", w: "degraded", d: "dead", "-": "not counted" };

/** A description of a node, for a screen reader and the hint. */
export function described(found, store, rails) {
  const { node, leaf } = found;
  const counts = {};
  for (const each of node.rails) counts[STATES[each]] = (counts[STATES[each]] ?? 0) + 1;
  const parts = [`${node.name}, leaf ${[leaf.name || "none", ...leaf.above].join(" in ")}`];
  if (node.note) parts.push(node.note);
  parts.push(`rails ${Object.entries(counts).map(([name, count]) => `${count} ${name}`).join(", ")}`);
  const dead = [...node.rails].flatMap((each, at) => (each === "d" ? [rails[at] ?? `rail ${at}`] : []));
  if (dead.length) parts.push(`dead: ${dead.join(", ")}`);
  for (const pod of node.pods ?? []) {
    const gang = store.gang(pod.gang);
    const rank = gang && pod.rank >= 0 ? `, rank ${pod.rank} of gang ${letter(gang.colour)}` : "";
    parts.push(`${pod.pod}${rank}${pod.assumed ? ", assumed" : ""}`);
  }
  return parts;
}
