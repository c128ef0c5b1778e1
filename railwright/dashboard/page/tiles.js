// Draws each leaf into an image and reuses the image until the leaf changes, so that scrolling a thousand nodes only
// copies a few dozen images. Defines the appearance of nodes and rails.

import { getColour, getFill } from "./look.js";
import { formatLetter, mapHolders } from "./store.js";

const MAX_IMAGES = 128; // the least recently drawn ones are dropped first
const FONT = "system-ui, Inter, sans-serif";
const NAMED = 78; // pixels of a cell that has space for the node's name
const FAINT = 0.34; // opacity of nodes outside the selection or the filters

export class Tiles {
  constructor(store) {
    this.store = store;
    this.images = new Map();
    this.stamp = "";
  }

  /** The image of a leaf; `stamp` identifies everything else that it depends on. */
  get(place, leaf, layout, look, stamp) {
    if (stamp !== this.stamp) {
      this.images.clear();
      this.stamp = stamp;
    }
    const entry = this.images.get(place.id);
    if (entry?.leaf === leaf && entry.columns === place.columns) return entry.image;
    const image = entry?.image ?? document.createElement("canvas");
    image.width = Math.ceil(place.width * look.ratio);
    image.height = Math.ceil(place.height * look.ratio);
    const pen = image.getContext("2d", { alpha: false });
    pen.scale(look.ratio, look.ratio);
    new LeafPainter(pen, this.store, layout, look).paint(place, leaf);
    this.images.delete(place.id);
    this.images.set(place.id, { leaf, columns: place.columns, image });
    if (this.images.size > MAX_IMAGES) this.images.delete(this.images.keys().next().value);
    return image;
  }
}

/** Collects shapes of the same kind and style into one path: one call is several times faster than one for each shape. */
class Layer {
  constructor() {
    this.entries = new Map();
    this.labels = [];
  }

  getPath(kind, style) {
    const key = style instanceof CanvasPattern ? style : `${kind} ${style}`;
    let entry = this.entries.get(key);
    if (!entry) {
      entry = { kind, style, path: new Path2D() };
      this.entries.set(key, entry);
    }
    return entry.path;
  }
}

const ORDER = ["cell", "ground", "frame", "off", "fill", "slot", "cross"];
const FILLED = new Set(["cell", "ground", "fill"]);

class LeafPainter {
  constructor(pen, store, layout, look) {
    Object.assign(this, { pen, store, layout, look });
  }

  paint(place, leaf) {
    const { pen, look } = this;
    const { size, cell } = this.layout;
    pen.fillStyle = look.surface;
    pen.fillRect(0, 0, place.width, place.height);
    pen.beginPath();
    pen.roundRect(0.5, 0.5, place.width - 1, place.height - 1, 7);
    pen.fillStyle = look.card;
    pen.fill();
    pen.strokeStyle = look.line;
    pen.stroke();
    pen.textBaseline = "middle";
    pen.fillStyle = look.quiet;
    pen.font = `${size.font ? 11 : 9}px ${FONT}`;
    pen.fillText(leaf.name || "no leaf", size.padding, size.padding + size.title / 2 - 4, place.width - 2 * size.padding);
    const [clear, faint] = [new Layer(), new Layer()];
    leaf.nodes.forEach((node, index) => {
      const x = size.padding + (index % place.columns) * (cell + size.gap);
      const y = size.padding + size.title + Math.floor(index / place.columns) * (size.height + size.gap);
      this.addCell(this.isFaint(node) ? faint : clear, node, x, y);
    });
    this.paintLayer(clear);
    pen.globalAlpha = FAINT;
    this.paintLayer(faint);
    pen.globalAlpha = 1;
  }

  /** True for nodes outside the selection or the filters. */
  isFaint(node) {
    const { matches, gang } = this.look;
    if (matches) return !matches.has(node.name);
    return Boolean(gang) && !(node.pods ?? []).some((pod) => pod.gang === gang);
  }

  addCell(layer, node, x, y) {
    const { look } = this;
    const { size, cell: width } = this.layout;
    const pods = node.pods ?? [];
    layer.getPath("cell", look.surface).roundRect(x, y, width, size.height, 4);
    const gangs = [...new Set(pods.map((pod) => pod.gang ?? ""))].slice(0, 3);
    gangs.forEach((key, index) => {
      const gang = this.store.getGang(key);
      const style = gang ? getFill(this.pen, gang.colour) : look.line;
      layer.getPath("ground", style).roundRect(x + (index * width) / gangs.length, y, width / gangs.length, size.height, 4);
    });
    const frame = node.note ? layer.getPath("off", look.dead) : layer.getPath("frame", look.line);
    frame.roundRect(x + 0.5, y + 0.5, width - 1, size.height - 1, 4);
    if (size.font) this.addLabels(layer, node, pods, x, y);
    this.addRails(layer, node, x, y + size.height - (size.font ? Math.round(size.height * 0.36) : 13));
  }

