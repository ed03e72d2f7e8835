/* The dashboard: what stands at its top, and its two places. Knows pages by name only. */

import { h } from "./common/dom.js";
import { startPage } from "./common/frame.js";
import { SESSION_ID, nothingHere } from "./common/panel.js";
import { sessionPage } from "./session.js";
import { sessionsPage } from "./sessions.js";

startPage({
  path: "/v1/whoami",
  access: "Read-only access",
  words: "Ask the orchestrator's operator for a read-only token. One that reads as the owner also shows losses; "
    + "any other shows everything else. This page can change nothing: what has to be signed is signed elsewhere.",
  suffix: "GPU Travelling",
  name: () => "GPU Travelling",
  top: (who) => h("span", { class: "who" }, `reading as ${who.name} (${who.role})`),
  // #/ or #/sessions/ID/TAB
  open: ([kind, id, tab], told) => {
    if (kind !== "sessions" || !id) return sessionsPage(told);
    return SESSION_ID.test(id) ? sessionPage({ id, tab }, told) : nothingHere("session", told);
  },
});
