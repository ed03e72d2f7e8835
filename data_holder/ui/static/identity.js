/* Who this holder is, as its service says now: the badge at the top of the page, and whether anything was written down since a reading. */

import { get } from "./common/api.js";
import { badge, h, show } from "./common/dom.js";
import { UNCHANGED } from "./common/panel.js";

/** Between two readings of what a page follows. */
export const EVERY_MS = 5000;

const place = h("span", { role: "status" });

/** The badge of the connection to the orchestrator; `who` is null where the service does not say. */
export function connection(who) {
  const [text, kind] = who === null ? ["connection not known", "quiet"] : who.connected ? ["connected", "good"] : ["not connected", "warn"];
  if (place.textContent !== text) show(place, badge(text, kind));
  return place;
}

/** Read it again; the badge says what was found. Throws Problem. */
export async function identity(signal) {
  try {
    const who = await get("/v1/identity", { signal });
    connection(who);
    return who;
  } catch (problem) {
    if (problem.name !== "AbortError") connection(null);
    throw problem;
  }
}

/** A long list, for `followed`: read by `read` only where something was written down since it was read last. */
export function whereWritten(read, signal) {
  let seen = null;
  return async () => {
    const before = seen;
    seen = null; // until it is known: what could not be read is read whole
    const { changes } = await identity(signal);
    const found = changes === before ? UNCHANGED : await read();
    seen = changes; // asked for before the list: what is written meanwhile is read at the next time
    return found;
  };
}
