/* What the leaves of a session's log say of one another: stops once each, and the chain of models. Knows no signature, no network and no element.
 *
 * The rules are those of `gput.receipt_stops`, `gput.receipt_past` and `gput.receipt_chain`.
 */

import { CheckFailed } from "./bytes.js";
import { require } from "./require.js";

/** A receipt goes on where the manifest's predecessor came to rest, if it is of the next step; none is of one before. Throws CheckFailed. */
export function checkFirstLink(statement, start, who, first) {
  if (!start) return;
  const step = statement.get("first_step");
  const fits = step >= start.step && (!first || step === start.step) && (step !== start.step || statement.get("model_before") === start.model);
  require("predecessor", fits, `${who} does not go on where ${start.session} came to rest`);
}

const restoredTo = (event) => (event[2] === "restored" ? event[3].get("position") : null);

/**
 * Stops follow one another in the log as in the plan, so none comes twice, and a round has one of each holder; behind the leaf of a restore they
 * go on from where that went back to. A visit and its epoch are never used again, not by a repeat either. Throws CheckFailed naming the leaf.
 */
export function checkOnce(checked) {
  const seen = new Set();
  let counting = [];
  for (const { index: leaf, receipt, event } of checked) {
    if (!receipt) {
      const position = restoredTo(event);
      if (position !== null) counting = counting.filter((one) => one.get("index") <= position);
      continue;
    }
    for (const [what, name] of [["visit", receipt.get("visit")], ["epoch", receipt.get("epoch")]]) {
      require("once", !seen.has(`${what} ${name}`), `leaf ${leaf}: ${what} ${name} has a receipt before`);
      seen.add(`${what} ${name}`);
    }
    const stop = receipt.get("index");
    const last = counting.at(-1)?.get("index") ?? 0;
    require("once", stop > last, `leaf ${leaf}: stop ${stop} lies behind already, and no leaf tells of a restore to before it`);
    const twice = counting.findLast((one) => one.get("round") === receipt.get("round") && one.get("holder") === receipt.get("holder"));
    require("once", !twice, `leaf ${leaf}: ${receipt.get("holder")} has a receipt of round ${receipt.get("round")} before`);
    counting.push(receipt);
  }
}

/** Whether a receipt goes on with the mixture that the one before it is of. */
function sameTour(before, mixed) {
  return Boolean(before && mixed) && mixed.get("first") > 0 && ["round", "seed", "visits", "records"].every((name) => before.get(name) === mixed.get(name));
}

/** Which model the log stands at, leaf by leaf. `stood`: [stops behind it, model] of all that count; `stands`: what the next visit may start from. */
class Past {
  stood = [];
  known = new Set();
  stands = new Set();

  constructor(model) {
    if (model) this.#begin(model);
  }

  #begin(model) {
    this.stood.push([0, model]);
    this.known.add(model);
    this.stands = new Set([model]);
  }

  leave(stop, before, after) {
    if (this.stood.length === 0) this.#begin(before);
    this.stood.push([stop, after]);
    this.known.add(before).add(after);
    this.stands = new Set([after]);
  }

  hear(event, leaf, releasesBest) {
    if (event[2] === "restored") this.#restored(restoredTo(event));
    if (event[2] === "best_chosen") this.#chosen(event[3].get("model"), leaf, releasesBest);
  }

  /** What was sealed there is what the last of the stops up to there left. */
  #restored(position) {
    this.stood = this.stood.filter(([stop]) => stop <= position);
    const latest = this.stood.at(-1)?.[0] ?? 0;
    this.stands = new Set(this.stood.filter(([stop]) => stop === latest).map(([, model]) => model));
  }

  #chosen(model, leaf, releasesBest) {
    require("chain of models", releasesBest, `leaf ${leaf} chooses a best model in a session that releases its last one`);
    require("chain of models", this.stood.some(([, one]) => one === model), `leaf ${leaf} chooses a model that no earlier receipt left`);
    this.stood.push([this.stood.at(-1)[0], model]);
    this.stands = new Set([...this.stands, model]); // a late approval may bring a visit before the GPU has gone back to it
  }
}

/**
 * Each receipt starts from the model that the one before it left, the first from its predecessor's if there is one; behind the leaf of a restore
 * from the one that stood there. Throws CheckFailed naming the leaf. `checked`: receipts and events in the log's order; `rules`: the manifest.
 */
export function checkChain(checked, { predecessor: start, validation }) {
  const past = new Past(start?.model);
  let before = null;
  for (const { index, receipt, statement, event } of checked) {
    if (!receipt) {
      past.hear(event, index, validation?.release === "best");
      continue;
    }
    checkFirstLink(statement, start, `leaf ${index}`, before === null);
    const [from, to] = [statement.get("model_before"), statement.get(receipt.get("outcome") === "closed" ? "model_after" : "model_before")];
    const stands = sameTour(before?.get("mixed"), statement.get("mixed")) ? new Set([before.get("model_before")]) : past.stands;
    const why = past.known.has(from) ? "an earlier model, and no leaf tells of a restore to it" : "a model that no earlier receipt left";
    if (stands.size > 0 && !stands.has(from)) throw new CheckFailed("chain of models", `leaf ${index} starts from ${why}`);
    before = statement;
    past.leave(receipt.get("index"), from, to);
  }
}
