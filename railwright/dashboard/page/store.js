// The data from the server, and look-ups in it. Owns no element.

const EMPTY = { source: "", policy: "", problems: [], fabrics: [], leaves: {}, gangs: [] };

/** The overview, and indexes over it. */
export class Store {
  constructor() {
    this.hasData = false; // true once an overview was received
    this.take(EMPTY);
  }

  /** Take an overview. Leaves that have not changed stay the same objects, so that their images are kept. */
  apply(overview) {
    for (const [id, leaf] of Object.entries(this.overview.leaves)) {
      if (JSON.stringify(overview.leaves[id]) === JSON.stringify(leaf)) overview.leaves[id] = leaf;
    }
    this.hasData = true;
    this.take(overview);
  }

  take(overview) {
    this.overview = overview;
    this.fabrics = new Map(overview.fabrics.map((fabric) => [fabric.name, fabric]));
    this.gangsByKey = new Map(overview.gangs.map((gang) => [gang.key, gang]));
    this.nodes = new Map();
    for (const [id, leaf] of Object.entries(overview.leaves)) {
      for (const node of leaf.nodes) this.nodes.set(`${leaf.fabric} ${node.name}`, { node, leaf, id });
    }
  }

  /** True if the server has read everything, so that what is missing does not exist. */
  get isComplete() {
    return this.hasData && !this.overview.problems.length;
  }

  get fabricNames() {
    return [...this.fabrics.keys()];
  }

  get gangs() {
    return this.overview.gangs;
  }

  getFabric(name) {
    return this.fabrics.get(name);
  }

  getLeaf(id) {
    return this.overview.leaves[id];
  }

  getGang(key) {
    return this.gangsByKey.get(key);
  }

  /** The node of a fabric by name: { node, leaf, id }. */
  getNode(fabric, name) {
    return this.nodes.get(`${fabric} ${name}`);
  }

  /** All nodes of a fabric in the order of the drawing: { node, leaf, id }. */
  listNodes(fabric) {
    const ids = this.getFabric(fabric)?.leaves ?? [];
    return ids.flatMap((id) => this.getLeaf(id).nodes.map((node) => ({ node, leaf: this.getLeaf(id), id })));
  }

  /** The name of a fabric with such a node; undefined if there is none. */
  findFabricOfNode(name) {
    return this.fabricNames.find((fabric) => this.getNode(fabric, name));
  }
}

/** A gang's letter: A to Z, then AA and so on. */
export function formatLetter(colour) {
  let text = "";
  for (let rest = colour + 1; rest > 0; rest = Math.floor((rest - 1) / 26)) text = String.fromCharCode(65 + ((rest - 1) % 26)) + text;
  return text;
}

/** True for a gang whose pods all have nodes. */
export function isPlaced(gang) {
  return gang.state === "placed" || gang.state === "spread";
}

/** How much a gang needs attention: 3 never fits, 2 waits, 1 spread, 0 none. */
export function rankAttention(gang) {
  return { never: 3, waiting: 2, starting: 2, spread: 1 }[gang.state] ?? 0;
}

/** The word and the style of a gang's state, and the reason of the extender's Event about it. */
export function getState(gang) {
  const event = { never: "GangNeverFits", spread: "GangSpread" }[gang.state];
  return { word: gang.state, style: gang.state === "spread" ? "worse" : gang.state, event };
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
