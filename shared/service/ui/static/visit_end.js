/* What receipts must say of the end of a visit or a tour. Knows no signature and no other leaf. The rules are those of `shared.claims.visit_end`. */

import { Float } from "./cbor.js";
import { require } from "./require.js";

/** Whether the held-out loss that `said` tells rose by more than an accepted update may raise it; also if it is no number. Not, if it was not measured. */
function roseTooFar(said, rules) {
  const limit = rules.validation?.max_loss_increase ?? null;
  const [before, after] = [said.get("validation_before") ?? null, said.get("validation_after") ?? null];
  return ![limit, before, after].includes(null) && !(after - before <= limit);
}

/** What an event tells of a held-out loss: null, or a number. A whole one, too: an orchestrator that started again has 2 from its journal for 2.0. */
const isLoss = (value) => value === null || value instanceof Float || Number.isSafeInteger(value);

/** What raised the held-out loss too far was not accepted, and no loss told that stays in the GPU. Throws CheckFailed. */
export function checkVerdict(receipt, statement, rules) {
  const batch = rules.training.batch_size;
  const most = statement.get("mixed") ? batch : Math.min(batch, statement.get("dataset_records"));
  require("losses", !receipt.get("losses_released") || (!rules.privacy && most >= rules.privacy_floor), "told under the privacy floor");
  require("held-out loss", receipt.get("outcome") !== "closed" || !roseTooFar(receipt, rules), "accepted though it rose too far");
}

/**
 * The whole buffer scrubbed, the planned steps taken, nothing left of what was rejected. But not the digest of
 * what was read back, which is BLAKE3 and no browser has. `rules`: what the manifest says. Throws CheckFailed.
 */
export function checkEnd(receipt, statement, rules) {
  const entry = rules.roster.find((one) => one.holder === receipt.get("holder"));
  const batch = rules.training.batch_size;
  const own = (entry.steps_per_visit ?? rules.steps_per_visit) * batch;
  const planned = statement.get("mixed")?.get("records") ?? own;
  const taken = statement.get("steps") * batch;
  const rejected = receipt.get("outcome") === "rejected";
  require("scrub", statement.get("scrubbed_bytes") === rules.buffer_bytes, "not the whole buffer was scrubbed");
  require("records", statement.get("records") === own, "other records than planned for this stop");
  require("steps", rejected ? taken >= 0 && taken <= planned : taken === planned, "other steps than planned");
  if (!rejected) return;
  const added = statement.get("accumulated");
  require("rejected", statement.get("model_before") === statement.get("model_after"), "the model changed all the same");
  require("rejected", !added || added.get("before") === added.get("after"), "the accumulator changed all the same");
}

/** Of a tour's end, what its leaf tells and what the device said: gradients were in it, and if they were dropped the model is what it was. Throws CheckFailed. */
export function checkTourEnd(told, said, rules) {
  require("tour's end", said.get("batches") > 0, "no gradients were in it");
  require("tour's end", said.get("stepped") || said.get("model_before") === said.get("model_after"), "the model changed though they were dropped");
  require("tour's end", ["validation_before", "validation_after"].every((name) => isLoss(told.get(name))), "its leaf tells no held-out losses, null or a number");
  require("held-out loss", !said.get("stepped") || !roseTooFar(told, rules), "a tour's step was kept though it rose too far");
}
