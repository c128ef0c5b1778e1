// Draws each leaf into an image and reuses the image until the leaf changes, so that scrolling a thousand nodes only
// copies a few dozen images. Defines the appearance of nodes and rails.

import { colour, tint } from "./look.js";
import { letter } from "./store.js";

const MAX_PICTURES = 128; // the least recently drawn ones are dropped first
const FACE = "system-ui, Inter, sans-serif";

export class Tiles {
  constructor(store) {
    this.store = store;
    this.pictures = new Map();
    this.stamp = "";
  }

  /** The image of a leaf; `stamp` identifies everything else that it depends on. */
  of(leaf, found, made, look, stamp) {
    if (stamp !== this.stamp) {
      this.pictures.clear();
      this.stamp = stamp;
    }
    const old = this.pictures.get(leaf.id);
    if (old?.found === found && old.columns === leaf.columns) return old.picture;
    const picture = old?.picture ?? document.createElement("canvas");
    picture.width = Math.ceil(leaf.wide * look.ratio);
    picture.height = Math.ceil(leaf.tall * look.ratio);
    const pen = picture.getContext("2d", { alpha: false });
    pen.scale(look.ratio, look.ratio);
    new Painter(pen, this.store, made, look).leaf(leaf, found);
    this.pictures.delete(leaf.id);
    this.pictures.set(leaf.id, { found, columns: leaf.columns, picture });
    if (this.pictures.size > MAX_PICTURES) this.pictures.delete(this.pictures.keys().next().value);
    return picture;
  }
}

/** Collects shapes of the same kind and style into one path: one call is several times faster than one for each shape. */
class Layer {
  constructor() {
    this.kinds = new Map();
    this.texts = [];
  }

  path(kind, style) {
    const key = `${kind} ${typeof style === "string" ? style : ""}`;
    let entry = this.kinds.get(style instanceof CanvasPattern ? style : key);
    if (!entry) {
      entry = { kind, style, path: new Path2D() };
      this.kinds.set(style instanceof CanvasPattern ? style : key, entry);
    }
    return entry.path;
  }
}

const ORDER = ["cell", "ground", "frame", "off", "fill", "slot", "cross"];

class Painter {
  constructor(pen, store, made, look) {
    Object.assign(this, { pen, store, made, look });
  }

  leaf(leaf, found) {
    const { pen, made, look } = this;
    pen.fillStyle = look.surface;
    pen.fillRect(0, 0, leaf.wide, leaf.tall);
    pen.beginPath();
    pen.roundRect(0.5, 0.5, leaf.wide - 1, leaf.tall - 1, 7);
    pen.fillStyle = look.card;
    pen.fill();
    pen.strokeStyle = look.line;
    pen.stroke();
    pen.textBaseline = "middle";
    pen.fillStyle = look.quiet;
    pen.font = `${made.size.font ? 11 : 9}px ${FACE}`;
    pen.fillText(found.name || "no leaf", made.size.card, made.size.card + made.size.head / 2 - 4, leaf.wide - 2 * made.size.card);
    const layers = [new Layer(), new Layer()];
    found.nodes.forEach((node, index) => {
      const x = made.size.card + (index % leaf.columns) * (made.cell + made.size.gap);
      const y = made.size.card + made.size.head + Math.floor(index / leaf.columns) * (made.size.tall + made.size.gap);
      this.cell(layers[this.faint(node) ? 1 : 0], node, x, y);
    });
    this.flush(layers[0]);
    pen.globalAlpha = 0.34;
    this.flush(layers[1]);
    pen.globalAlpha = 1;
  }

  /** True for nodes outside the selection or the search. */
  faint(node) {
    const { found, gang } = this.look;
    if (found) return !found.has(node.name);
    return Boolean(gang) && !(node.pods ?? []).some((pod) => pod.gang === gang);
  }

