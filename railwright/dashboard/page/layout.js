// The layout of the drawing: spines as bars, their leaves as cards below, nodes as cells inside. Geometry only; one
// number per node and no element.

export const SIZES = {
  S: { cell: 20, tall: 18, rail: 2, head: 13, gap: 2, card: 6, font: 0 },
  M: { cell: 44, tall: 34, rail: 5, head: 15, gap: 3, card: 8, font: 11 },
  L: { cell: 92, tall: 56, rail: 10, head: 17, gap: 4, card: 10, font: 13 },
};
const TRUNK = 18; // room for the line from a spine to its leaves
const SPINE = 24;
const BETWEEN = 10;

/** The layout of a fabric in a given width: { height, spines, leaves, cells by name, order }. */
export function lay(fabric, leafOf, width, size) {
  const at = SIZES[size];
  const rails = fabric.rails.length;
  const cell = Math.max(at.cell, rails * at.rail + 6);
  const made = { size: at, cell, rails, height: 0, spines: [], leaves: [], cells: new Map(), order: [] };
  let y = 6;
  for (const [name, ids] of below(fabric, leafOf)) {
    const spine = { name, x: 6, y, width: width - 12, rows: [] };
    made.spines.push(spine);
    y = leaves(made, spine, ids, leafOf, width, y + SPINE + 4) + 8;
  }
  made.height = y + 4;
  return made;
}

function below(fabric, leafOf) {
  const spines = new Map();
  for (const id of fabric.leaves) {
    const leaf = leafOf(id);
    if (!leaf) continue;
    const name = leaf.above.join(" in ") || (leaf.name ? "no spine" : "nodes without a leaf label");
    if (!spines.has(name)) spines.set(name, []);
    spines.get(name).push(id);
  }
  return spines;
}

function leaves(made, spine, ids, leafOf, width, top) {
  const { size, cell } = made;
  const most = Math.max(1, Math.floor((width - TRUNK - 12 - 2 * size.card) / (cell + size.gap)));
  let x = TRUNK + 6;
  let y = top;
  let tallest = 0;
  spine.rows.push(y + 10);
  for (const id of ids) {
    const nodes = leafOf(id).nodes;
    const columns = Math.min(most, nodes.length <= 4 ? nodes.length : Math.ceil(Math.sqrt(nodes.length)));
    const wide = columns * (cell + size.gap) - size.gap + 2 * size.card;
    const tall = Math.ceil(nodes.length / columns) * (size.tall + size.gap) - size.gap + 2 * size.card + size.head;
    if (x > TRUNK + 6 && x + wide > width - 6) {
      x = TRUNK + 6;
      y += tallest + BETWEEN;
      tallest = 0;
      spine.rows.push(y + 10);
    }
    const leaf = { id, x, y, wide, tall, columns, count: nodes.length };
    made.leaves.push(leaf);
    nodes.forEach((node, index) => {
      made.cells.set(node.name, { name: node.name, leaf, index, at: made.order.length, ...place(made, leaf, index) });
      made.order.push(node.name);
    });
    x += wide + BETWEEN;
    tallest = Math.max(tallest, tall);
  }
  return y + tallest + BETWEEN;
}

/** The position of the cell with that index in a leaf. */
export function place(made, leaf, index) {
  const { size, cell } = made;
  return {
    x: leaf.x + size.card + (index % leaf.columns) * (cell + size.gap),
    y: leaf.y + size.card + size.head + Math.floor(index / leaf.columns) * (size.tall + size.gap),
  };
}

/** The cell at a point, or undefined. */
export function hit(made, x, y) {
  for (const leaf of made.leaves) {
    if (y < leaf.y || y > leaf.y + leaf.tall || x < leaf.x || x > leaf.x + leaf.wide) continue;
    const column = Math.floor((x - leaf.x - made.size.card) / (made.cell + made.size.gap));
    const row = Math.floor((y - leaf.y - made.size.card - made.size.head) / (made.size.tall + made.size.gap));
    const index = row * leaf.columns + column;
    if (column < 0 || row < 0 || column >= leaf.columns || index >= leaf.count) return undefined;
    return { leaf, index };
  }
  return undefined;
}

/** The name of the nearest cell in a direction, or the same name if there is none. */
export function beside(made, name, key) {
  const from = made.cells.get(name);
  if (!from) return made.order[0];
  const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (step) return made.order[Math.min(made.order.length - 1, Math.max(0, from.at + step))];
  let best = name;
  let least = Infinity;
  for (const cell of made.cells.values()) {
    const down = key === "ArrowDown" ? cell.y - from.y : from.y - cell.y;
    if (down <= 0) continue;
    const distance = down * 4 + Math.abs(cell.x - from.x);
    if (distance < least) [best, least] = [cell.name, distance];
  }
  return best;
}
