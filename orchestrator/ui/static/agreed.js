/* What holders read before they agree: what a session is expected to take, and in what their datasets differ. Decides nothing. */

import { badge, facts, h, table } from "./common/dom.js";
import { bytes, count, duration } from "./common/format.js";

/** The estimate; where nothing tells, the reasons in place of a number. */
export function estimateView(told) {
  return h("div", null, facts([
    ["Visits", told.visits], ["Training steps", told.steps], ["Bytes of records", bytes(told.bytes)],
    ["GPU time in all", told.seconds === null ? "not known yet" : duration(told.seconds)],
  ]), told.unknown.map((why) => h("p", { class: "quiet" }, `Not known yet: ${why}.`)), table("Of each holder", [
    ["Holder", (one) => one.holder], ["Visits", (one) => one.visits, "number"], ["Steps", (one) => one.steps, "number"], ["Bytes", (one) => bytes(one.bytes), "number"],
    ["Each record", (one) => (one.passes === null ? "–" : `${one.passes.toFixed(2)} times`), "number"],
    ["A visit", (one) => duration(one.seconds_per_visit), "number"], ["All visits", (one) => duration(one.seconds), "number"],
  ], told.holders), h("p", { class: "note" }, told.basis));
}

/** The comparison of the holders' datasets. A session whose key is away has none yet. */
export function agreementView(agreement) {
  if (!agreement) return h("p", { class: "quiet" }, "Nothing was compared yet.");
  const held = agreement.held ? h("p", null, badge("HELD", "bad"), " The session does not begin while these datasets contradict each other.") : null;
  return h("div", null, held, h("p", null, `${count(agreement.compared.length, "approval")} with a profile of the dataset.`), table("In what the datasets differ", [
    ["Severity", (one) => badge(one.severity, one.severity === "mismatch" ? "bad" : "warn")], ["What", (one) => one.detail], ["What to do", (one) => one.remedy], ["Code", (one) => h("code", null, one.code)],
  ], agreement.findings, "In nothing that was compared."));
}