  cell(layer, node, x, y) {
    const { look, made } = this;
    const pods = node.pods ?? [];
    const wide = made.cell;
    const tall = made.size.tall;
    layer.path("cell", look.surface).roundRect(x, y, wide, tall, 4);
    const gangs = [...new Set(pods.map((pod) => pod.gang ?? ""))].slice(0, 3);
    gangs.forEach((key, part) => {
      const gang = this.store.gang(key);
      const style = gang ? tint(this.pen, gang.colour) : look.line;
      layer.path("ground", style).roundRect(x + (part * wide) / gangs.length, y, wide / gangs.length, tall, 4);
    });
    layer.path(node.note ? "off" : "frame", node.note ? look.dead : look.line).roundRect(x + 0.5, y + 0.5, wide - 1, tall - 1, 4);
    if (made.size.font) this.words(layer, node, pods, x, y, wide);
    this.rails(layer, node, pods, x, y + tall - (made.size.font ? Math.round(tall * 0.36) : 13), wide);
  }

  words(layer, node, pods, x, y, wide) {
    const { look, made } = this;
    const large = made.size.font > 12;
    if (large) layer.texts.push({ text: node.name, x: x + 5, y: y + 10, font: `10px ${FACE}`, style: look.quiet, align: "left", most: wide - 10 });
    const labels = pods.map((pod) => {
      const gang = this.store.gang(pod.gang);
      return gang ? letter(gang.colour) + (pod.rank >= 0 ? pod.rank : "") + (pod.assumed ? "…" : "") : "•";
    });
    const text = labels.length > 2 ? `${labels[0]} +${labels.length - 1}` : labels.join(" ") || (node.note ? "off" : "");
    if (!text) return;
    const font = `${pods.length ? 700 : 400} ${made.size.font}px ${FACE}`;
    layer.texts.push({ text, x: large ? x + 5 : x + wide / 2, y: y + (large ? 25 : 11), font, style: pods.length ? look.ink : look.quiet, align: large ? "left" : "center", most: wide - 6 });
  }

  /** A rail is a slot: hollow if free, full if busy, half if degraded, crossed if dead. */
  rails(layer, node, pods, x, y, wide) {
    const { look, made } = this;
    const tall = made.size.font ? Math.round(made.size.tall * 0.27) : 11;
    const step = (wide - 6) / made.rails;
    const broad = Math.max(1, step - (step > 3 ? 1.5 : 0.7));
    const held = new Map();
    for (const pod of pods) for (const rail of pod.rails) held.set(rail, this.store.gang(pod.gang));
    for (let rail = 0; rail < made.rails; rail++) {
      const left = x + 3 + rail * step;
      const state = node.rails[rail];
      const gang = held.get(rail);
      const full = gang ? colour(gang.colour) : look.quiet;
      if (state === "d") this.dead(layer, left, y, broad, tall);
      else if (state === "w") {
        layer.path("fill", held.has(rail) ? full : look.weak).rect(left, y + tall / 2, broad, tall / 2);
        this.slot(layer, left, y, broad, tall, look.weak);
      } else if (held.has(rail)) layer.path("fill", full).rect(left, y, broad, tall);
      else if (state !== "-") this.slot(layer, left, y, broad, tall, look.free);
    }
  }

  slot(layer, left, y, broad, tall, style) {
    if (broad < 3) layer.path("fill", style).rect(left, y + tall - 2, broad, 2); // too narrow for an outline: a line at the bottom
    else layer.path("slot", style).rect(left + 0.5, y + 0.5, broad - 1, tall - 1);
  }

  dead(layer, left, y, broad, tall) {
    const path = layer.path("cross", this.look.dead);
    path.moveTo(left, y);
    path.lineTo(left + broad, y + tall);
    if (broad < 3) return;
    path.moveTo(left + broad, y);
    path.lineTo(left, y + tall);
  }

  flush(layer) {
    const { pen } = this;
    const kinds = [...layer.kinds.values()].sort((one, other) => ORDER.indexOf(one.kind) - ORDER.indexOf(other.kind));
    for (const { kind, style, path } of kinds) {
      if (kind === "cell" || kind === "ground" || kind === "fill") {
        pen.fillStyle = style;
        pen.fill(path);
        continue;
      }
      pen.strokeStyle = style;
      pen.lineWidth = kind === "cross" ? 1.6 : 1;
      pen.setLineDash(kind === "off" ? [3, 2] : []);
      pen.stroke(path);
    }
    pen.setLineDash([]);
    for (const label of layer.texts) {
      Object.assign(pen, { font: label.font, fillStyle: label.style, textAlign: label.align });
      if (label.text.length > 5) pen.fillText(label.text, label.x, label.y, label.most);
      else pen.fillText(label.text, label.x, label.y);
    }
    pen.textAlign = "left";
  }
}
