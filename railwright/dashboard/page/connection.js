// The state of the data in the header: live only while the server has read the cluster and still hears from it.

import { build, buildAge } from "./look.js";

export class Connection {
  /** `announce` has a screen reader say a text. */
  constructor(elements, store, announce) {
    Object.assign(this, elements, { store, announce }); // box, text, problems
    this.stream = { name: "connecting" };
    this.currentAt = ""; // RFC 3339: when the page was live last
  }

  /** Take the state of the stream: connecting, live, stale, reconnecting or denied. */
  setStream(name, detail = {}) {
    this.stream = { name, ...detail };
    this.update();
  }

  update() {
    const { state, text, sentences } = this.describe();
    if (state === "live" || state === "incomplete") this.currentAt = new Date().toISOString();
    if (this.box.dataset.state !== state) {
      this.box.dataset.state = state;
      this.announce(text);
    }
    if (this.text.textContent !== text) this.text.textContent = text;
    const content = sentences.join("\n");
    this.problems.hidden = !content;
    if (this.content === content) return; // an alert is announced again with every change
    this.content = content;
    this.problems.replaceChildren(...sentences.map((sentence) => build("p", {}, sentence)));
    if (content && state !== "incomplete" && this.currentAt && this.store.hasData) {
      this.problems.append(build("p", {}, "The page shows what was known ", buildAge(this.currentAt), "."));
    }
  }

  /** The state, its text, and what is wrong in sentences. */
  describe() {
    const { name, since, reason } = this.stream;
    const { away, is_refused: isRefused, reading, problems } = this.store.site;
    const age = since ? ` since ${Math.round((Date.now() - since) / 1000)} s` : "";
    if (name === "connecting" || (name === "live" && !this.store.sections.has("site"))) return { state: "connecting", text: "connecting", sentences: [] };
    if (name === "denied") return { state: name, text: "not signed in", sentences: [] };
    if (name === "stale") return { state: name, text: `stale${age}`, sentences: ["The server of this dashboard sends nothing."] };
    if (name === "reconnecting") return { state: name, text: age ? `reconnecting, stale${age}` : "reconnecting", sentences: reason ? [capitalize(reason)] : [] };
    if (away && isRefused) return { state: "away", text: "access refused", sentences: [`The cluster cannot be read: ${away}`] };
    if (away) return { state: "away", text: "cluster unreachable", sentences: [`Cannot connect to the cluster: ${away}`] };
    if (reading.length) return { state: "reading", text: "reading the cluster", sentences: [`Not read yet: ${reading.join(", ")}.`, ...problems.map(capitalize)] };
    if (problems.length) return { state: "incomplete", text: "live, incomplete", sentences: problems.map(capitalize) };
    return { state: "live", text: "live", sentences: [] };
  }

  /** The object or file of the policy and its age, as children of the line about the source. */
  listPolicy(digest, name) {
    if (!digest) return [];
    const age = buildAge(this.store.site.policy_at, " old");
    const place = name ? `in ${name}` : digest.replace("sha256:", "").slice(0, 8);
    return [` · policy ${place}`, ...(age ? [", ", age] : [])];
  }
}

function capitalize(text) {
  return text && text[0].toUpperCase() + text.slice(1);
}
