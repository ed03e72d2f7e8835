/* Training: losses per step and per holder as a chart and a table, the recency badge, privacy spent. Knows no network. */

import { badge, facts, fold, h, s, show, table } from "./common/dom.js";
import { age, number, ticks } from "./common/format.js";
import { redrawn } from "./common/panel.js";
import { BIAS_SHARE, curves, heldOut, recency, thinned } from "./losses.js";

const HEIGHT = 280;
const LEFT = 46;
const BOTTOM = 30;
const MOST_POINTS = 1200;
const STYLES = 6;

/** Drawn anew by `update` with a session's `Live`. */
export class Training {
  constructor(signal) {
    this.summary = h("div");
    this.drawing = h("div");
    this.tables = h("div");
    this.element = h("div", null, this.summary, this.drawing, this.tables);
    this.live = null;
    const resized = new ResizeObserver(() => this.live && this.#draw());
    resized.observe(this.drawing);
    signal.addEventListener("abort", () => resized.disconnect());
  }

  update(live) {
    this.live = live;
    this.visits = [...live.visits.values()];
    this.found = curves(this.visits, live.losses.values(), live.facts, live.closes);
    this.validation = heldOut(this.visits, live.facts, live.closes);
    const bias = recency(this.visits, live.facts, live.closes);
    show(this.summary, this.#facts(bias));
    this.#draw();
    redrawn(this.tables, () => show(this.tables, fold("As tables: losses on arrival and on leaving, the last losses, privacy", ...this.#tables(bias))));
  }

  #facts(bias) {
    const { view } = this.live;
    return h("div", null, h("p", { class: "row" }, biasBadge(bias)), facts([
      ["Steps", `${view.step} of ${view.steps_total}`], ["Round", `${view.round} of ${view.rounds}`],
      ["Held-out loss, first", number(view.validation_loss?.first)], ["Held-out loss, last", number(view.validation_loss?.last)],
    ]));
  }

  #draw() {
    const why = this.found.size > 0 ? null : h("p", { class: "quiet" }, this.live.view.visits_closed > 0
      ? "Losses are released to the session's owner and to each holder for itself. Open this page with a token that reads as the owner."
      : "No loss yet.");
    if (this.found.size === 0 && this.validation.length === 0) {
      show(this.drawing, why);
      return;
    }
    const width = Math.max(this.drawing.clientWidth || 800, 300);
    const all = [...this.found.values(), this.validation].flat();
    const box = bounds(all, width);
    const lines = [...this.found].map(([, points], at) => curve(points, box, `curve c${at % STYLES}`));
    const dots = thinned(this.validation, MOST_POINTS).map(([step, loss]) => s("circle", { class: "dot c3", cx: box.x(step), cy: box.y(loss), r: 4 }, s("title", null, `held out, after step ${step}: ${number(loss)}`)));
    const chart = s("svg", { class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `Loss by step, ${this.found.size} curves. The tables below say the same.` }, axes(box, width), lines, dots);
    show(this.drawing, why, chart, this.#legend());
  }

  #legend() {
    const sample = (kind) => s("svg", { class: "line", viewBox: "0 0 26 12", "aria-hidden": "true" }, s("path", { class: kind, d: "M1 6H25" }));
    const names = [...this.found.keys()].map((name, at) => h("li", null, sample(`curve c${at % STYLES}`), name));
    if (this.validation.length > 0) names.push(h("li", null, s("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" }, s("circle", { class: "dot c3", cx: 6, cy: 6, r: 4 })), "held out (the owner's validation set)"));
    return h("ul", { class: "legend" }, names);
  }

  #tables(bias) {
    const last = [...this.found].map(([name, points]) => ({ name, first: points[0], last: points.at(-1), least: points.reduce((least, one) => Math.min(least, one[1]), Infinity) }));
    const { holders } = this.live.view;
    const now = Date.now() / 1000;
    return [
      table("Losses by holder", [
        ["Holder", (one) => one.name], ["First", (one) => number(one.first[1]), "number"], ["Last", (one) => number(one.last[1]), "number"],
        ["Lowest", (one) => number(one.least), "number"], ["At step", (one) => one.last[0], "number"],
      ], last, "No loss is released to you."),
      table("Loss when the GPU left a holder, and when it came back", [
        ["Holder", (one) => one.holder], ["On leaving", (one) => number(one.left), "number"], ["On coming back", (one) => number(one.back), "number"],
        ["Worse by", (one) => `${number(one.share * 100, 1)} %`, "number"],
      ], bias.rows, "Known from the second round on, with released losses."),
      table("Records and privacy", [
        ["Holder", (one) => one.holder], ["Records trained on", (one) => one.records_done, "number"],
        ["ε spent", (one) => number(one.privacy?.spent), "number"], ["ε planned", (one) => number(one.privacy?.planned), "number"],
        ["δ", (one) => one.privacy?.delta ?? "–", "number"],
        ["Rejected", (one) => one.rejected, "number"], ["Visited", (one) => (one.quarantined ? badge("no more: quarantined", "bad") : "yes")],
        ["Channel", (one) => (one.channel ? "open" : "none")], ["Last heard of", (one) => age(one.last_seen, now), "tight"],
      ], holders),
    ];
  }
}

/** The badge and its words. */
function biasBadge(bias) {
  const percent = bias.share === null ? "" : `${number(Math.abs(bias.share) * 100, 1)} % ${bias.share < 0 ? "better" : "worse"}`;
  const [text, kind, words] = {
    unknown: ["recency bias: not known yet", "quiet", "It takes two visits of at least two holders, with their losses released to you."],
    none: ["no recency bias", "good", `Coming back to a holder, the model is ${percent} there than when it left (${BIAS_SHARE * 100} % worse would be a bias).`],
    biased: ["RECENCY BIAS", "warn", `Coming back to a holder, the model is ${percent} there than when it left: it favours whom it visited last. Shorter visits or tours help.`],
  }[bias.state];
  return [badge(text, kind), h("span", null, words)];
}

function bounds(points, width) {
  const steps = points.map((one) => one[0]);
  const values = points.map((one) => one[1]);
  const least = values.reduce((a, b) => Math.min(a, b), Infinity);
  const most = values.reduce((a, b) => Math.max(a, b), -Infinity);
  const room = Math.max((most - least) * 0.06, 1e-3);
  const range = { first: steps.reduce((a, b) => Math.min(a, b), Infinity), last: steps.reduce((a, b) => Math.max(a, b), -Infinity), low: least - room, high: most + room };
  const across = Math.max(range.last - range.first, 1);
  return {
    ...range,
    x: (step) => LEFT + ((step - range.first) / across) * (width - LEFT - 10),
    y: (loss) => 8 + (1 - (loss - range.low) / (range.high - range.low)) * (HEIGHT - BOTTOM - 8),
  };
}

function axes(box, width) {
  const rows = ticks(box.low, box.high, 5).map((value) => s("g", null,
    s("line", { class: "grid", x1: LEFT, x2: width - 10, y1: box.y(value), y2: box.y(value) }),
    s("text", { x: LEFT - 6, y: box.y(value) + 4, "text-anchor": "end" }, number(value, 3))));
  const whole = ticks(box.first, box.last, Math.max(2, Math.floor(width / 110))).filter(Number.isInteger);
  const columns = whole.map((step) => s("text", { x: box.x(step), y: HEIGHT - 10, "text-anchor": box.x(step) > width - 45 ? "end" : "middle" }, `step ${step}`));
  return [...rows, ...columns];
}

function curve(points, box, kind) {
  const path = thinned(points, MOST_POINTS).map(([step, loss], at) => `${at === 0 ? "M" : "L"}${box.x(step).toFixed(1)} ${box.y(loss).toFixed(1)}`).join("");
  return s("path", { class: kind, d: points.length === 1 ? `${path}h3` : path });
}