  addLabels(layer, node, pods, x, y) {
    const { look } = this;
    const { size, cell: width } = this.layout;
    const isLarge = size.font > 12;
    const hasName = isLarge || width >= NAMED;
    const nameStyle = { y: y + (isLarge ? 10 : 11), font: `10px ${FONT}`, style: look.quiet };
    const ranks = pods.map((pod) => this.formatRank(pod));
    const text = ranks.length > 2 ? `${ranks[0]} +${ranks.length - 1}` : ranks.join(" ") || (node.note ? "off" : "");
    if (isLarge) layer.labels.push({ text: node.name, x: x + 5, align: "left", most: width - 10, ...nameStyle });
    else if (hasName) layer.labels.push({ text: node.name, x: x + width - 4, align: "right", most: width - (text ? 36 : 8), ...nameStyle });
    if (!text) return;
    const font = `${pods.length ? 700 : 400} ${size.font}px ${FONT}`;
    const style = pods.length ? look.ink : look.quiet;
    const position = hasName ? { x: x + 5, align: "left" } : { x: x + width / 2, align: "center" };
    layer.labels.push({ text, y: y + (isLarge ? 25 : 11), font, style, most: hasName && !isLarge ? 30 : width - 6, ...position });
  }

  /** A gang's letter and the rank; a dot for a pod without a gang; three dots if it is only assumed. */
  formatRank(pod) {
    const gang = this.store.getGang(pod.gang);
    return gang ? formatLetter(gang.colour) + (pod.rank >= 0 ? pod.rank : "") + (pod.assumed ? "…" : "") : "•";
  }

  /** Add the rails as slots: hollow if free, full if busy, half if degraded, crossed if dead. */
  addRails(layer, node, x, y) {
    const { look } = this;
    const { size, cell: width, rails } = this.layout;
    const height = size.font ? Math.round(size.height * 0.27) : 11;
    const step = (width - 6) / rails;
    const slotWidth = Math.max(1, step - (step > 3 ? 1.5 : 0.7));
    const holders = mapHolders(node);
    for (let rail = 0; rail < rails; rail++) {
      const left = x + 3 + rail * step;
      const state = node.rails[rail];
      const gang = this.store.getGang(holders.get(rail)?.gang);
      const busyStyle = gang ? getColour(gang.colour) : look.quiet;
      if (state === "d") this.addCross(layer, left, y, slotWidth, height);
      else if (state === "w") {
        layer.getPath("fill", holders.has(rail) ? busyStyle : look.weak).rect(left, y + height / 2, slotWidth, height / 2);
        this.addSlot(layer, left, y, slotWidth, height, look.weak);
      } else if (holders.has(rail)) layer.getPath("fill", busyStyle).rect(left, y, slotWidth, height);
      else if (state !== "-") this.addSlot(layer, left, y, slotWidth, height, look.free);
    }
  }

  addSlot(layer, left, y, width, height, style) {
    if (width < 3) layer.getPath("fill", style).rect(left, y + height - 2, width, 2); // too narrow for an outline: a line at the bottom
    else layer.getPath("slot", style).rect(left + 0.5, y + 0.5, width - 1, height - 1);
  }

  addCross(layer, left, y, width, height) {
    const path = layer.getPath("cross", this.look.dead);
    path.moveTo(left, y);
    path.lineTo(left + width, y + height);
    if (width < 3) return;
    path.moveTo(left + width, y);
    path.lineTo(left, y + height);
  }

  paintLayer(layer) {
    const { pen } = this;
    const entries = [...layer.entries.values()].sort((one, other) => ORDER.indexOf(one.kind) - ORDER.indexOf(other.kind));
    for (const { kind, style, path } of entries) {
      if (FILLED.has(kind)) {
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
    for (const label of layer.labels) {
      Object.assign(pen, { font: label.font, fillStyle: label.style, textAlign: label.align });
      if (label.text.length > 5) pen.fillText(label.text, label.x, label.y, label.most);
      else pen.fillText(label.text, label.x, label.y);
    }
    pen.textAlign = "left";
  }
}
