// The data from the server, and look-ups in it. Owns no element.

const EMPTY_SITE = { source: "", policy: "", problems: [], fabrics: [], gangs: 0, away: "", reading: [], has_events: false };

/** The sections of the overview, and indexes over them that are rebuilt on demand after a change. */
export class Store {
  constructor() {
    this.sections = new Map();
    this.hasIndex = false;
  }

  /** Apply a delta; return the names of the changed sections. */
  apply(delta) {
    if (delta.full) this.sections.clear();
    for (const key of delta.removed) this.sections.delete(key);
    for (const [key, value] of Object.entries(delta.sections)) this.sections.set(key, value);
    this.hasIndex = false;
    return [...Object.keys(delta.sections), ...delta.removed];
  }

  get site() {
    return this.sections.get("site") ?? EMPTY_SITE;
  }

  /** True once the server has read everything, so that what is missing does not exist. */
  get isComplete() {
    return this.sections.has("site") && !this.site.reading.length && !this.site.away;
  }

  /** True if there is anything to count: the sources were read at some time. */
  get hasData() {
    return this.isComplete || this.site.fabrics.some((name) => this.getFabric(name)?.nodes);
  }

  get admissions() {
    return this.sections.get("admissions") ?? [];
  }

  get events() {
    return this.sections.get("events") ?? [];
  }

  get gangs() {
    this.buildIndex();
    return this.index.gangs;
  }

  getFabric(name) {
    return this.sections.get(`fabric/${name}`);
  }

  getLeaf(id) {
    return this.sections.get(`leaf/${id}`);
  }

  getGang(key) {
    return this.sections.get(`gang/${key}`);
  }

  /** The node of a fabric by name: { node, leaf, id }. */
  getNode(fabric, name) {
    this.buildIndex();
    return this.index.nodes.get(`${fabric} ${name}`);
  }

  /** All nodes of a fabric in the order of the drawing: { node, leaf, id }. */
  listNodes(fabric) {
    const ids = this.getFabric(fabric)?.leaves ?? [];
    return ids.flatMap((id) => {
      const leaf = this.getLeaf(id);
      return (leaf?.nodes ?? []).map((node) => ({ node, leaf, id }));
    });
  }

  /** The name of a fabric with such a node; undefined if there is none. */
  findFabricOfNode(name) {
    return this.site.fabrics.find((fabric) => this.getNode(fabric, name));
  }

  buildIndex() {
    if (this.hasIndex) return;
    const nodes = new Map();
    const gangs = [];
    for (const [key, value] of this.sections) {
      if (key.startsWith("gang/")) gangs.push(value);
      if (!key.startsWith("leaf/")) continue;
      for (const node of value.nodes) nodes.set(`${value.fabric} ${node.name}`, { node, leaf: value, id: key.slice(5) });
    }
    this.index = { nodes, gangs };
    this.hasIndex = true;
  }
}

/** A gang's letter: A to Z, then AA and so on. */
export function formatLetter(colour) {
  let text = "";
  for (let rest = colour + 1; rest > 0; rest = Math.floor((rest - 1) / 26)) text = String.fromCharCode(65 + ((rest - 1) % 26)) + text;
  return text;
}

/** True for a placed gang that could be on fewer leaves or have more bandwidth. */
export function isWorse(gang) {
  return gang.outcome === "spread" || gang.outcome === "degraded";
}

/** How much a gang needs attention: 3 never fits, 2 waiting, 1 spread or degraded, 0 none. */
export function rankAttention(gang) {
  if (gang.state !== "placed") return gang.state === "never" ? 3 : 2;
  return isWorse(gang) ? 1 : 0;
}

/** The word and the style of a gang's state: outcomes in the words of the extender's Events. */
export function getState(gang) {
  if (gang.state === "never") return { word: "never fits", style: "never", event: "GangUnplaceable" };
  if (gang.state === "unplaceable") return { word: "waiting", style: "unplaceable", event: "GangUnplaceable" };
  if (gang.state !== "placed") return { word: gang.state, style: gang.state };
  if (gang.outcome === "spread") return { word: "spread", style: "worse", event: "GangSpread" };
  if (gang.outcome === "degraded") return { word: "degraded", style: "worse", event: "GangDegraded" };
  return { word: "placed", style: "placed" };
}

export const RAIL_STATES = { f: "free", b: "busy", w: "degraded", d: "dead", "-": "not counted" };

/** True for a node with a dead or degraded rail, or one that no pod is placed on. */
export function isBroken(node) {
  return Boolean(node.note) || /[dw]/.test(node.rails);
}

/** The pod that holds each rail of a node: rail number -> pod. */
export function mapHolders(node) {
  const holders = new Map();
  for (const pod of node.pods ?? []) for (const rail of pod.rails) holders.set(rail, pod);
  return holders;
}

/** The number of rails in each state: [[word, count], ...]. */
export function countRails(node) {
  return Object.entries(RAIL_STATES)
    .map(([state, word]) => [word, [...node.rails].filter((letter) => letter === state).length])
    .filter(([, count]) => count);
}

/** A description of a node, for a screen reader and the hint. */
export function describeNode({ node, leaf }, store, railNames) {
  const lines = [`${node.name}, leaf ${[leaf.name || "none", ...leaf.above].join(" in ")}`];
  if (node.note) lines.push(node.note);
  lines.push(`rails ${countRails(node).map(([word, count]) => `${count} ${word}`).join(", ")}`);
  const dead = [...node.rails].flatMap((state, rail) => (state === "d" ? [railNames[rail] ?? `rail ${rail}`] : []));
  if (dead.length) lines.push(`dead: ${dead.join(", ")}`);
  for (const pod of node.pods ?? []) {
    const gang = store.getGang(pod.gang);
    const rank = gang && pod.rank >= 0 ? `, rank ${pod.rank} of gang ${formatLetter(gang.colour)}` : "";
    lines.push(`${pod.pod}${rank}${pod.assumed ? ", assumed" : ""}`);
  }
  return lines;
}
