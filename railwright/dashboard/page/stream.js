// Server-sent events over fetch, which can send a token in a header as EventSource cannot. Handles reconnecting.

const STALE_AFTER = 13_000; // milliseconds without data after which the view counts as stale; the server sends a heartbeat every 5 s
const LONGEST_PAUSE = 15_000; // milliseconds between two attempts to connect
const UNREACHABLE = "the server of this dashboard does not answer: it may have been stopped";

/** Follow a stream until stopped. `on` gets change(overview), state(name, detail) and deny(status, reason). */
export class Stream {
  constructor(path, on) {
    this.path = path;
    this.on = on;
    this.lastId = "";
    this.token = "";
    this.lastContact = 0;
    this.failures = 0;
    this.controller = null; // of the running fetch
    this.isWaitingForToken = false;
    setInterval(() => this.checkSilence(), 1000);
    globalThis.addEventListener("online", () => this.retryNow());
    document.addEventListener("visibilitychange", () => document.hidden || this.retryNow());
  }

  buildHeaders() {
    return this.token ? { Authorization: `Bearer ${this.token}` } : {};
  }

  /** Start, or restart with another token. */
  start(token) {
    this.token = token ?? this.token;
    this.isWaitingForToken = false;
    this.failures = 0;
    this.controller?.abort();
    clearTimeout(this.timer);
    this.follow();
  }

  retryNow() {
    if (!this.isWaitingForToken && !this.controller) this.start();
  }

  async follow() {
    const controller = new AbortController();
    this.controller = controller;
    try {
      const headers = { Accept: "text/event-stream", ...this.buildHeaders() };
      if (this.lastId) headers["Last-Event-ID"] = this.lastId;
      const response = await fetch(this.path, { headers, signal: controller.signal, cache: "no-store", credentials: "omit" });
      if (!response.ok) {
        await this.handleError(response);
      } else {
        await this.read(response.body.getReader());
        if (this.controller === controller) this.retryLater("the server ended the stream", 250);
      }
    } catch (error) {
      if (this.controller === controller) this.retryLater(error.name === "TypeError" ? UNREACHABLE : error.message);
    }
  }

  async handleError(response) {
    let reason = response.statusText;
    try {
      reason = (await response.json()).error.reason;
    } catch {
      // a proxy's page: only its status is usable
    }
    this.controller = null;
    if (response.status === 401 || response.status === 403) {
      this.isWaitingForToken = true;
      this.on.deny(response.status, reason);
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
      this.lastContact = Date.now();
      const parts = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = parts.pop();
      for (const part of parts) this.handleEvent(part);
    }
  }

  handleEvent(text) {
    const fields = {};
    for (const line of text.split("\n")) {
      const separator = line.indexOf(": ");
      if (separator > 0) fields[line.slice(0, separator)] = line.slice(separator + 2);
    }
    this.failures = 0;
    if (fields.event === "change") {
      this.on.change(JSON.parse(fields.data));
      this.lastId = fields.id;
    }
    this.on.state("live");
  }

  retryLater(reason, pause) {
    this.controller = null;
    const longest = Math.min(LONGEST_PAUSE, 500 * 2 ** this.failures++);
    const delay = pause ?? longest * (0.5 + Math.random() / 2);
    if (pause === undefined) this.on.state("reconnecting", { reason, since: this.lastContact });
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.follow(), delay);
  }

  checkSilence() {
    const silence = Date.now() - this.lastContact;
    if (this.controller && this.lastContact && silence > STALE_AFTER) this.on.state("stale", { since: this.lastContact });
    if (this.controller && this.lastContact && silence > 3 * STALE_AFTER) {
      this.controller.abort();
      this.retryLater("no data for too long");
    }
  }
}
