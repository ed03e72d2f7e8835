/* Elements by script: every text goes in as a text node, never as markup. Knows no API and no data. */

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** An HTML element; `on…` attributes are listeners, what is null or false is left out. */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Put `children` in place of what an element holds. */
export function show(element, ...children) {
  element.replaceChildren();
  return fill(element, null, children);
}

/** A table with a caption. `columns`: [heading, cell of a row, class?]; without rows, `empty`. `key`: a row's. */
export function table(caption, columns, rows, empty = "Nothing yet.", key) {
  const head = h("tr", null, columns.map(([name, , kind]) => h("th", { scope: "col", class: kind }, name)));
  const body = rows.map((row) => h("tr", { "data-key": key?.(row) }, columns.map(([, cell, kind], at) => {
    const content = cell(row);
    return at === 0 ? h("th", { scope: "row", class: kind }, content) : h("td", { class: kind }, content);
  })));
  if (rows.length === 0) body.push(h("tr", null, h("td", { colspan: columns.length, class: "quiet" }, empty)));
  const grid = h("table", null, h("caption", null, h("span", null, caption)), h("thead", null, head), h("tbody", null, body));
  return h("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": caption }, grid);
}

/** Name and value pairs. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, shown.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

/** A digest or an id: short to look at, by its style; whole to copy and on hover. */
export function digest(text, length = 12) {
  if (!text) return "–";
  const whole = String(text);
  const shown = h("code", { title: whole, class: "digest" }, whole);
  shown.style.setProperty("--shown", length + 1);
  return shown;
}

/** A coloured word; colour never says it alone. `kind`: good, warn, bad, info, quiet. */
export function badge(text, kind = "info", title = null) {
  return h("span", { class: `badge ${kind}`, title }, text);
}

/** Words for a fold-out. */
export function fold(summary, ...children) {
  return h("details", null, h("summary", null, summary), ...children);
}

/** Say something to whoever listens instead of looking. */
export function announce(text) {
  const place = document.getElementById("announcements");
  if (place && place.textContent !== text) place.textContent = text;
}

/** Copy, and say so on the button for a moment. */
export async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "copied";
  } catch {
    button.textContent = "copying is not allowed here";
  }
  announce(button.textContent);
  setTimeout(() => { button.textContent = before; }, 1600);
}

/** A command to copy. */
export function command(text, label = "Copy") {
  const button = h("button", { type: "button", class: "small", onclick: () => copy(text, button) }, label);
  return h("div", { class: "command" }, h("pre", { tabindex: 0 }, h("code", null, text)), button);
}
