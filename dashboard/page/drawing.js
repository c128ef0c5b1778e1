// The fabric on a canvas the size of what is seen: a thousand nodes cost what the visible ones cost.
// Owns painting, pointing and the keyboard; what is chosen, `app` decides.

import { beside, hit, lay } from "./layout.js";
import { colour, tint } from "./look.js";
import { described, letter } from "./store.js";

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

  /** Lay everything anew: another fabric, size or width, or nodes that came or went. */
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
    Object.assign(this.canvas, { width: width * ratio, height: height * ratio });
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    this.spacer.style.height = `${Math.max(0, this.made.height - height)}px`;
    this.repaint();
  }

  /** What leaves look like changed; the nodes that differ glow for a moment. */
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
    const { pen, made } = this;
    const ratio = globalThis.devicePixelRatio || 1;
    const style = getComputedStyle(this.scroller);
    this.ink = Object.fromEntries(["surface", "card", "line", "ink", "quiet", "free", "dead", "weak", "focus"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    const top = this.scroller.scrollTop;
    const height = this.canvas.height / ratio;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.fillStyle = this.ink.surface;
    pen.fillRect(0, 0, this.canvas.width, this.canvas.height);
    if (!made) return;
    pen.setTransform(ratio, 0, 0, ratio, 0, -top * ratio);
    pen.textBaseline = "middle";
    for (const spine of made.spines) this.spine(spine, top, height);
    for (const leaf of made.leaves) if (leaf.y < top + height && leaf.y + leaf.tall > top) this.leaf(leaf, now);
    this.ring();
    this.marks();
    for (const [name, until] of this.flashes) if (until < now) this.flashes.delete(name);
    if (this.flashes.size) this.repaint();
  }

  spine(spine, top, height) {
    const { pen, ink } = this;
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

  leaf(leaf, now) {
    const { pen, ink, made } = this;
    const found = this.store.leaf(leaf.id);
    if (!found) return;
    pen.fillStyle = ink.card;
    box(pen, leaf.x, leaf.y, leaf.wide, leaf.tall, 7);
    pen.fill();
    pen.strokeStyle = ink.line;
    pen.lineWidth = 1;
    pen.stroke();
    pen.fillStyle = ink.quiet;
    pen.font = `${made.size.font ? 11 : 9}px system-ui, Inter, sans-serif`;
    pen.fillText(found.name || "no leaf", leaf.x + made.size.card, leaf.y + made.size.card + made.size.head / 2 - 4, leaf.wide - 2 * made.size.card);
    found.nodes.forEach((node) => {
      const cell = made.cells.get(node.name);
      if (cell && cell.leaf === leaf) this.cell(node, cell, now);
    });
  }

  cell(node, cell, now) {
    const { pen, ink, made } = this;
    const { x, y } = cell;
    const pods = node.pods ?? [];
    const wide = made.cell;
    const tall = made.size.tall;
    pen.globalAlpha = this.faint(node, pods) ? 0.22 : 1;
    box(pen, x, y, wide, tall, 4);
    pen.fillStyle = ink.surface;
    pen.fill();
    const gangs = [...new Set(pods.map((pod) => pod.gang ?? ""))];
    gangs.slice(0, 3).forEach((key, part) => this.ground(key, x + (part * wide) / Math.min(3, gangs.length), y, wide / Math.min(3, gangs.length), tall));
    const glow = (this.flashes.get(node.name) ?? 0) - now;
    box(pen, x, y, wide, tall, 4);
    pen.strokeStyle = glow > 0 ? ink.focus : node.note ? ink.dead : ink.line;
    pen.lineWidth = glow > 0 ? 1 + (3 * glow) / FLASH : 1;
    if (node.note) pen.setLineDash([3, 2]);
    pen.stroke();
    pen.setLineDash([]);
    if (made.size.font) this.words(node, pods, x, y, wide);
    this.rails(node, pods, x, y + tall - (made.size.font ? Math.round(tall * 0.36) : 12), wide);
    pen.globalAlpha = 1;
  }

  /** True for what the choice or the search is not about. */
  faint(node, pods) {
    if (this.found) return !this.found.has(node.name);
    return Boolean(this.gang) && !pods.some((pod) => pod.gang === this.gang);
  }

  ground(key, x, y, wide, tall) {
    const { pen, ink } = this;
    const gang = this.store.gang(key);
    pen.fillStyle = gang ? tint(pen, gang.colour) : ink.line;
    box(pen, x, y, wide, tall, 4);
    pen.fill();
  }

  words(node, pods, x, y, wide) {
    const { pen, ink, made } = this;
    const large = made.size.font > 12;
    if (large) {
      pen.fillStyle = ink.quiet;
      pen.font = "10px system-ui, Inter, sans-serif";
      pen.fillText(node.name, x + 5, y + 10, wide - 10);
    }
    const labels = pods.map((pod) => {
      const gang = this.store.gang(pod.gang);
      return gang ? letter(gang.colour) + (pod.rank >= 0 ? pod.rank : "") + (pod.announced ? "…" : "") : "•";
    });
    const text = labels.length > 2 ? `${labels[0]} +${labels.length - 1}` : labels.join(" ") || (node.note ? "off" : "");
    if (!text) return;
    pen.fillStyle = pods.length ? ink.ink : ink.quiet;
    pen.font = `${pods.length ? 700 : 400} ${made.size.font}px system-ui, Inter, sans-serif`;
    pen.textAlign = large ? "left" : "center";
    pen.fillText(text, large ? x + 5 : x + wide / 2, y + (large ? 25 : 11), wide - 6);
    pen.textAlign = "left";
  }

  /** A rail is a slot: hollow where it is free, full where it is busy, half where it is degraded, crossed where dead. */
  rails(node, pods, x, y, wide) {
    const { pen, ink, made } = this;
    const tall = made.size.font ? Math.round(made.size.tall * 0.27) : 10;
    const step = (wide - 6) / made.rails;
    const broad = Math.max(1, step - (step > 3 ? 1.5 : 0.6));
    const held = new Map();
    for (const pod of pods) for (const rail of pod.rails) held.set(rail, this.store.gang(pod.gang));
    for (let rail = 0; rail < made.rails; rail++) {
      const left = x + 3 + rail * step;
      const state = node.rails[rail];
      const gang = held.get(rail);
      const full = gang ? colour(gang.colour) : ink.quiet;
      if (state === "d") this.dead(left, y, broad, tall);
      else if (held.has(rail) && state !== "w") {
        pen.fillStyle = full;
        pen.fillRect(left, y, broad, tall);
      } else if (state === "w") {
        pen.fillStyle = held.has(rail) ? full : ink.weak;
        pen.fillRect(left, y + tall / 2, broad, tall / 2);
        this.slot(left, y, broad, tall, ink.weak);
      } else if (state !== "-") this.slot(left, y, broad, tall, ink.free);
    }
  }

  slot(left, y, broad, tall, ink) {
    const { pen } = this;
    if (broad < 3) {
      pen.fillStyle = ink; // too narrow to be hollow: a foot instead
      pen.fillRect(left, y + tall - 2, broad, 2);
      return;
    }
    pen.strokeStyle = ink;
    pen.lineWidth = 1;
    pen.strokeRect(left + 0.5, y + 0.5, broad - 1, tall - 1);
  }

  dead(left, y, broad, tall) {
    const { pen, ink } = this;
    pen.strokeStyle = ink.dead;
    pen.lineWidth = 1.6;
    pen.beginPath();
    pen.moveTo(left, y);
    pen.lineTo(left + broad, y + tall);
    if (broad >= 3) {
      pen.moveTo(left + broad, y);
      pen.lineTo(left, y + tall);
    }
    pen.stroke();
  }

  /** The chosen gang's ring in order of rank, so that one sees where it leaves a leaf. */
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
    const { pen, made, ink } = this;
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

  /** Put the keyboard's cursor on a node, bring it into view and have it read out. */
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
    this.scroller.setAttribute("aria-activedescendant", then.id); // another id each time: else nothing is read out
    this.options = [then, now];
    this.repaint();
  }

  show(cell) {
    const top = this.scroller.scrollTop;
    const height = this.scroller.clientHeight;
    if (cell.y - 30 < top) this.scroller.scrollTop = Math.max(0, cell.y - 40);
    else if (cell.y + this.made.size.tall + 10 > top + height) this.scroller.scrollTop = cell.y + this.made.size.tall + 20 - height;
  }
}

function box(pen, x, y, wide, tall, round) {
  pen.beginPath();
  pen.roundRect(x, y, wide, tall, round);
}
