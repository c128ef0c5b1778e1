// The layout of the drawing: spines as bars, their leaves as cards below, nodes as cells inside. Geometry only; one
// number per node and no element.

// Pixels: least width and height of a cell, width of a rail, height of a leaf's title, gap between cells, padding of a
// leaf's card, font size of a rank (0: no text).
export const SIZES = {
  S: { cell: 20, height: 18, rail: 2, title: 13, gap: 2, padding: 6, font: 0 },
  M: { cell: 44, height: 34, rail: 5, title: 15, gap: 3, padding: 8, font: 11 },
  L: { cell: 92, height: 56, rail: 10, title: 17, gap: 4, padding: 10, font: 13 },
};
const TRUNK = 18; // width of the line from a spine to its leaves
const MARGIN = 6; // around everything
const CHANNEL = 8; // at the right edge and above each row of leaves, for the ring of a gang
const SPINE = 24; // height of a spine's bar with the space below it
const BETWEEN = 12; // between two leaves
const MOST_STRETCH = 2; // cells grow up to this factor to use the width

/** The layout of a fabric in a given width: { width, height, spines, leaves, cells by name, order }. */
export function computeLayout(fabric, getLeaf, width, size) {
  const sizes = SIZES[size];
  const spines = groupBySpine(fabric, getLeaf);
  const least = Math.max(sizes.cell, fabric.rails.length * sizes.rail + 6);
  const space = width - TRUNK - 2 * MARGIN - CHANNEL;
  const nodeCounts = fabric.leaves.map((id) => getLeaf(id)?.nodes.length ?? 0);
  const leavesOfSpine = Math.max(1, ...[...spines.values()].map((ids) => ids.length));
  const cell = stretchCell(sizes, least, space, countColumns(Math.max(1, ...nodeCounts)), leavesOfSpine);
  const layout = { size: sizes, cell, rails: fabric.rails.length, width, space, height: 0, spines: [], leaves: [], cells: new Map(), order: [] };
  let y = MARGIN;
  for (const [name, ids] of spines) {
    const spine = { name, x: MARGIN, y, width: width - 2 * MARGIN - CHANNEL, rows: [] };
    layout.spines.push(spine);
    y = placeLeaves(layout, spine, ids, getLeaf, y + SPINE + 6) + 6;
  }
  layout.height = y + 4;
  return layout;
}

function countColumns(nodes) {
  return nodes <= 4 ? nodes : Math.ceil(Math.sqrt(nodes));
}

/** The width of a cell at which as many leaves as fit in a row, evenly spread over the rows, fill the width. */
function stretchCell(sizes, least, space, columns, leaves) {
  const leafWidth = columns * (least + sizes.gap) - sizes.gap + 2 * sizes.padding;
  const most = Math.max(1, Math.floor((space + BETWEEN) / (leafWidth + BETWEEN)));
  const perRow = Math.ceil(leaves / Math.ceil(leaves / most));
  const available = (space + BETWEEN) / perRow - BETWEEN - 2 * sizes.padding + sizes.gap;
  return Math.min(MOST_STRETCH * least, Math.max(least, Math.floor(available / columns) - sizes.gap));
}

function groupBySpine(fabric, getLeaf) {
  const spines = new Map();
  for (const id of fabric.leaves) {
    const leaf = getLeaf(id);
    if (!leaf) continue;
    const name = leaf.above.join(" in ") || (leaf.name ? "no spine" : "nodes without a leaf label");
    if (!spines.has(name)) spines.set(name, []);
    spines.get(name).push(id);
  }
  return spines;
}

