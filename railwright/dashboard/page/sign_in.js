// The form that asks for a token. The token stays in the memory of the page, or of its tab if the reader wants that.

const KEY = "railwright-token"; // in sessionStorage

/** The token that the reader wanted to keep for this tab; "" if there is none. */
export function readToken() {
  return sessionStorage.getItem(KEY) ?? "";
}

/** The form, a modal dialog. `submit` gets the token. */
export class TokenForm {
  constructor(elements, submit) {
    Object.assign(this, elements); // back, form, reason, field, keep
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      const token = this.field.value.trim();
      if (this.keep.checked) sessionStorage.setItem(KEY, token);
      this.field.value = "";
      this.back.hidden = true;
      submit(token);
    });
    this.form.addEventListener("keydown", (event) => event.key === "Tab" && this.keepFocus(event));
  }

  /** Show the form, with why the server refused the request. */
  show(reason) {
    sessionStorage.removeItem(KEY);
    this.reason.textContent = reason;
    this.back.hidden = false;
    this.field.focus();
  }

  keepFocus(event) {
    const fields = [...this.form.querySelectorAll("input, button")];
    const [edge, opposite] = event.shiftKey ? [fields[0], fields.at(-1)] : [fields.at(-1), fields[0]];
    if (document.activeElement !== edge) return;
    opposite.focus();
    event.preventDefault();
  }
}
