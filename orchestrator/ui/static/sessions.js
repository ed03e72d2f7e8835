/* The first page: sessions, the queue with its reasons, the GPUs and the parties. Knows the API's views. */

import { all, get } from "./common/api.js";
import { badge, digest, h, show, table } from "./common/dom.js";
import { age, count, moment, number } from "./common/format.js";
import { UNCHANGED, filled, panel, problemCode, redrawn } from "./common/panel.js";
import { ENDED, PHASES, backendBadge } from "./words.js";

const EVERY_MS = 3000;

const link = (session) => h("a", { href: `#/sessions/${encodeURIComponent(session.id)}/tour` }, session.name, " ", digest(session.id, 10));
const phase = (session) => badge(session.phase, PHASES[session.phase] ?? "quiet");
const backend = (session) => badge(...backendBadge(session.backend));

function progress(session) {
  const bar = h("progress", { value: session.position, max: Math.max(1, session.visits_total), "aria-label": `visits of ${session.name}` });
  return h("div", null, bar, h("div", { class: "quiet" }, `${session.position} of ${count(session.visits_total, "visit")}`));
}

const waits = (session) => (session.waiting_for.length > 0 ? session.waiting_for.join(", ") : "nobody");

/* Why it failed, or ends before all its visits. */
function why(session) {
  if (!session.failure) return session.stopped_early ?? "";
  const { code, detail } = session.failure;
  return h("span", null, code ? problemCode(code, badge(code, "bad")) : badge("failed", "bad"), " ", detail ?? "");
}

/* On two lines: on one it would push the table beyond its place. */
function submitted(session) {
  const [day, ...time] = moment(session.created_at).split(" ");
  return [day, h("div", null, time.join(" "))];
}

function sessionsTable(sessions) {
  return table("Every session, the newest first", [
    ["Session", link, "wide"],
    ["Phase", phase],
    ...(sessions.some(why) ? [["Why", why, "wide"]] : []), // an empty column would push others out of sight
    ["Backend", backend],
    ["Progress", progress, "tight"],
    ["Held-out loss", (one) => number(one.validation_loss?.last), "number"],
    ["Owner", (one) => one.owner],
    ["Submitted", submitted, "tight"],
  ], [...sessions].reverse(), "No session was submitted yet.");
}

function queueTable(sessions) {
  return table("Sessions that have not ended, in the order of submission, and for whom each waits", [
    ["Session", link, "wide"], ["Phase", phase], ["GPU", (one) => one.gpu, "tight"], ["Waits for", waits, "wide"],
  ], sessions.filter((one) => !ENDED.has(one.phase)), "Nothing is queued or running.");
}

/* A GPU's backend is what its session found; the next session attests it anew. */
function gpuBackend(gpu) {
  return gpu.leased_to ? badge(...backendBadge(gpu.backend)) : h("span", { class: "quiet" }, "attested by each session");
}

function gpuTable(gpus) {
  return table("The pool of GPUs", [
    ["GPU", (one) => one.id], ["Backend", gpuBackend],
    ["Leased to", (one) => (one.leased_to ? h("a", { href: `#/sessions/${one.leased_to}/tour` }, digest(one.leased_to, 18)) : "nobody")],
  ], gpus);
}

function partyTable(parties) {
  const now = Date.now() / 1000;
  return table("Enrolled parties", [
    ["Name", (one) => one.name], ["Role", (one) => one.role], ["Key", (one) => digest(one.key)],
    ["Last heard of", (one) => age(one.last_seen, now), "tight"],
  ], parties, "Nobody is enrolled yet.");
}

/** The page; it asks again every few seconds until `told.signal`. */
export function sessionsPage(told) {
  told.title("Sessions");
  const queue = panel("Queue", { paths: ["/v1/sessions"], note: "A session runs when everybody whose approval it needs has given it and its GPU is free." });
  const list = panel("Sessions", { paths: ["/v1/sessions"] });
  const gpus = panel("GPUs", { paths: ["/v1/gpus"] });
  const parties = panel("Parties", { paths: ["/v1/parties"] });
  const places = h("div", null, h("h1", null, "Sessions"), queue.element, list.element,
    h("div", { class: "split" }, gpus.element, parties.element));
  const panels = { queue, list, gpus, parties };
  const state = { shown: null, busy: false };
  const again = async () => {
    if (state.busy) return; // a long list takes longer than the pause between two readings
    state.busy = true;
    await refresh(panels, told, state).finally(() => { state.busy = false; });
  };
  again();
  const timer = setInterval(() => { if (!document.hidden) again(); }, EVERY_MS);
  told.signal.addEventListener("abort", () => clearInterval(timer));
  return places;
}

/** `state.shown`: the sessions that are drawn; they are drawn anew only where they differ, for a reader may be among them. */
async function refresh({ queue, list, gpus, parties }, told, state) {
  let sessions = null;
  const before = state.shown;
  await filled(list.body, async () => {
    sessions = await all("/v1/sessions", { signal: told.signal });
    state.shown = JSON.stringify(sessions);
    return state.shown === before ? UNCHANGED : sessionsTable(sessions);
  });
  if (sessions === null) {
    state.shown = null;
    show(queue.body, h("p", { class: "quiet" }, "Not known now: the sessions could not be read.")); // and the band stays as it was
  } else if (state.shown !== before) {
    redrawn(queue.body, () => show(queue.body, queueTable(sessions)));
    told.emulated(sessions.some((one) => one.backend === "EMULATED"));
  }
  await filled(gpus.body, async () => gpuTable((await get("/v1/gpus", { signal: told.signal })).items));
  await filled(parties.body, async () => partyTable(await all("/v1/parties", { signal: told.signal })));
}
