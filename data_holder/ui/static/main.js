/* The front door of the holder's page: who reads, which page, the frame around it. Knows pages by name only. */

import { get, token } from "./common/api.js";
import { askForToken } from "./common/entry.js";
import { badge, h, show } from "./common/dom.js";
import { emulatedBand } from "./common/panel.js";
import { applyTheme, themeSwitch } from "./common/theme.js";
import { homePage } from "./home.js";
import { requestPage } from "./request.js";

const WORDS = "Paste what is in operator.token (it may decide) or in auditor.token (it only reads), both in the holder's data folder. "
  + "This page shows counts and commitments, and never a record.";
const place = (id) => document.getElementById(id);
let leave = () => {};

/** #/ or #/requests/SESSION → session. */
function route() {
  const [kind, id] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  return kind === "requests" && id ? id : null;
}

function top(identity) {
  show(place("top"), h("a", { class: "name", href: "#/" }, identity ? `Data holder ${identity.name}` : "Data holder"),
    identity ? badge(identity.connected ? "connected" : "not connected", identity.connected ? "good" : "warn") : null, themeSwitch(),
    identity ? h("button", { type: "button", class: "small", onclick: forget }, "Forget the token") : null);
  show(place("band"), emulatedBand(identity?.backend === "emulated"));
}

function forget() {
  token.forget();
  location.hash = "#/";
  start();
}

function open(identity) {
  leave();
  const ends = new AbortController();
  leave = () => ends.abort();
  const session = route();
  document.title = `${session ?? identity.name} · Data holder`;
  show(place("content"), session === null ? homePage(identity, ends.signal) : requestPage(session, identity, ends.signal));
}

let known = null;
function entered(identity) {
  known = identity;
  top(identity);
  open(identity);
}

async function start() {
  leave();
  top(null);
  const ask = (problem) => askForToken(place("content"), { path: "/v1/identity", words: WORDS, enter: (found) => { entered(found); place("content").focus({ preventScroll: true }); }, problem, title: "Operator's access" });
  if (!token.get()) {
    ask(null);
    return;
  }
  try {
    entered(await get("/v1/identity"));
  } catch (problem) {
    ask(problem);
  }
}

applyTheme();
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment says which page this is
  place("content").focus();
});
window.addEventListener("hashchange", () => { if (known && token.get()) open(known); });
start();
