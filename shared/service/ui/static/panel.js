/* A part of a page: heading, "copy as curl", its content or the problem in its place. Knows no data. */

import { NO_ANSWER, curl } from "./api.js";
import { announce, copy, h, show } from "./dom.js";

const PAGE_ERROR = "page-error";
const OWN_CODES = new Set([PAGE_ERROR, NO_ANSWER]);

/** A panel. `paths`: what it reads of the API. Returns {element, body}. */
export function panel(title, { paths = [], note = null, id = null } = {}) {
  const body = h("div", { class: "body" });
  const buttons = paths.map((path) => {
    const text = curl(path);
    const button = h("button", { type: "button", class: "small curl", title: text, onclick: () => copy(text, button) }, "copy as curl");
    button.setAttribute("aria-label", `copy as curl: ${path}`);
    return button;
  });
  const head = h("header", null, h("h2", null, title), h("div", { class: "tools" }, buttons));
  const element = h("section", { class: "panel", id }, head, note ? h("p", { class: "note" }, note) : null, body);
  return { element, body };
}

/** A code as a link to its page on this service; `shown` stands for it where it is more than the code. Codes of the browser's own have none. */
export function problemCode(code, shown = h("code", null, code)) {
  return OWN_CODES.has(code) ? shown : h("a", { href: `../problems/${encodeURIComponent(code)}`, title: `what ${code} means, and what to do` }, shown);
}

/** A problem in words, with its code and what to do. */
export function problemBox(problem) {
  const lines = [h("strong", null, problem.message), " ", problemCode(problem.code ?? PAGE_ERROR)];
  if (problem.expected || problem.got) lines.push(h("p", null, `expected ${problem.expected || "–"}, got ${problem.got || "–"}`));
  if (problem.remedy) lines.push(h("p", null, problem.remedy));
  if (problem.requestId) lines.push(h("p", { class: "quiet" }, `request ${problem.requestId}: the service's log names it`));
  return h("div", { class: "problem", role: "alert" }, lines);
}

/** What a session's id looks like: what is none is asked of no service. */
export const SESSION_ID = /^s_[0-9a-z]{16}$/;

/** In the place of a page that does not exist; `what` it would have been of. */
export function nothingHere(what, told) {
  told.title(`No such ${what}`);
  return h("div", null, h("h1", null, `There is no such ${what}`), h("p", null, `Its address names no ${what}: it may have been cut short or mistyped. `,
    h("a", { href: "#/" }, "To the list of them")));
}

/* A problem that is there already stays: shown anew at each try, it would be read out at each. */
function troubled(body, problem) {
  const said = `${problem.code ?? PAGE_ERROR} ${problem.message}`;
  const [there] = body.children;
  if (there?.dataset.said === said) return;
  const box = problemBox(problem);
  box.dataset.said = said;
  show(body, box);
  announce(problem.message);
}

/** What `make` gives where all is as it was: nothing is drawn anew. */
export const UNCHANGED = Symbol("unchanged");

/** Elements by names that last: places among those of the same `data-key`, a row's or a result's, or of none. */
function named(place, kinds) {
  const seen = {};
  return [...place.querySelectorAll(kinds)].map((one) => {
    const key = one.closest("[data-key]")?.dataset.key ?? "";
    seen[key] = (seen[key] ?? 0) + 1;
    return [`${key} ${seen[key]}`, one];
  });
}

const KEPT = [["details", "open"], [".scroller", "scrollLeft"]]; // what is folded does not scroll
const CONTROLS = "a, button, select, input, summary, [tabindex]";

/** Draw a place anew by `draw`: who is at a control in it stays there; what is unfolded, or scrolled sideways, stays so. */
export function redrawn(place, draw) {
  const before = KEPT.map(([kinds, what]) => new Map(named(place, kinds).map(([name, one]) => [name, one[what]])));
  stayingAt(place, () => {
    draw();
    KEPT.forEach(([kinds, what], at) => named(place, kinds).forEach(([name, one]) => { one[what] = before[at].get(name) ?? 0; }));
  });
}

/** Draw; who was at a control in the place is then at the same one, where there is one. */
export function stayingAt(place, draw) {
  const one = document.activeElement;
  const was = named(place, CONTROLS).find(([, other]) => other === one);
  draw();
  if (!was) return;
  const same = named(place, CONTROLS).filter(([, other]) => other.getAttribute("href") === one.getAttribute("href"));
  (same.find(([name]) => name === was[0]) ?? (one.href && same[0]))?.[1]?.focus({ preventScroll: true });
}

/** Fill a panel's body by `make`, and show a problem in its place where it fails. */
export async function filled(body, make) {
  body.setAttribute("aria-busy", "true");
  if (!body.hasChildNodes()) show(body, h("p", { class: "quiet" }, "Reading …"));
  try {
    const made = await make();
    if (made !== UNCHANGED) redrawn(body, () => show(body, made));
  } catch (problem) {
    if (problem.name === "AbortError") return;
    troubled(body, problem);
  } finally {
    body.removeAttribute("aria-busy");
  }
}

/**
 * Keep a body as `read()` has it: read again every `pause` milliseconds until `signal`, and drawn anew by `draw` only where that differs.
 * `read` may give UNCHANGED itself, but not after it failed: the problem that was shown then has to go.
 */
export function followed(body, read, draw, signal, pause) {
  let shown = null;
  let busy = false; // a long list may take longer than the pause between two readings
  const make = async () => {
    const before = shown;
    shown = null; // until it is known: what could not be read is drawn anew
    const found = await read();
    const now = found === UNCHANGED ? before : JSON.stringify(found);
    const made = now === before ? UNCHANGED : draw(found);
    shown = now;
    return made;
  };
  const again = async () => {
    if (busy) return;
    busy = true;
    await filled(body, make).finally(() => { busy = false; });
  };
  again();
  const timer = setInterval(() => { if (!document.hidden) again(); }, pause);
  signal.addEventListener("abort", () => clearInterval(timer));
}

/** The loud word about emulation, for the top of a page; null where nothing is emulated. */
export function emulatedBand(emulated) {
  if (!emulated) return null;
  return h("div", { class: "emulated", role: "note" }, h("strong", null, "EMULATED"),
    " No hardware protects anything here. Evidence and receipts are signed under roots that say EMULATED; nothing on this page is confidential.");
}
