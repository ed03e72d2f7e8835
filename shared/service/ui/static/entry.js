/* Where a reader types the token in, once per tab. Knows no data of the API. */

import { Problem, get, token } from "./api.js";
import { h, show } from "./dom.js";
import { problemBox } from "./panel.js";

/** The text, if a header can carry it: what is typed off a document may have got quotes or dashes of print. Throws Problem. */
function legible(text) {
  if (/^[\x21-\x7e]+$/.test(text.trim())) return text;
  throw new Problem(0, { detail: "That is no token: it has spaces, or signs that no token has.", remedy: "Copy it from its file, without quotation marks.", code: "page-error" });
}

/** Ask for the token until `path` can be read with one; then call `enter`. */
export function askForToken(place, { path, words, enter, problem = null, title = "Read-only access" }) {
  const field = h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "token-words" });
  const said = h("div", null, problem ? problemBox(problem) : null);
  const form = h("form", { class: "panel entry" }, h("h1", null, title),
    h("p", { id: "token-words" }, words), h("label", { for: "token" }, "Bearer token"), field,
    h("button", { type: "submit" }, "Open"), said,
    h("p", { class: "quiet" }, "The token is kept in this tab only and is sent to this service only, in a header."));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      token.put(legible(field.value));
      enter(await get(path));
    } catch (found) {
      token.forget();
      show(said, problemBox(found));
      field.select();
    }
  });
  show(place, form);
  field.focus();
}