function placeLeaves(layout, spine, ids, getLeaf, top) {
  const { size, cell, space } = layout;
  const left = TRUNK + MARGIN;
  const mostColumns = Math.max(1, Math.floor((space - 2 * size.padding + size.gap) / (cell + size.gap)));
  let x = left;
  let y = top;
  let tallest = 0;
  spine.rows.push(y + 10);
  for (const id of ids) {
    const nodes = getLeaf(id).nodes;
    const columns = Math.min(mostColumns, countColumns(nodes.length));
    const width = columns * (cell + size.gap) - size.gap + 2 * size.padding;
    const height = Math.ceil(nodes.length / columns) * (size.height + size.gap) - size.gap + 2 * size.padding + size.title;
    if (x > left && x + width > left + space) {
      x = left;
      y += tallest + BETWEEN;
      tallest = 0;
      spine.rows.push(y + 10);
    }
    const leaf = { id, x, y, width, height, columns, count: nodes.length };
    layout.leaves.push(leaf);
    nodes.forEach((node, index) => {
      layout.cells.set(node.name, { name: node.name, leaf, index, position: layout.order.length, ...locateCell(layout, leaf, index) });
      layout.order.push(node.name);
    });
    x += width + BETWEEN;
    tallest = Math.max(tallest, height);
  }
  return y + tallest + BETWEEN;
}

/** The position of the cell with that index in a leaf. */
export function locateCell(layout, leaf, index) {
  const { size, cell } = layout;
  return {
    x: leaf.x + size.padding + (index % leaf.columns) * (cell + size.gap),
    y: leaf.y + size.padding + size.title + Math.floor(index / leaf.columns) * (size.height + size.gap),
  };
}

/** The leaf and the index of the cell at a point; undefined if there is none. */
export function findCell(layout, x, y) {
  for (const leaf of layout.leaves) {
    if (y < leaf.y || y > leaf.y + leaf.height || x < leaf.x || x > leaf.x + leaf.width) continue;
    const column = Math.floor((x - leaf.x - layout.size.padding) / (layout.cell + layout.size.gap));
    const row = Math.floor((y - leaf.y - layout.size.padding - layout.size.title) / (layout.size.height + layout.size.gap));
    const index = row * leaf.columns + column;
    if (column < 0 || row < 0 || column >= leaf.columns || index >= leaf.count) return undefined;
    return { leaf, index };
  }
  return undefined;
}

/** The name of the nearest cell in a direction, or the same name if there is none. */
export function findNeighbour(layout, name, key) {
  const start = layout.cells.get(name);
  if (!start) return layout.order[0];
  const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (step) return layout.order[Math.min(layout.order.length - 1, Math.max(0, start.position + step))];
  let nearest = name;
  let least = Infinity;
  for (const cell of layout.cells.values()) {
    const rise = key === "ArrowDown" ? cell.y - start.y : start.y - cell.y;
    if (rise <= 0) continue;
    const distance = rise * 4 + Math.abs(cell.x - start.x);
    if (distance < least) [nearest, least] = [cell.name, distance];
  }
  return nearest;
}

/**
 * The lines of a gang's ring between leaves, as [x, y, x, y]: in the gaps above rows of leaves and at the right edge,
 * so that no line crosses a label. `nodes` are in order of rank.
 */
export function routeRing(layout, nodes) {
  const leaves = nodes.map((name) => layout.cells.get(name)?.leaf).filter(Boolean);
  const lines = new Map();
  const add = (...line) => lines.set(line.join(), line);
  leaves.forEach((from, rank) => {
    const to = leaves[(rank + 1) % leaves.length];
    if (from === to) return;
    const [start, end] = [from, to].map((leaf) => ({ x: Math.round(leaf.x + leaf.width / 2), y: leaf.y - BETWEEN / 2, top: leaf.y }));
    for (const { x, y, top } of [start, end]) add(x, y, x, top);
    if (start.y === end.y) {
      add(Math.min(start.x, end.x), start.y, Math.max(start.x, end.x), start.y);
      return;
    }
    const edge = layout.width - CHANNEL / 2;
    for (const { x, y } of [start, end]) add(x, y, edge, y);
    add(edge, Math.min(start.y, end.y), edge, Math.max(start.y, end.y));
  });
  return [...lines.values()];
}
