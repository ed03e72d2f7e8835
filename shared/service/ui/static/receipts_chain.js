/* What the leaves of a session's log say of one another: stops once each, and the chain of models. Knows no signature, no network and no element.
 *
 * The rules are those of `gput.receipt_stops`, `gput.receipt_past` and `gput.receipt_chain`.
 */

import { require } from "./require.js";

/** A receipt goes on where the manifest's predecessor came to rest, if it is of the next step; none is of one before. Throws CheckFailed. */
export function checkFirstLink(statement, start, who, first) {
  if (!start) return;
  const step = statement.get("first_step");
  const fits = step >= start.step && (!first || step === start.step) && (step !== start.step || statement.get("model_before") === start.model);
  require("predecessor", fits, `${who} does not go on where ${start.session} came to rest`);
}

const OVER = ["stopped_early", "completed", "failed", "cancelled"];

/** How many stops lie behind the model that an event says was restored; null: it tells of no restore. */
export const restoredTo = (event) => (event[2] === "restored" ? event[3].get("position") : null);

/** No stop comes twice but behind a restore, no visit or epoch ever, and none behind the session's end. Throws CheckFailed. */
export function checkOnce(checked) {
  const seen = new Set();
  let [counting, behind, over] = [[], 0, ""];
  for (const { index: leaf, receipt, event } of checked) {
    if (!receipt) {
      const position = restoredTo(event);
      if (["", OVER[0]].includes(over)) over = OVER.includes(event[2]) ? event[2] : position === null ? over : "";
      if (position !== null) [counting, behind] = [counting.filter((one) => one.get("index") <= position), position];
      continue;
    }
    require("once", !over, `leaf ${leaf}: comes after ${over}`);
    for (const [what, name] of [["visit", receipt.get("visit")], ["epoch", receipt.get("epoch")]]) {
      require("once", !seen.has(`${what} ${name}`), `leaf ${leaf}: ${what} ${name} has a receipt before`);
      seen.add(`${what} ${name}`);
    }
    const stop = receipt.get("index");
    require("once", stop > behind, `leaf ${leaf}: stop ${stop} lies behind already, and no leaf tells of a restore to before it`);
    const twice = counting.findLast((one) => one.get("round") === receipt.get("round") && one.get("holder") === receipt.get("holder"));
    require("once", !twice, `leaf ${leaf}: ${receipt.get("holder")} has a receipt of round ${receipt.get("round")} before`);
    counting.push(receipt);
    behind = stop;
  }
}

/** Whether a receipt goes on with the mixture that the one before it is of. */
function sameTour(before, mixed) {
  return Boolean(before && mixed) && mixed.get("first") > 0 && ["round", "seed", "visits", "records"].every((name) => before.get(name) === mixed.get(name));
}

const reached = (model, step) => `${model} ${step}`;
const modelOf = (one) => one.split(" ")[0];

/** What stood, each with the stops behind it, and is such as `wanted` says; each once. */
export const theirs = (stood, wanted) => [...new Set(stood.map(([, one]) => one).filter(wanted))];

/** Of what stood, each with the stops behind it: what counts after a restore to `position`; and what the last of the stops up to there left. */
export function goneBack(stood, position) {
  const counting = stood.filter(([stop]) => stop <= position);
  const latest = counting.at(-1)?.[0] ?? 0;
  return [counting, theirs(counting.filter(([stop]) => stop === latest), () => true)];
}

/** Where the log stands. `stood`: [stops behind it, where] of all that count; `stands`: where the next visit may start. */
class Past {
  stood = [];
  known = new Set();
  stands = [];

  constructor(start) {
    if (start) this.#add(0, [reached(start.model, start.step)]);
  }

  #add(stop, where) {
    for (const one of where) {
      this.stood.push([stop, one]);
      this.known.add(modelOf(one));
    }
    this.stands = where;
  }

  /** Where a leaf starts, of what it may start from. A tour's end has no step (null), and starts wherever the log stands. Throws CheckFailed. */
  start(model, step, who, stands) {
    const found = (stands.length > 0 ? stands : [reached(model, 0)]).filter((one) => modelOf(one) === model);
    const why = this.known.has(model) ? "an earlier model, and no leaf tells of a restore to it" : "a model that no earlier receipt left";
    require("chain of models", found.length > 0, `${who} starts from ${why}`);
    const begun = step === null ? found : found.filter((one) => one === reached(model, step));
    require("chain of models", begun.length > 0, `${who} does not count on from the steps before it`);
    return begun;
  }

  /** A visit at this stop, or a tour's end (null), has led from here to there, or nowhere. */
  leave(stop, before, after) {
    if (this.stood.length === 0) this.#add(0, before);
    this.#add(stop ?? this.stood.at(-1)[0], after);
  }

  hear(event, leaf, releasesBest) {
    if (event[2] === "restored") [this.stood, this.stands] = goneBack(this.stood, restoredTo(event));
    if (event[2] === "best_chosen") this.#chosen(event[3].get("model"), leaf, releasesBest);
  }

  #chosen(model, leaf, releasesBest) {
    require("chain of models", releasesBest, `leaf ${leaf} chooses a best model in a session that releases its last one`);
    const best = theirs(this.stood, (one) => modelOf(one) === model);
    require("chain of models", best.length > 0, `leaf ${leaf} chooses a model that no earlier receipt left`);
    const stop = this.stood.at(-1)[0];
    this.stood.push(...best.map((one) => [stop, one]));
    this.stands = [...this.stands, ...best]; // a late approval may bring a visit before the GPU has gone back to it
  }
}

/** Where what began there has led: a rejected visit nowhere, and a tour's end takes no step that is counted. */
function left(begun, receipt, said) {
  const model = said.get("model_after");
  if (!receipt) return begun.map((one) => reached(model, one.split(" ")[1]));
  return receipt.get("outcome") === "closed" ? [reached(model, said.get("first_step") + said.get("steps"))] : begun;
}

/** Each receipt, and each tour's end, goes on where the log stands, in model and steps. Throws CheckFailed. */
export function checkChain(checked, { predecessor: start, validation }) {
  const past = new Past(start);
  let before = null;
  for (const { index, receipt, statement, event, end } of checked) {
    if (!receipt && !end) {
      past.hear(event, index, validation?.release === "best");
      continue;
    }
    const said = end ?? statement;
    if (receipt) checkFirstLink(statement, start, `leaf ${index}`, before === null);
    const tour = sameTour(before?.get("mixed"), said.get("mixed"));
    const stands = tour ? [reached(before.get("model_before"), before.get("first_step"))] : past.stands;
    const begun = past.start(said.get("model_before"), receipt ? said.get("first_step") : null, `leaf ${index}`, stands);
    before = said;
    past.leave(receipt ? receipt.get("index") : null, begun, left(begun, receipt, said));
  }
}
