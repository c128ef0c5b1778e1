// The fabric on a canvas of the size of the visible part, so that the cost depends on visible nodes only. Handles
// painting, pointer and keyboard; `app` owns the selection.

import { beside, hit, lay } from "./layout.js";
import { colour } from "./look.js";
import { described } from "./store.js";
import { Tiles } from "./tiles.js";

const still = matchMedia("(prefers-reduced-motion: reduce)");
const FLASH = 900; // ms that a changed node glows

export class Drawing {
  constructor(elements, store, on) {
    Object.assign(this, elements); // scroller, canvas, spacer, options, summary, hint
    this.store = store;
    this.on = on;
    this.size = "M";
    this.fabric = "";
    this.gang = "";
    this.node = ""; // chosen
    this.cursor = ""; // of the keyboard
    this.found = null; // names that the search matches; null: no search
    this.flashes = new Map();
    this.pen = this.canvas.getContext("2d", { alpha: false });
    this.tiles = new Tiles(store);
    this.relook();
    this.scroller.addEventListener("scroll", () => this.repaint(), { passive: true });
    this.scroller.addEventListener("pointermove", (event) => this.pointed(event));
    this.scroller.addEventListener("pointerleave", () => (this.hint.hidden = true));
    this.scroller.addEventListener("click", (event) => this.clicked(event));
    this.scroller.addEventListener("keydown", (event) => this.pressed(event));
    this.scroller.addEventListener("focus", () => this.cursor || this.move(this.node || this.made?.order[0]));
    this.scroller.addEventListener("focus", () => this.repaint());
    this.scroller.addEventListener("blur", () => this.repaint());
    new ResizeObserver(() => this.relay()).observe(this.scroller);
  }

  /** Recompute the layout: another fabric, size or width, or other nodes. */
  relay() {
    const fabric = this.store.fabric(this.fabric);
    const width = this.scroller.clientWidth;
    if (!fabric || !width) {
      this.made = undefined;
      this.repaint();
      return;
    }
    this.made = lay(fabric, (id) => this.store.leaf(id), width, this.size);
    const height = Math.max(this.scroller.clientHeight, 1);
    const ratio = globalThis.devicePixelRatio || 1;
    if (ratio !== this.look.ratio) this.relook();
    Object.assign(this.canvas, { width: width * ratio, height: height * ratio });
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    this.spacer.style.height = `${Math.max(0, this.made.height - height)}px`;
    this.repaint();
  }

  /** Leaves have changed; changed nodes glow for a moment. */
  changed(old, id) {
    const leaf = this.store.leaf(id);
    if (!leaf || !old || still.matches) return;
    const before = new Map(old.nodes.map((node) => [node.name, JSON.stringify(node)]));
    const until = performance.now() + FLASH;
    for (const node of leaf.nodes) if (before.get(node.name) !== JSON.stringify(node)) this.flashes.set(node.name, until);
  }

  repaint() {
    this.asked ??= requestAnimationFrame(() => {
      this.asked = undefined;
      const began = performance.now();
      this.paint(began);
      performance.clearMeasures("railwright-paint");
      performance.measure("railwright-paint", { start: began, end: performance.now() });
    });
  }

  // --- painting -----------------------------------------------------------------------------------------------

  paint(now) {
    const { pen, made, look } = this;
    const top = this.scroller.scrollTop;
    const height = this.canvas.height / look.ratio;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.fillStyle = look.surface;
    pen.fillRect(0, 0, this.canvas.width, this.canvas.height);
    if (!made) return;
    pen.setTransform(look.ratio, 0, 0, look.ratio, 0, -top * look.ratio);
    pen.textBaseline = "middle";
    for (const spine of made.spines) this.spine(spine, top, height);
    const stamp = `${this.fabric} ${this.size} ${this.gang} ${this.seen} ${look.number} ${this.colours}`;
    for (const leaf of made.leaves) {
      const found = leaf.y < top + height && leaf.y + leaf.tall > top && this.store.leaf(leaf.id);
      if (found) pen.drawImage(this.tiles.of(leaf, found, made, { ...look, gang: this.gang, found: this.found }, stamp), leaf.x, leaf.y, leaf.wide, leaf.tall);
    }
    for (const [name, until] of this.flashes) {
      this.glow(name, until, now);
      if (until < now) this.flashes.delete(name);
    }
    this.ring();
    this.marks();
    if (this.flashes.size) this.repaint();
  }

  /** The theme's colours, read once: reading them for each frame costs more than painting. */
  relook() {
    const style = getComputedStyle(this.scroller);
    const inks = ["surface", "card", "line", "ink", "quiet", "free", "dead", "weak", "focus"];
    this.look = { ...Object.fromEntries(inks.map((name) => [name, style.getPropertyValue(`--${name}`).trim()])), ratio: globalThis.devicePixelRatio || 1, number: (this.look?.number ?? 0) + 1 };
  }

  /** The result of a search; null without a search. */
  sought(found) {
    if (found !== this.found) this.seen = (this.seen ?? 0) + 1;
    this.found = found;
  }

  /** The gangs' colours; cached images of leaves depend on them. */
  coloured(gangs) {
    this.colours = gangs.map((gang) => `${gang.key}:${gang.colour}`).join();
  }

  spine(spine, top, height) {
    const { pen, look: ink } = this;
    const last = spine.rows.at(-1);
    if (spine.y > top + height || last < top) return;
    pen.strokeStyle = ink.line;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.moveTo(spine.x + 8, spine.y + 20);
    pen.lineTo(spine.x + 8, last);
    for (const row of spine.rows) {
      pen.moveTo(spine.x + 8, row);
      pen.lineTo(spine.x + 18, row);
    }
    pen.stroke();
    pen.fillStyle = ink.card;
    box(pen, spine.x, spine.y, spine.width, 20, 6);
    pen.fill();
    pen.strokeStyle = ink.line;
    pen.lineWidth = 1;
    pen.stroke();
    pen.fillStyle = ink.ink;
    pen.font = "600 12px system-ui, Inter, sans-serif";
    pen.fillText(spine.name, spine.x + 10, spine.y + 11, spine.width - 20);
  }

