// The server's explanation of why a pod is, or is not, on a node.

/** The explanation of one node for one gang or pod: asked for once, and again when the gang has changed. */
export class Explanation {
  /** `received` is called when an explanation has arrived. */
  constructor(store, stream, received) {
    Object.assign(this, { store, stream, received, key: "", value: undefined });
  }

  /** Ask for the explanation of a node for a gang, or for the pod on the node. Returns the gang or pod; "" for neither. */
  request(node, gangKey) {
    const pod = node.pods?.[0];
    const subject = gangKey || pod?.gang || pod?.pod || "";
    const gang = this.store.getGang(subject);
    const key = [this.stream.view, subject, node.name, gang?.state, gang?.placed].join(" ");
    if (!subject || key === this.key) return subject;
    Object.assign(this, { key, value: undefined });
    this.fetch(subject, node.name).then((value) => {
      if (key !== this.key) return; // another choice by now
      this.value = value;
      this.received();
    });
    return subject;
  }

  async fetch(subject, node) {
    try {
      const path = this.stream.buildPath("api/why", { gang: subject, node });
      const response = await fetch(path, { headers: this.stream.buildHeaders(), cache: "no-store", credentials: "omit" });
      const answer = await response.json();
      return response.ok ? answer : { error: answer.error?.reason ?? response.statusText };
    } catch {
      return { error: "the server of this dashboard does not answer" };
    }
  }
}
