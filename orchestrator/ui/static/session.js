/* One session's frame: its heading, its tabs, and the live state they share. Knows each tab by name. */

import { announce, badge, digest, facts, h, show } from "./common/dom.js";
import { count, moment } from "./common/format.js";
import { panel, problemBox, redrawn } from "./common/panel.js";
import { artifactsTab } from "./artifacts.js";
import { contractTab } from "./contract.js";
import { Live } from "./live.js";
import { receiptsTab } from "./receipts.js";
import { passing } from "./common/api.js";
import { admitsEmulated, manifestOf } from "./manifest.js";
import { Timeline } from "./timeline.js";
import { Training } from "./training.js";
import { trustTab } from "./trust.js";
import { PHASES, backendBadge } from "./words.js";

const TABS = { tour: "Tour", training: "Training", trust: "Trust", contract: "Contract", receipts: "Receipts", artifacts: "Artifacts" };
const STREAM = {
  opening: "connecting", live: "live", waiting: "connection lost: asking again", ended: "ended: nothing more will come", refused: "refused: open the page again",
};

function tabs({ id, tab }) {
  return h("nav", { class: "tabs", "aria-label": "Parts of the session" }, Object.entries(TABS).map(([name, words]) => h("a", {
    href: `#/sessions/${encodeURIComponent(id)}/${name}`, "aria-current": name === tab ? "page" : null,
  }, words)));
}

function heading(view, state) {
  const head = h("h1", null, view.name, " ");
  const line = h("p", { class: "row" }, badge(view.phase, PHASES[view.phase] ?? "quiet"), badge(...backendBadge(view.backend)), digest(view.id, 20),
    h("span", { class: "live", dataset: { state } }, STREAM[state]));
  const waits = view.waiting_for.length > 0 ? h("p", null, `Waits for ${view.waiting_for.join(", ")}.`) : null;
  const until = view.paused_until ? h("p", null, `Paused since ${moment(view.paused_at)}. If it is not resumed, it ends at ${moment(view.paused_until)} and gives its GPU to others.`) : null;
  const early = view.stopped_early ? h("p", null, `It ends early, before all its visits: ${view.stopped_early}.`) : null;
  const left = view.holders.filter((one) => one.quarantined).map((one) => h("p", null, badge("quarantined", "bad"), ` ${one.holder} is visited no more.`));
  return [head, line, waits, until, early, left, failure(view)];
}

function failure(view) {
  if (!view.failure) return null;
  return problemBox({ message: view.failure.detail ?? "The session failed.", code: view.failure.code, remedy: view.failure.remedy ?? "", expected: view.failure.expected, got: view.failure.got });
}

function overview(view) {
  return facts([
    ["Owner", view.owner], ["Submitted", moment(view.created_at)], ["GPU", view.gpu],
    ["Progress", `${view.position} of ${count(view.visits_total, "visit")}, round ${view.round} of ${view.rounds}`],
    ["Now", view.current_visit ? `visit ${view.current_visit.index} at ${view.current_visit.holder}: ${view.current_visit.phase}` : "no visit under way"],
    ["Goes on from", view.predecessor ? h("a", { href: `#/sessions/${encodeURIComponent(view.predecessor)}/tour` }, digest(view.predecessor, 20)) : "no other session"],
    ["Manifest", digest(view.manifest_digest)], ["Program", digest(view.program)],
  ]);
}

/** What a tab shows that follows the session: {element, update(live)}. */
function followed(tab, path, signal) {
  if (tab === "tour") {
    const made = panel("Travel timeline", { paths: [`${path}/visits`, `${path}/events`], note: "One lane per party. A span is where the GPU was and for what, from each visit's measured durations. Nothing secret depends on it; the receipts are what counts." });
    const chart = new Timeline(signal);
    made.body.append(chart.element);
    return { element: made.element, update: (live) => chart.update(live) };
  }
  const made = panel("Losses", { paths: [`${path}/losses`, `${path}/visits`], note: "As released by the manifest: per step, to the owner and to each holder for itself, never over fewer records than the privacy floor." });
  const chart = new Training(signal);
  made.body.append(chart.element);
  return { element: made.element, update: (live) => chart.update(live) };
}

const ONCE = { trust: trustTab, contract: contractTab, receipts: receiptsTab, artifacts: artifactsTab };

/** The band about emulation: said by the manifest too, which is read once, and once said it stays. */
function band(path, told) {
  let [loud, asked] = [false, false];
  const emulated = (yes) => {
    loud ||= yes;
    told.emulated(loud);
    if (loud || asked) return;
    asked = true;
    manifestOf(path, told.signal).then(({ says }) => emulated(admitsEmulated(says)), (problem) => { asked = !passing(problem); });
  };
  return emulated;
}

/** The page of one session and tab. */
export function sessionPage({ id, tab }, told) {
  const wanted = { id, tab: Object.hasOwn(TABS, tab ?? "") ? tab : "tour" };
  const path = `/v1/sessions/${encodeURIComponent(wanted.id)}`;
  const head = h("div", { class: "heading" }, h("h1", null, "Session"));
  const sum = panel("At a glance", { paths: [path] });
  const place = h("div");
  const page = h("div", null, head, tabs(wanted), sum.element, place);
  let state = "opening";
  let part = null;
  const failed = (problem) => { if (!told.signal.aborted) show(place, problemBox(problem)); };
  const live = new Live(wanted.id, told.signal, {
    changed: () => paint(),
    said: (now) => { state = now; if (live.view) headed(); },
    failed,
  });
  let phase = null;
  const emulated = band(path, told);
  function headed() {
    redrawn(head, () => show(head, heading(live.view, state)));
  }
  function paint() {
    if (told.signal.aborted) return;
    const { view } = live;
    told.title(`${view.name}: ${TABS[wanted.tab]}`);
    emulated(view.backend === "EMULATED");
    headed();
    redrawn(sum.body, () => show(sum.body, overview(view)));
    if (phase !== null && phase !== view.phase) announce(`The session is ${view.phase}`);
    phase = view.phase;
    if (part === null) {
      part = ONCE[wanted.tab] ? ONCE[wanted.tab]({ path, live, signal: told.signal, emulated }) : followed(wanted.tab, path, told.signal);
      show(place, part.element);
    }
    part.update?.(live);
  }
  live.begin().catch((problem) => { if (problem.name !== "AbortError") failed(problem); });
  return page;
}
