// The fabric on a canvas of the size of the visible part, so that the cost depends on visible nodes only. Handles
// painting, pointer and keyboard; `app` owns the selection.

import { computeLayout, findCell, findNeighbour, routeRing } from "./layout.js";
import { getColour } from "./look.js";
import { describeNode } from "./store.js";
import { Tiles } from "./tiles.js";

const TITLE = 44; // pixels above a cell that show its leaf and spine

export class Drawing {
  /** `on` gets choose(node name) and clear(). */
  constructor(elements, store, on) {
    Object.assign(this, elements); // scroller, canvas, spacer, options, summary, hint
    this.store = store;
    this.on = on;
    this.size = "M";
    this.fabric = "";
    this.gang = "";
    this.node = ""; // the selected one
    this.cursor = ""; // the node with the keyboard's focus
    this.matches = null; // names of the nodes that the filters leave; null without a filter
    this.pen = this.canvas.getContext("2d", { alpha: false });
    this.tiles = new Tiles(store);
    this.readTheme();
    this.scroller.addEventListener("scroll", () => this.requestPaint(), { passive: true });
    this.scroller.addEventListener("pointermove", (event) => this.showHint(event));
    this.scroller.addEventListener("pointerleave", () => (this.hint.hidden = true));
    this.scroller.addEventListener("click", (event) => this.handleClick(event));
    this.scroller.addEventListener("keydown", (event) => this.handleKey(event));
    this.scroller.addEventListener("focus", () => this.cursor || this.moveCursor(this.node || this.layout?.order[0]));
    for (const type of ["focus", "blur"]) this.scroller.addEventListener(type, () => this.requestPaint());
    new ResizeObserver(() => this.updateLayout()).observe(this.scroller);
  }

  /** Compute the layout again: another fabric, size or width, or other nodes. */
  updateLayout() {
    const fabric = this.store.getFabric(this.fabric);
    const width = this.scroller.clientWidth;
    if (!fabric || !width) {
      this.layout = undefined;
      this.paintNow();
      return;
    }
    this.layout = computeLayout(fabric, (id) => this.store.getLeaf(id), width, this.size);
    const height = Math.max(this.scroller.clientHeight, 1);
    const ratio = globalThis.devicePixelRatio || 1;
    if (ratio !== this.look.ratio) this.readTheme();
    Object.assign(this.canvas, { width: width * ratio, height: height * ratio });
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    this.spacer.style.height = `${Math.max(0, this.layout.height - height)}px`;
    this.paintNow(); // setting its size has cleared the canvas, and a frame later would show that
  }

  requestPaint() {
    this.request ??= requestAnimationFrame(() => this.paintNow());
  }

  /** Paint, which a requested frame need not do again. */
  paintNow() {
    if (this.request) cancelAnimationFrame(this.request);
    this.request = undefined;
    this.paint();
  }

  // --- painting -----------------------------------------------------------------------------------------------

  paint() {
    const { pen, layout, look } = this;
    const top = this.scroller.scrollTop;
    const bottom = top + this.canvas.height / look.ratio;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.fillStyle = look.surface;
    pen.fillRect(0, 0, this.canvas.width, this.canvas.height);
    if (!layout) return;
    pen.setTransform(look.ratio, 0, 0, look.ratio, 0, -top * look.ratio);
    pen.textBaseline = "middle";
    for (const spine of layout.spines) this.paintSpine(spine, top, bottom);
    const stamp = `${this.fabric} ${this.size} ${layout.cell} ${this.gang} ${this.matchNumber} ${look.number} ${this.colours}`;
    for (const place of layout.leaves) {
      const leaf = place.y < bottom && place.y + place.height > top && this.store.getLeaf(place.id);
      if (!leaf) continue;
      const image = this.tiles.get(place, leaf, layout, { ...look, gang: this.gang, matches: this.matches }, stamp);
      pen.drawImage(image, place.x, place.y, place.width, place.height);
    }
    this.paintRing();
    this.paintSelection();
  }

  /** Read the theme's colours once: reading them for each frame costs more than painting. */
  readTheme() {
    const style = getComputedStyle(this.scroller);
    const names = ["surface", "card", "line", "ink", "quiet", "free", "dead", "weak", "focus"];
    const colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    this.look = { ...colours, ratio: globalThis.devicePixelRatio || 1, number: (this.look?.number ?? 0) + 1 };
  }

  /** Set the nodes that the filters leave; null without a filter. */
  setMatches(matches) {
    if (matches !== this.matches) this.matchNumber = (this.matchNumber ?? 0) + 1;
    this.matches = matches;
  }

  /** Record the gangs' colours: cached images of leaves depend on them. */
  setGangs(gangs) {
    this.colours = gangs.map((gang) => `${gang.key}:${gang.colour}`).join();
  }

  paintSpine(spine, top, bottom) {
    const { pen, look } = this;
    const last = spine.rows.at(-1);
    if (spine.y > bottom || last < top) return;
    pen.strokeStyle = look.line;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.moveTo(spine.x + 8, spine.y + 20);
    pen.lineTo(spine.x + 8, last);
    for (const row of spine.rows) {
      pen.moveTo(spine.x + 8, row);
      pen.lineTo(spine.x + 18, row);
    }
    pen.stroke();
    pen.fillStyle = look.card;
    traceBox(pen, spine.x, spine.y, spine.width, 20, 6);
    pen.fill();
    pen.strokeStyle = look.line;
    pen.lineWidth = 1;
    pen.stroke();
    pen.fillStyle = look.ink;
    pen.font = "600 12px system-ui, Inter, sans-serif";
    pen.fillText(spine.name, spine.x + 10, spine.y + 11, spine.width - 20);
  }

