/* Receipts verified in this browser, as a panel: results, and a bit to flip. Knows no API: it is handed what to read with. */

import { badge, command, digest, facts, fold, h, show, table } from "./dom.js";
import { lacking } from "./cose.js";
import { count, leaves, moment } from "./format.js";
import { problemBox } from "./panel.js";
import { checkLog, judged, withFlippedBit } from "./receipts_check.js";

const SHOWN = 200;

/** The command that saves a session's receipts, in a folder of their own: another session's lie in another. */
export const saving = (session) => `gput session receipts ${session} --trust TRUST_FOLDER -o receipts-${session}`;

/** The commands that save and really check them. `head`: SIZE:ROOT to hold the log against, if one is remembered. */
export const checking = (session, head = null) => `${saving(session)} && gput receipts verify receipts-${session}${head ? ` --head ${head}` : ""}`;

/** What stands in place of results where the browser cannot check: nothing was verified, and why. */
function unable(lacks) {
  return h("div", { id: "verdict", class: "problem", role: "alert" }, h("strong", null, "Not verified here: "), "this browser lacks what it takes. Nothing below was checked by it.",
    h("ul", null, lacks.map((name) => h("li", null, name))));
}

/**
 * Results of a whole log. `read()` gives what `check(bundle, session, told)` checks; `real`: the command that really checks.
 */
export async function verifiedLog(place, read, real, check = checkLog) {
  const state = h("p", { role: "status" }, "Reading the log …");
  show(place, state);
  try {
    const lacks = await lacking();
    if (lacks.length > 0) {
      show(place, unable(lacks), command(real));
      return;
    }
    const bundle = await read();
    const found = await check(bundle, bundle.session, (done, of) => { if (done % 25 === 0) state.textContent = `${done} of ${leaves(of)}`; });
    show(place, ...report(bundle, found), command(real));
  } catch (problem) {
    if (problem.name !== "AbortError") show(place, problemBox(problem), command(real));
  }
}

function report(bundle, { whole, results, known }) {
  const bad = [...whole.filter((one) => !one.ok).map((one) => `${one.name}: ${one.detail}`), ...results.filter((one) => !one.ok).map(named)];
  const receipts = results.filter((one) => one.kind === "receipt").length;
  const good = `All hold: ${leaves(results.length)}, ${count(receipts, "receipt")} among them`;
  const verdict = bad.length === 0 ? h("p", { id: "verdict" }, badge("VERIFIED HERE", "good"), " ", good)
    : h("div", { id: "verdict", class: "problem", role: "alert" }, h("strong", null, "Does not hold: "), h("ul", null, bad.slice(0, 20).map((text) => h("li", null, text))));
  return [
    verdict,
    h("ul", { class: "checks" }, whole.map((one) => h("li", null, badge(one.ok ? "holds" : "FAILS", one.ok ? "good" : "bad"), " ", one.name, one.detail ? `: ${one.detail}` : ""))),
    known ? flipper(bundle, known) : null,
    leavesTable(results),
  ];
}

const named = (one) => `leaf ${one.index}: ${one.check}: ${one.detail}`;

/** What a device stated of a visit or a tour's end, as `shown`. */
function ofDevice({ statement, end }, shown) {
  const said = statement ?? end;
  return said ? shown(said) : "–";
}

function leavesTable(results) {
  return table(`Leaves of the log, checked one by one${results.length > SHOWN ? `; the last ${SHOWN} and all that fail` : ""}`, [
    ["Leaf", (one) => one.index, "tight"], ["What", what], ["Result", (one) => [badge(one.ok ? "holds" : "FAILS", one.ok ? "good" : "bad"), one.ok && one.detail ? ` ${one.detail}` : ""]],
    ["Signed as", (one) => ofDevice(one, (said) => badge(said.get("backend"), said.get("backend") === "EMULATED" ? "loud" : "good"))],
    ["Model after", (one) => ofDevice(one, (said) => digest(said.get("model_after")))],
    ["Check that fails", (one) => (one.ok ? "" : `${one.check}: ${one.detail}`)],
    ["Says", (one) => (one.receipt ? fold("all", claims(one)) : "")],
  ], results.filter((one, at) => !one.ok || at >= results.length - SHOWN));
}

function what(one) {
  if (one.receipt) return `visit ${one.receipt.get("index")} at ${one.receipt.get("holder")}: ${one.receipt.get("outcome")}`;
  if (Array.isArray(one.event)) return `event: ${one.event[2]}`;
  return one.kind;
}

function claims({ receipt, statement }) {
  const shown = (value) => (value instanceof Uint8Array ? `${value.length} bytes` : value instanceof Map ? [...value].map(([name, one]) => `${name} ${one}`).join(", ") : String(value));
  const pairs = (map) => [...map].filter(([name]) => name !== "statement").map(([name, value]) => [name.replaceAll("_", " "), name === "closed_at" ? moment(value) : shown(value)]);
  return h("div", null, h("h3", null, "The orchestrator's receipt"), facts(pairs(receipt)), h("h3", null, "The device's statement"), facts(pairs(statement)));
}

/** Flip one bit of a copy, here in the browser, and see what finds it. */
function flipper(bundle, known) {
  const said = h("p", { id: "flipped", role: "status" });
  const flip = async () => {
    const item = bundle.leaves[Math.floor(Math.random() * bundle.leaves.length)];
    const [offset, bit] = [Math.floor(Math.random() * 1e6), Math.floor(Math.random() * 8)];
    const result = await judged(withFlippedBit(item, offset, bit), known);
    show(said, badge(result.ok ? "NOT FOUND" : "found", result.ok ? "bad" : "good"), ` One bit of a copy of leaf ${item.index} was flipped: `, result.ok ? "nothing noticed it." : named(result));
  };
  return h("div", { class: "row" }, h("button", { type: "button", onclick: flip, disabled: bundle.leaves.length === 0 }, "Flip one bit of a copy"), said);
}
