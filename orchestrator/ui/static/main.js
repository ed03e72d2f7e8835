/* The dashboard's front door: who reads, which page, the frame around it. Knows pages by name only. */

import { get, token } from "./common/api.js";
import { askForToken } from "./common/entry.js";
import { h, show } from "./common/dom.js";
import { emulatedBand } from "./common/panel.js";
import { applyTheme, themeSwitch } from "./common/theme.js";
import { sessionPage } from "./session.js";
import { sessionsPage } from "./sessions.js";

const WORDS = "Ask the orchestrator's operator for a read-only token. One that reads as the owner also shows losses; "
  + "any other shows everything else. This page can change nothing: what has to be signed is signed elsewhere.";
const place = (id) => document.getElementById(id);
let leave = () => {};

/** #/ or #/sessions/ID/TAB → [id, tab]. */
function route() {
  const [kind, id, tab] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  return kind === "sessions" && id ? { id, tab: tab || "tour" } : null;
}

function top(who) {
  show(place("top"), h("a", { class: "name", href: "#/" }, "GPU Travelling"),
    who ? h("span", { class: "who" }, `reading as ${who.name} (${who.role})`) : null, themeSwitch(),
    who ? h("button", { type: "button", class: "small", onclick: forget }, "Forget the token") : null);
}

function forget() {
  token.forget();
  location.hash = "#/";
  start();
}

function open() {
  leave();
  const ends = new AbortController();
  leave = () => ends.abort();
  show(place("band"));
  const told = {
    signal: ends.signal,
    emulated: (yes) => { if (!ends.signal.aborted) show(place("band"), emulatedBand(yes)); },
    title: (text) => { document.title = text ? `${text} · GPU Travelling` : "GPU Travelling"; },
  };
  const wanted = route();
  const page = wanted === null ? sessionsPage(told) : sessionPage(wanted, told);
  show(place("content"), page);
}

function entered(who) {
  top(who);
  open();
}

async function start() {
  leave();
  top(null);
  const ask = (problem) => askForToken(place("content"), { path: "/v1/whoami", words: WORDS, enter: (found) => { entered(found); place("content").focus({ preventScroll: true }); }, problem });
  if (!token.get()) {
    ask(null);
    return;
  }
  try {
    entered(await get("/v1/whoami"));
  } catch (problem) {
    ask(problem);
  }
}

applyTheme();
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment says which page this is
  place("content").focus();
});
window.addEventListener("hashchange", () => { if (token.get()) open(); });
start();
