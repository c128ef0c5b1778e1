// Asks the server for the overview again and again, with the token in a header.

const INTERVAL = 2000; // milliseconds between an answer and the next question
const LONGEST_PAUSE = 15_000; // milliseconds between two attempts after failures
const PATIENCE = 20_000; // milliseconds to wait for an answer
const UNREACHABLE = "the server of this dashboard does not answer: it may have been stopped";

/** Ask until the server denies it. `on` gets change(overview), state(name, detail) and deny(status, reason). */
export class Feed {
  constructor(path, on) {
    Object.assign(this, { path, on, etag: "", token: "", lastContact: 0, failures: 0, timer: 0 }); // timer: 0 while it asks or waits for a token
    globalThis.addEventListener("online", () => this.askNow());
    document.addEventListener("visibilitychange", () => document.hidden || this.askNow());
  }

  buildHeaders() {
    return this.token ? { Authorization: `Bearer ${this.token}` } : {};
  }

  /** Start, or start again with another token. */
  start(token) {
    this.token = token;
    this.ask();
  }

  askNow() {
    if (this.timer) this.ask();
  }

  async ask() {
    clearTimeout(this.timer);
    this.timer = 0;
    let pause = INTERVAL;
    try {
      const headers = { ...this.buildHeaders(), ...(this.etag && { "If-None-Match": this.etag }) };
      const response = await fetch(this.path, { headers, signal: AbortSignal.timeout(PATIENCE), cache: "no-store", credentials: "omit" });
      if (response.status === 401 || response.status === 403) return this.on.deny(response.status, await readReason(response));
      if (!response.ok && response.status !== 304) throw new Error(await readReason(response));
      if (response.ok) {
        this.on.change(await response.json());
        this.etag = response.headers.get("ETag");
      }
      Object.assign(this, { failures: 0, lastContact: Date.now() });
      this.on.state("live");
    } catch (error) {
      pause = Math.min(LONGEST_PAUSE, 500 * 2 ** this.failures++) * (0.5 + Math.random() / 2);
      const isSilent = error.name === "TimeoutError";
      this.on.state(isSilent ? "stale" : "reconnecting", { reason: isSilent || error.name === "TypeError" ? UNREACHABLE : error.message, since: this.lastContact });
    }
    this.timer = setTimeout(() => this.ask(), pause);
  }
}

async function readReason(response) {
  try {
    return (await response.json()).error.reason;
  } catch {
    return response.statusText; // a proxy's page: only its status is usable
  }
}
