/* Receipts and what devices state, read: CBOR of one map under its profile, with counts that every reader can hold. Knows no signature. */

import { decode } from "./cbor.js";
import { require } from "./require.js";

/** What is counted, by profile, as `Count` in `shared.claims.receipt`; and in the maps within. */
const COUNTS = {
  "gput/receipt/1": ["index", "round", "attempt", "epoch", "fence_epoch", "closed_at"],
  "gput/statement/1": ["boot_counter", "life", "epoch", "records", "length", "dataset_records", "first_step", "steps", "scrubbed_bytes"],
  "gput/tour/1": ["boot_counter", "life", "round", "batches"],
};
const WITHIN = { accumulated: ["batches"], mixed: ["round", "seed", "visits", "records", "first"] };

/** A whole number from 0 to 2^53 - 1: those above come as BigInt, and count nothing here. */
export const isCount = (value) => Number.isSafeInteger(value) && value >= 0;

function checkCounts(what, said, names) {
  for (const name of names) require(what, isCount(said.get(name)), `${name} is no count that every reader can hold`);
}

/** The claim that `payload` is. `what`: it is called so. Throws CheckFailed. */
export function claimOf(payload, profile, what) {
  const said = decode(payload);
  require(what, said instanceof Map && said.get("profile") === profile, `not a ${what}`);
  checkCounts(what, said, COUNTS[profile]);
  for (const [name, counts] of Object.entries(WITHIN)) if (said.get(name) instanceof Map) checkCounts(what, said.get(name), counts);
  return said;
}
