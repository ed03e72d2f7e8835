/* The travel timeline: lanes and spans drawn as SVG, zoom, replay, the chosen visit. Knows no API. */

import { announce, badge, digest, facts, fold, h, s, show, table } from "./common/dom.js";
import { axisTime, bytes, duration, moment, number, ticks } from "./common/format.js";
import { redrawn } from "./common/panel.js";
import { layOut, moved, took, totals, tourOf, zoomed } from "./tour.js";
import { SPANS } from "./words.js";

const LANE = 34;
const LEFT = 104;
const REPLAY_MS = 15000;
const FRAME_MS = 66;

function legend() {
  return h("ul", { class: "legend" }, SPANS.map(([kind, words]) => h("li", null,
    s("svg", { "aria-hidden": "true", viewBox: "0 0 12 12" }, s("rect", { class: `span ${kind}`, width: 12, height: 12, rx: 2 })), words)));
}

/** A chart that is given a session's `Live` by `update`. */
export class Timeline {
  #live = null;
  #tour = null;
  #window = null; // [from, to]; null: all visits
  #until = null; // replay's position; null: live
  #chosen = null;
  #chosenSays = "";
  #timer = null;

  constructor(signal) {
    this.drawing = h("div");
    this.chosen = h("div", { class: "chosen", "aria-live": "off" }, h("p", { class: "quiet" }, "Point at a visit, or move with Tab and the arrow keys, to see what its receipt says."));
    this.sums = h("div");
    this.slider = h("input", { type: "range", min: 0, max: 1000, value: 1000, "aria-label": "Replay position", oninput: () => this.#seek(Number(this.slider.value)) });
    this.play = h("button", { type: "button", onclick: () => this.#replay() }, "▶ Replay");
    const button = (words, name, act) => h("button", { type: "button", "aria-label": name, title: name, onclick: act }, words);
    const tools = h("div", { class: "timeline-tools", role: "group", "aria-label": "Zoom and replay" },
      button("+", "Zoom in", () => this.#zoom(0.5)), button("−", "Zoom out", () => this.#zoom(2)),
      button("◀", "Earlier", () => this.#move(-0.5)), button("▶", "Later", () => this.#move(0.5)),
      button("Visits", "Show all visits", () => this.#fit(null)), button("All", "Show all, with the setup", () => this.#fit([this.#tour.start, this.#tour.end])), this.play, this.slider);
    this.element = h("div", null, tools, this.drawing, legend(), this.chosen, this.sums);
    const resized = new ResizeObserver(() => this.#draw());
    resized.observe(this.drawing);
    signal.addEventListener("abort", () => { resized.disconnect(); clearInterval(this.#timer); });
  }

  update(live) {
    this.#live = live;
    const state = { view: live.view, visits: [...live.visits.values()], facts: live.facts, at: live.at, now: Date.now() / 1000 };
    this.#tour = tourOf(state);
    this.#draw();
    this.#showChosen("off"); // what a visit comes to is read by whoever looks: nobody is told each step of it
    redrawn(this.sums, () => show(this.sums, this.#table()));
  }

  #range() {
    return this.#window ?? [this.#tour.first, this.#tour.end];
  }

  #zoom(factor) {
    if (!this.#tour) return;
    this.#window = zoomed(this.#range(), factor, 0.5, this.#tour.start, this.#tour.end);
    this.#draw();
  }

  #move(share) {
    if (!this.#tour) return;
    this.#window = moved(this.#range(), share, this.#tour.start, this.#tour.end);
    this.#draw();
  }

  #fit(range) {
    if (!this.#tour) return;
    this.#window = range;
    this.#until = null;
    this.slider.value = 1000;
    this.#draw();
  }

  #seek(position) {
    if (!this.#tour) return;
    const { start, end } = this.#tour;
    this.#until = position >= 1000 ? null : start + (end - start) * (position / 1000);
    this.#draw();
  }

  #replay() {
    if (this.#timer !== null) {
      clearInterval(this.#timer);
      this.#timer = null;
      this.play.textContent = "▶ Replay";
      return;
    }
    let position = Number(this.slider.value) >= 1000 ? 0 : Number(this.slider.value);
    this.play.textContent = "❚❚ Pause";
    this.#timer = setInterval(() => {
      position = Math.min(1000, position + (1000 * FRAME_MS) / REPLAY_MS);
      this.slider.value = position;
      this.#seek(position);
      if (position >= 1000) this.#replay();
    }, FRAME_MS);
  }

  #draw() {
    if (!this.#tour) return;
    const focused = document.activeElement?.closest?.(".visit")?.dataset.visit ?? null;
    const width = Math.max(this.drawing.clientWidth || 800, 300);
    const left = width < 500 ? 78 : LEFT;
    const { lanes } = this.#tour;
    const height = lanes.length * LANE + 40;
    const chart = s("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": this.#words() });
    chart.append(...this.#axis(width, left, height), ...this.#lanes(width, left), ...this.#spans(width - left - 4, left), ...this.#marks(width - left - 4, left, height));
    show(this.drawing, chart);
    if (focused) chart.querySelector(`[data-visit="${CSS.escape(focused)}"]`)?.focus();
  }

  #words() {
    const { lanes, start, end } = this.#tour;
    return `Travel timeline: ${lanes.length} lanes, ${this.#live.visits.size} visits within ${duration(end - start)}. The table below says the same.`;
  }

  #axis(width, left, height) {
    if (this.#tour.spans.length === 0) return [s("text", { x: left, y: height - 8 }, "The GPU has not begun.")];
    const [from, to] = this.#range();
    const scale = (width - left - 4) / Math.max(to - from, 1e-9);
    const offset = from - this.#tour.start;
    const found = ticks(offset, to - this.#tour.start, Math.max(3, Math.floor(width / 130)));
    return found.map((at) => {
      const x = left + (at - offset) * scale;
      return s("g", null, s("line", { class: "grid", x1: x, x2: x, y1: 0, y2: height - 24 }),
        s("text", { x, y: height - 8, "text-anchor": x > width - 40 ? "end" : "middle" }, `+${axisTime(at, (found[1] ?? at) - found[0])}`));
    });
  }

  #lanes(width, left) {
    return this.#tour.lanes.map((name, at) => s("g", null,
      s("rect", { class: "lane", x: left, y: at * LANE + 4, width: Math.max(0, width - left - 4), height: LANE - 8, rx: 4 }),
      s("text", { class: "lane-name", x: 0, y: at * LANE + LANE / 2 + 4 }, name.length > left / 8 ? `${name.slice(0, Math.floor(left / 8))}…` : name, s("title", null, name))));
  }

  #spans(width, left) {
    const [from, to] = this.#range();
    const until = Math.min(to, this.#until ?? to);
    const scale = (until - from) / (to - from);
    if (!(scale > 0)) return [];
    const groups = new Map();
    for (const drawn of layOut(this.#tour, from, until, width * scale)) {
      const id = drawn.spans[0].visit ?? "";
      if (!groups.has(id)) groups.set(id, []);
      groups.get(id).push(drawn);
    }
    const reached = this.#reached([...groups.keys()]);
    return [...groups].map(([id, drawn]) => this.#group(id, drawn, left, id === reached));
  }

  /** The one visit of those drawn that Tab stops at: the chosen one, else the first, wherever the window is. */
  #reached(drawn) {
    return drawn.includes(this.#chosen) ? this.#chosen : drawn.find((id) => this.#live.visits.has(id));
  }

  #group(id, drawn, left, here) {
    const y = (lane) => this.#tour.lanes.indexOf(lane) * LANE + 7;
    const visit = this.#live.visits.get(id);
    const title = (one) => (visit ? null : s("title", null, one.spans[0].parts.map(([name, seconds]) => `${name} ${duration(seconds)}`).join(" · ")));
    const parts = drawn.map((one) => s("rect", { class: `span ${one.kind}`, x: left + one.x, y: y(one.lane), width: one.width, height: LANE - 14, rx: 2 }, title(one)));
    if (!visit) return s("g", null, parts);
    const first = Math.min(...drawn.map((one) => one.x));
    const last = Math.max(...drawn.map((one) => one.x + one.width));
    const high = Math.min(...drawn.map((one) => y(one.lane)));
    const low = Math.max(...drawn.map((one) => y(one.lane)));
    const frame = s("rect", { class: "frame", x: left + first - 1, y: high - 2, width: last - first + 2, height: low - high + LANE - 10, rx: 3 });
    return s("g", {
      class: "visit", tabindex: here ? 0 : -1, role: "button", dataset: { visit: id }, "aria-current": this.#chosen === id ? "true" : null,
      "aria-label": `Visit ${visit.index} at ${visit.holder}, attempt ${visit.attempt}, ${String(visit.phase).toLowerCase()}`,
      onfocus: () => this.#choose(id), onmouseenter: () => this.#choose(id), onclick: () => this.#choose(id),
      onkeydown: (event) => this.#key(event, id),
    }, parts, frame);
  }

  #key(event, id) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const groups = [...this.drawing.querySelectorAll(".visit")].sort((a, b) => this.#order(a) - this.#order(b));
    groups[groups.findIndex((one) => one.dataset.visit === id) + step]?.focus();
  }

  #order(group) {
    return this.#live.visits.get(group.dataset.visit)?.planned_at ?? 0;
  }

  #marks(width, left, height) {
    const [from, to] = this.#range();
    const until = Math.min(to, this.#until ?? to);
    const x = (at) => left + ((at - from) / Math.max(to - from, 1e-9)) * width;
    const shown = this.#tour.marks.filter((mark) => mark.at >= from && mark.at <= until);
    const lines = shown.map((mark) => s("line", { class: mark.calm ? "mark calm" : "mark", x1: x(mark.at), x2: x(mark.at), y1: 0, y2: height - 24 }, s("title", null, mark.text)));
    if (this.#until !== null) lines.push(s("line", { class: "now", x1: x(until), x2: x(until), y1: 0, y2: height - 24 }));
    return lines;
  }

  #choose(id) {
    const visit = this.#live.visits.get(id);
    if (!visit || this.#chosen === id) return;
    this.#chosen = id;
    for (const group of this.drawing.querySelectorAll(".visit")) {
      const here = group.dataset.visit === id;
      group.setAttribute("tabindex", here ? 0 : -1);
      if (here) group.setAttribute("aria-current", "true");
      else group.removeAttribute("aria-current");
    }
    this.#showChosen("polite");
  }

  #showChosen(live) {
    const visit = this.#live.visits.get(this.#chosen);
    const says = JSON.stringify(visit);
    if (!visit || says === this.#chosenSays) return;
    this.#chosenSays = says;
    this.chosen.setAttribute("aria-live", live);
    redrawn(this.chosen, () => show(this.chosen, visitFacts(visit)));
  }

  #table() {
    const sums = [...totals(this.#tour.spans)];
    const rows = [...this.#live.visits.values()].slice(-200).reverse();
    announce(`${this.#live.view.position} of ${this.#live.view.visits_total} visits gone through`);
    return fold("As tables: where the time went, and the last 200 visits",
      table("Where the time went", [["Kind", ([kind]) => kind], ["Time", ([, seconds]) => duration(seconds), "number"]], sums),
      table("Visits, the newest first", [
        ["Visit", (one) => `${one.index}`], ["Holder", (one) => one.holder], ["Round", (one) => one.round, "number"], ["Attempt", (one) => one.attempt, "number"],
        ["Phase", (one) => one.phase], ["Took", (one) => (one.closed_at ? duration(took(one)) : "–"), "number"],
        ["Records", (one) => one.records ?? "–", "number"], ["Mean loss", (one) => number(one.mean_loss), "number"], ["Why", (one) => one.reason ?? ""],
      ], rows));
  }
}

/** What a visit and its receipt say, in words. */
function visitFacts(visit) {
  const kind = visit.outcome === "closed" ? "good" : visit.outcome ? "bad" : "info";
  const steps = Object.entries(visit.durations ?? {}).map(([name, seconds]) => `${name} ${duration(seconds)}`).join(" · ");
  const timers = Object.entries(visit.timers ?? {}).map(([name, seconds]) => `${name.replace("_", " ")} ${duration(seconds)}`).join(" · ");
  return h("div", null, h("h3", null, `Visit ${visit.index} at ${visit.holder} `, badge(visit.outcome ?? visit.phase, kind)), facts([
    ["Round, attempt", `${visit.round}, ${visit.attempt}`], ["Epoch, fenced by", `${visit.epoch ?? "–"}, ${visit.fence_epoch ?? "–"}`],
    ["Planned", moment(visit.planned_at)], ["Took", visit.closed_at ? duration(took(visit)) : "under way"],
    ["Records, bytes", `${visit.records ?? "–"}, ${bytes(visit.length)}`], ["Steps", visit.steps], ["Mean loss", number(visit.mean_loss)],
    ["Commitment", visit.commitment ? digest(visit.commitment) : null], ["Receipt", visit.receipt === null || visit.receipt === undefined ? "none yet" : `leaf ${visit.receipt}`],
    ["Reason", visit.reason],
  ]), steps ? h("p", { class: "quiet" }, `Steps: ${steps}`) : null, timers ? h("p", { class: "quiet" }, `The holder's timers: ${timers}`) : null);
}