  glow(name, until, now) {
    const cell = this.made.cells.get(name);
    if (!cell) return;
    this.pen.strokeStyle = this.look.focus;
    this.pen.lineWidth = 1 + (3 * Math.max(0, until - now)) / FLASH;
    box(this.pen, cell.x, cell.y, this.made.cell, this.made.size.tall, 4);
    this.pen.stroke();
  }

  /** The ring of the selected gang in order of rank, which shows where it crosses leaves. */
  ring() {
    const gang = this.gang && !this.found && this.store.gang(this.gang);
    if (!gang) return;
    const { pen, made } = this;
    const points = gang.ranks.map((rank) => made.cells.get(rank.node)).filter(Boolean);
    if (points.length < 2) return;
    pen.strokeStyle = colour(gang.colour, 0.75);
    pen.lineWidth = 2;
    pen.lineJoin = "round";
    pen.beginPath();
    for (const cell of [...points, points[0]]) pen.lineTo(cell.x + made.cell / 2, cell.y + made.size.tall * 0.52);
    pen.stroke();
  }

  marks() {
    const { pen, made, look: ink } = this;
    const focused = document.activeElement === this.scroller;
    for (const [name, thick] of [[this.node, 3], [focused ? this.cursor : "", 2]]) {
      const cell = made.cells.get(name);
      if (!cell) continue;
      pen.strokeStyle = ink.focus;
      pen.lineWidth = thick;
      box(pen, cell.x - 2, cell.y - 2, made.cell + 4, made.size.tall + 4, 6);
      if (name !== this.node) pen.setLineDash([4, 2]);
      pen.stroke();
      pen.setLineDash([]);
    }
  }

  // --- pointing and moving --------------------------------------------------------------------------------------

  at(event) {
    if (!this.made) return undefined;
    const around = this.scroller.getBoundingClientRect();
    const under = hit(this.made, event.clientX - around.left, event.clientY - around.top + this.scroller.scrollTop);
    return under && this.store.leaf(under.leaf.id)?.nodes[under.index]?.name;
  }

  pointed(event) {
    const name = this.at(event);
    this.scroller.style.cursor = name ? "pointer" : "";
    this.hint.hidden = !name;
    if (!name) return;
    const found = this.store.node(this.fabric, name);
    this.hint.textContent = described(found, this.store, this.store.fabric(this.fabric).rails).join("\n");
    const left = Math.min(event.clientX + 14, innerWidth - this.hint.offsetWidth - 8);
    const top = Math.min(event.clientY + 16, innerHeight - this.hint.offsetHeight - 8);
    Object.assign(this.hint.style, { left: `${left}px`, top: `${top}px` });
  }

  clicked(event) {
    const name = this.at(event);
    if (name) this.move(name);
    this.on.chosen(name ?? "");
  }

  pressed(event) {
    if (!this.made || event.ctrlKey || event.metaKey || event.altKey) return;
    const { order, cells, leaves } = this.made;
    const here = cells.get(this.cursor);
    const goal = {
      Home: () => order[0],
      End: () => order.at(-1),
      PageDown: () => this.leafBeside(leaves, here, 1),
      PageUp: () => this.leafBeside(leaves, here, -1),
    }[event.key];
    if (event.key.startsWith("Arrow")) this.move(beside(this.made, this.cursor, event.key));
    else if (goal) this.move(goal());
    else if (event.key === "Enter" || event.key === " ") this.on.chosen(this.cursor);
    else if (event.key === "Escape") this.on.cleared();
    else return;
    event.preventDefault();
  }

  leafBeside(leaves, here, step) {
    const at = leaves.indexOf(here?.leaf) + step;
    const leaf = leaves[Math.min(leaves.length - 1, Math.max(0, at))];
    return this.store.leaf(leaf.id)?.nodes[0]?.name;
  }

  /** Move the keyboard's cursor to a node, scroll to it, and have it read out. */
  move(name) {
    const cell = this.made?.cells.get(name);
    if (!cell) return;
    this.cursor = name;
    this.show(cell);
    const [now, then] = this.options;
    const found = this.store.node(this.fabric, name);
    then.textContent = described(found, this.store, this.store.fabric(this.fabric).rails).join(". ");
    then.setAttribute("aria-setsize", this.made.order.length);
    then.setAttribute("aria-posinset", cell.at + 1);
    then.setAttribute("aria-selected", String(name === this.node));
    this.scroller.setAttribute("aria-activedescendant", then.id); // a new id each time, otherwise nothing is read out
    this.options = [then, now];
    this.repaint();
  }

  /** Scroll as little as necessary; distant nodes go to a third of the height, which shows their surroundings. */
  show(cell) {
    const top = this.scroller.scrollTop;
    const height = this.scroller.clientHeight;
    const tall = this.made.size.tall;
    const near = cell.y > top - 2 * tall && cell.y < top + height + 2 * tall;
    if (cell.y - 44 >= top && cell.y + tall + 12 <= top + height) return;
    if (!near) this.scroller.scrollTop = Math.max(0, cell.y - height / 3);
    else this.scroller.scrollTop = cell.y - 44 < top ? Math.max(0, cell.y - 44) : cell.y + tall + 12 - height;
  }
}

function box(pen, x, y, wide, tall, round) {
  pen.beginPath();
  pen.roundRect(x, y, wide, tall, round);
}
