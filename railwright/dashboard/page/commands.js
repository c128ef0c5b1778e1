// Commands to copy. The button copies; where the browser does not permit that, it selects the text.

import { build } from "./look.js";

/** A command line with a button that copies it. `report` gets what to tell a screen reader. */
export function buildCommand(parts, report) {
  const text = parts.map(quote).join(" ");
  const code = build("code", {}, text);
  const button = build("button", { type: "button", class: "copy", "aria-label": `Copy: ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    const isCopied = await copy(text);
    if (!isCopied) getSelection().selectAllChildren(code);
    button.textContent = isCopied ? "Copied" : "Ctrl+C";
    report(isCopied ? "copied" : "selected: press Ctrl+C to copy");
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  return build("div", { class: "command" }, code, button);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text); // absent without TLS, except on loopback
    return true;
  } catch {
    return false;
  }
}

/** An argument as a POSIX shell needs it. Names of objects need no quotes; those in a snapshot may be anything. */
function quote(argument) {
  return /^[\w./:=@%+,-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", `'\\''`)}'`;
}

/** The command that explains the placement of a pod. */
export function listExplainCommand(namespace, pod) {
  return ["kubectl", "railwright", "explain", `pod/${pod}`, "-n", namespace];
}

/** The command that shows a node with its conditions, taints and pods. */
export function listDescribeCommand(node) {
  return ["kubectl", "describe", "node", node];
}
