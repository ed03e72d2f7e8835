/* From visits and facts to spans on lanes: who had the GPU, when, and for what. Pure: knows no element and no clock. */

import { AFTER_FACT, BROKEN, ENDS, spanOf } from "./words.js";

const ORCHESTRATOR = "orchestrator";
const LONGEST_SETUP_S = 600;

function laneOf(kind, holder) {
  return kind === "provision" ? holder : ORCHESTRATOR;
}

/** Whether a visit's durations end where it was closed: not where it then waited for its tour's training. */
function straight(visit) {
  return Boolean(visit.closed_at) && "train" in (visit.durations ?? {});
}

/** Seconds that a closed visit took; without those that its plan waited for the visit before to be trained. */
export function took(visit) {
  return straight(visit) ? sum(visit.durations) : visit.closed_at - visit.planned_at;
}

function sum(durations) {
  return Object.values(durations).reduce((all, seconds) => all + seconds, 0);
}

/** Measured durations laid end to end from `start`; neighbours of one kind are one span. */
function laid(visit, holder, durations, start) {
  const spans = [];
  let at = start;
  for (const [name, seconds] of Object.entries(durations)) {
    const kind = spanOf(name);
    const last = spans.at(-1);
    if (last && last.kind === kind) {
      last.end += seconds;
      last.parts.push([name, seconds]);
    } else spans.push({ visit, kind, lane: laneOf(kind, holder), start: at, end: at + seconds, parts: [[name, seconds]] });
    at += seconds;
  }
  return spans;
}

/**
 * A closed visit: its measured durations laid end to end, back from its close: it may have been planned while the GPU trained for another.
 * One that was not trained, or waited for its tour's training: on from its beginning, at `since` the earliest; what is left over is shown as
 * waiting, unless its tour is `drawn` by itself.
 */
function measured(visit, since, drawn) {
  const back = straight(visit);
  const spans = laid(visit.id, visit.holder, visit.durations, back ? visit.closed_at - took(visit) : Math.max(visit.planned_at, since));
  const at = spans.at(-1).end;
  const end = Math.max(at, visit.closed_at ?? at);
  if (!back && !drawn && end > at) spans.push({ visit: visit.id, kind: "waiting", lane: ORCHESTRATOR, start: at, end, parts: [["between steps", end - at]] });
  return spans;
}

/** What tours took that no visit did alone, back from the fact that ended each: {spans, drawn: ids of the visits that such a tour was of}. */
function ofTours(facts) {
  const [spans, drawn] = [[], new Set()];
  let before = null;
  for (const fact of facts) {
    const taken = fact.tour_durations ?? (fact.fact === "tour_ended" ? fact.durations : null);
    if (!taken) continue;
    for (const id of fact.visits ?? [fact.visit]) drawn.add(id);
    if (fact.at === before) continue; // each visit of a rejected tour says so
    before = fact.at;
    const found = laid(null, null, taken, fact.at - sum(taken));
    if (fact.fact === "rejected" && found.length > 0) found.at(-1).kind = "broken";
    spans.push(...found);
  }
  return { spans, drawn };
}

/** The training of a tour that is under way: when every holder's visit of the round waits for it. */
function trainsNow({ view, visits, at, now }) {
  const open = visits.filter((visit) => !visit.outcome);
  const since = open.map((visit) => at.get(visit.id)?.verified ?? Infinity);
  const all = open.length > 0 && open.length === view.holders.filter((one) => !one.quarantined).length;
  if (!all || !open.every((visit) => timed(visit) && !("train" in visit.durations))) return [];
  const start = Math.max(...since);
  return start < now ? [{ visit: null, kind: "train", lane: ORCHESTRATOR, start, end: now, parts: [["train", now - start]] }] : [];
}

function timed(visit) {
  return visit.durations && Object.keys(visit.durations).length > 0 && visit.planned_at;
}

/** When the GPU was free for a visit, by its facts and those of the visit before. Whose key was drawn by the time of that one's fence seals ahead. */
function free(facts, before, now) {
  const ahead = before && (facts.granted ?? facts.planned) <= (before.fenced ?? Infinity);
  if (!ahead) return 0;
  return ENDS.map((fact) => before[fact]).find((at) => at !== undefined) ?? now;
}

/** A visit without durations: its facts' times, and the last of them until `now`; nothing from before `since`. */
function told(visit, facts, since, now) {
  const inOrder = Object.entries(facts).sort((a, b) => a[1] - b[1]);
  const spans = [];
  inOrder.forEach(([fact, at], index) => {
    const kind = AFTER_FACT[fact];
    if (!kind) return;
    const start = Math.max(at, since);
    const end = inOrder[index + 1]?.[1] ?? (visit.closed_at || visit.outcome ? at : now);
    if (end > start) spans.push({ visit: visit.id, kind, lane: laneOf(kind, visit.holder), start, end, parts: [[fact, end - start]] });
  });
  return spans;
}

function broken(visit) {
  return BROKEN.has(String(visit.outcome ?? visit.last_fact ?? visit.phase).toLowerCase());
}

const RESTS = new Set(["paused", "completed", "failed", "cancelled"]);

