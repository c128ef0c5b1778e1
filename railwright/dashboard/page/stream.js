// Server-sent events over fetch, which can send a token in a header as EventSource cannot. Handles reconnecting.

const STALE_AFTER = 13_000; // milliseconds without data after which the view counts as stale; the server sends a heartbeat every 5 s
const LONGEST_PAUSE = 15_000; // milliseconds between two attempts to connect

/** Follow a stream until stopped. `on` gets change(delta), state(name, detail) and denied(status, reason). */
export class Stream {
  constructor(url, on) {
    this.url = url;
    this.on = on;
    this.last = "";
    this.token = "";
    this.heard = 0;
    this.failures = 0;
    this.stopped = null; // the controller of the running fetch
    this.waiting = false; // for a token
    setInterval(() => this.checkSilence(), 1000);
    globalThis.addEventListener("online", () => this.hurry());
    document.addEventListener("visibilitychange", () => document.hidden || this.hurry());
  }

  headers() {
    return this.token ? { Authorization: `Bearer ${this.token}` } : {};
  }

  /** Start, or restart with another token. */
  start(token) {
    this.token = token ?? this.token;
    this.waiting = false;
    this.failures = 0;
    this.stopped?.abort();
    clearTimeout(this.later);
    this.follow();
  }

  hurry() {
    if (!this.waiting && !this.stopped) this.start();
  }

  async follow() {
    const mine = new AbortController();
    this.stopped = mine;
    try {
      const headers = { Accept: "text/event-stream", ...this.headers() };
      if (this.last) headers["Last-Event-ID"] = this.last;
      const answer = await fetch(this.url, { headers, signal: mine.signal, cache: "no-store", credentials: "omit" });
      if (!answer.ok) {
        await this.handleError(answer);
      } else {
        await this.read(answer.body.getReader());
        if (this.stopped === mine) this.retryLater("the server ended the stream", 250);
      }
    } catch (error) {
      if (this.stopped === mine) this.retryLater(error.message);
    }
  }

  async handleError(answer) {
    let reason = answer.statusText;
    try {
      reason = (await answer.json()).error.reason;
    } catch {
      // a proxy's page: only its status is usable
    }
    this.stopped = null;
    if (answer.status === 401 || answer.status === 403) {
      this.waiting = true;
      this.on.denied(answer.status, reason);
    } else {
      this.retryLater(reason);
    }
  }

  async read(reader) {
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      this.heard = Date.now();
      const parts = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = parts.pop();
      for (const part of parts) this.event(part);
    }
  }

  event(text) {
    const fields = {};
    for (const line of text.split("\n")) {
      const at = line.indexOf(": ");
      if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
    }
    this.failures = 0;
    if (fields.event === "change") {
      this.on.change(JSON.parse(fields.data));
      this.last = fields.id;
    }
    this.on.state("live");
  }

  retryLater(reason, pause) {
    this.stopped = null;
    const longest = Math.min(LONGEST_PAUSE, 500 * 2 ** this.failures++);
    const wait = pause ?? longest * (0.5 + Math.random() / 2);
    if (pause === undefined) this.on.state("reconnecting", { reason, since: this.heard });
    clearTimeout(this.later);
    this.later = setTimeout(() => this.follow(), wait);
  }

  checkSilence() {
    const silent = Date.now() - this.heard;
    if (this.stopped && this.heard && silent > STALE_AFTER) this.on.state("stale", { since: this.heard });
    if (this.stopped && this.heard && silent > 3 * STALE_AFTER) {
      this.stopped.abort();
      this.retryLater("no data for too long");
    }
  }
}