  /** Frame the nodes of the selected gang, and draw its ring in order of rank where it leaves a leaf. */
  paintRing() {
    const gang = this.gang && !this.matches && this.store.getGang(this.gang);
    if (!gang) return;
    const { pen, layout } = this;
    const nodes = gang.ranks.map((rank) => rank.node).filter((name) => layout.cells.has(name));
    pen.strokeStyle = getColour(gang.colour);
    pen.lineWidth = 1.5;
    for (const name of new Set(nodes)) {
      const cell = layout.cells.get(name);
      traceBox(pen, cell.x, cell.y, layout.cell, layout.size.height, 4);
      pen.stroke();
    }
    pen.lineWidth = 2;
    pen.beginPath();
    for (const [startX, startY, endX, endY] of routeRing(layout, nodes)) {
      pen.moveTo(startX, startY);
      pen.lineTo(endX, endY);
    }
    pen.stroke();
  }

  paintSelection() {
    const { pen, layout, look } = this;
    const isFocused = document.activeElement === this.scroller;
    for (const [name, width] of [[this.node, 3], [isFocused ? this.cursor : "", 2]]) {
      const cell = layout.cells.get(name);
      if (!cell) continue;
      pen.strokeStyle = look.focus;
      pen.lineWidth = width;
      traceBox(pen, cell.x - 2, cell.y - 2, layout.cell + 4, layout.size.height + 4, 6);
      if (name !== this.node) pen.setLineDash([4, 2]);
      pen.stroke();
      pen.setLineDash([]);
    }
  }

  // --- pointer and keyboard -------------------------------------------------------------------------------------

  findNodeAt(event) {
    if (!this.layout) return undefined;
    const box = this.scroller.getBoundingClientRect();
    const cell = findCell(this.layout, event.clientX - box.left, event.clientY - box.top + this.scroller.scrollTop);
    return cell && this.store.getLeaf(cell.leaf.id)?.nodes[cell.index]?.name;
  }

  showHint(event) {
    const name = this.findNodeAt(event);
    this.scroller.style.cursor = name ? "pointer" : "";
    this.hint.hidden = !name;
    if (!name) return;
    this.hint.textContent = this.describe(name).join("\n");
    const left = Math.min(event.clientX + 14, innerWidth - this.hint.offsetWidth - 8);
    const top = Math.min(event.clientY + 16, innerHeight - this.hint.offsetHeight - 8);
    Object.assign(this.hint.style, { left: `${left}px`, top: `${top}px` });
  }

  describe(name) {
    return describeNode(this.store.getNode(this.fabric, name), this.store, this.store.getFabric(this.fabric).rails);
  }

  handleClick(event) {
    const name = this.findNodeAt(event);
    if (name) this.moveCursor(name);
    this.on.choose(name ?? "");
  }

  handleKey(event) {
    if (!this.layout || event.ctrlKey || event.metaKey || event.altKey) return;
    const { order, cells } = this.layout;
    const leaf = cells.get(this.cursor)?.leaf;
    const goal = {
      Home: () => order[0],
      End: () => order.at(-1),
      PageDown: () => this.findFirstOfLeaf(leaf, 1),
      PageUp: () => this.findFirstOfLeaf(leaf, -1),
    }[event.key];
    if (event.key.startsWith("Arrow")) this.moveCursor(findNeighbour(this.layout, this.cursor, event.key));
    else if (goal) this.moveCursor(goal());
    else if (event.key === "Enter" || event.key === " ") this.on.choose(this.cursor);
    else if (event.key === "Escape") this.on.clear();
    else return;
    event.preventDefault();
  }

  /** The first node of the leaf so many steps from this one. */
  findFirstOfLeaf(leaf, step) {
    const { leaves } = this.layout;
    const index = Math.min(leaves.length - 1, Math.max(0, leaves.indexOf(leaf) + step));
    return this.store.getLeaf(leaves[index].id)?.nodes[0]?.name;
  }

  /** Move the keyboard's cursor to a node, scroll to it, and have a screen reader announce it. */
  moveCursor(name) {
    const cell = this.layout?.cells.get(name);
    if (!cell) return;
    this.cursor = name;
    this.scrollToCell(cell);
    const [current, next] = this.options;
    next.textContent = this.describe(name).join(". ");
    next.setAttribute("aria-setsize", this.layout.order.length);
    next.setAttribute("aria-posinset", cell.position + 1);
    next.setAttribute("aria-selected", String(name === this.node));
    this.scroller.setAttribute("aria-activedescendant", next.id); // another id each time, otherwise nothing is announced
    this.options = [next, current];
    this.requestPaint();
  }

  /** Scroll as little as necessary; distant nodes go to a third of the height, which shows their surroundings. */
  scrollToCell(cell) {
    const top = this.scroller.scrollTop;
    const viewHeight = this.scroller.clientHeight;
    const { height } = this.layout.size;
    const isNear = cell.y > top - 2 * height && cell.y < top + viewHeight + 2 * height;
    if (cell.y - TITLE >= top && cell.y + height + 12 <= top + viewHeight) return;
    if (!isNear) this.scroller.scrollTop = Math.max(0, cell.y - viewHeight / 3);
    else this.scroller.scrollTop = cell.y - TITLE < top ? Math.max(0, cell.y - TITLE) : cell.y + height + 12 - viewHeight;
  }
}

function traceBox(pen, x, y, width, height, radius) {
  pen.beginPath();
  pen.roundRect(x, y, width, height, radius);
}