/**
 * Setup of each life: from its claim until the GPU opened it, and on until program and model lie there. A life whose GPU is as it was is placed
 * no more: by its boot counter nothing is expected of it, and none grows until now.
 */
function setups(facts, now) {
  const spans = [];
  const add = (start, end, name = "setup") => {
    if (start !== null) spans.push({ visit: null, kind: "setup", lane: ORCHESTRATOR, start, end: Math.max(end, start), parts: [[name, Math.max(end - start, 0)]] });
  };
  let [since, opened, boot, placed] = [null, null, null, null]; // the last two: boot counters, of this life and of the one that was placed last
  for (const fact of facts) {
    const name = fact.kind === "session" || fact.fact === "claimed" ? fact.fact : "";
    if (name === "started" || name === "claimed") since ??= fact.at;
    else if (name === "life_opened") {
      add(since, fact.at);
      [since, opened, boot] = [null, fact.at, fact.boot_counter ?? null];
    } else if (name === "placed") {
      add(opened, fact.at);
      [opened, placed] = [null, boot];
    } else if (RESTS.has(name)) {
      add(since, fact.at);
      [since, opened] = [null, null];
    } else if (name === "checkpointed" && fact.seconds) add(fact.at - fact.seconds, fact.at, "checkpoint");
  }
  const open = since ?? (boot === null || boot !== placed ? opened : null);
  if (open !== null && now - open < LONGEST_SETUP_S) add(open, now);
  return spans;
}

const MARKED = { restored: false, life_opened: true, paused: true, resumed: true, vetoed: false, failed: false, completed: true, cancelled: false };

/**
 * The whole tour: {lanes, spans, marks, start, first, end}; `first` is where the first visit begins. `at`: times of facts by visit, for those that have no durations yet.
 * `marks`: {at, text, calm}. Times in seconds since 1970.
 */
export function tourOf({ view, visits, facts, at, now }) {
  const lanes = [ORCHESTRATOR, ...view.holders.map((one) => one.holder)];
  const tours = ofTours(facts);
  const spans = [...setups(facts, now), ...tours.spans, ...trainsNow({ view, visits, at, now })];
  visits.forEach((visit, index) => {
    const known = at.get(visit.id) ?? {};
    const since = free(known, at.get(visits[index - 1]?.id), now);
    const found = timed(visit) ? measured(visit, since, tours.drawn.has(visit.id)) : told(visit, known, since, now);
    if (broken(visit) && found.length > 0) found.at(-1).kind = "broken";
    spans.push(...found);
  });
  spans.sort((a, b) => a.start - b.start);
  const marks = facts.filter((fact) => fact.fact in MARKED && fact.kind === "session")
    .map((fact) => ({ at: fact.at, text: fact.fact.replace("_", " "), calm: MARKED[fact.fact] }));
  const start = spans.length > 0 ? spans[0].start : view.created_at;
  const end = spans.reduce((latest, span) => Math.max(latest, span.end), start + 0.001);
  const first = spans.find((span) => span.visit !== null)?.start ?? start;
  return { lanes, spans, marks, start, first: Math.min(first, end - 1e-6), end };
}

/** Seconds of each kind of span, and of all. */
export function totals(spans) {
  const sums = new Map();
  for (const span of spans) sums.set(span.kind, (sums.get(span.kind) ?? 0) + span.end - span.start);
  return sums;
}

/**
 * Spans within `from`…`to` as rectangles of a drawing `width` wide: {lane, x, width, kind, spans}. What would be narrower than `least` is
 * drawn together with its neighbours of the same lane, so that a tour of ten thousand visits is no more to draw than a short one.
 */
export function layOut(tour, from, to, width, least = 1.5) {
  const scale = width / Math.max(to - from, 1e-9);
  const open = new Map();
  const found = [];
  for (const span of tour.spans) {
    const start = Math.max(span.start, from);
    const end = Math.min(span.end, to);
    if (end < from || start > to || end < start) continue;
    const x = (start - from) * scale;
    const wide = (end - start) * scale;
    const last = open.get(span.lane);
    if (wide < least && last && last.dense && x - (last.x + last.width) < least && last.width < 6) {
      last.width = Math.max(last.width, x + wide - last.x);
      last.spans.push(span);
      if (span.kind === "broken") last.kind = "broken";
      continue;
    }
    const drawn = { lane: span.lane, x, width: Math.max(wide, least), kind: span.kind, spans: [span], dense: wide < least };
    open.set(span.lane, drawn);
    found.push(drawn);
  }
  return found;
}

/** Zoom by `factor` about `middle` (0…1 of the window), kept within the tour. */
export function zoomed([from, to], factor, middle, start, end) {
  const span = Math.min(Math.max((to - from) * factor, 1e-4), end - start);
  const at = from + (to - from) * middle;
  const first = Math.min(Math.max(at - span * middle, start), end - span);
  return [first, first + span];
}

/** Move by `share` of the window, kept within the tour. */
export function moved([from, to], share, start, end) {
  const by = (to - from) * share;
  const first = Math.min(Math.max(from + by, start), end - (to - from));
  return [first, first + (to - from)];
}
