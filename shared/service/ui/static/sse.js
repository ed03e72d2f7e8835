/* Server-sent events out of text that comes in pieces (WHATWG HTML 9.2.6). Pure: knows no network. */

/** Takes pieces of text by `push`, returns the events that they complete: {id, event, data}. */
export class EventParser {
  #rest = "";
  #id = null;
  #event = "";
  #data = [];

  push(text) {
    const found = [];
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    for (const line of lines) this.#line(line, found);
    return found;
  }

  #line(line, found) {
    if (line === "") {
      if (this.#data.length > 0) found.push({ id: this.#id, event: this.#event || "message", data: this.#data.join("\n") });
      this.#event = "";
      this.#data = [];
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return; // a comment, which keeps the connection alive
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "id" && !value.includes("\0")) this.#id = value;
    else if (field === "event") this.#event = value;
    else if (field === "data") this.#data.push(value);
  }
}
