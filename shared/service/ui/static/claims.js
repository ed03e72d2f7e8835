/* Receipts and what devices state, read: CBOR of one map under its profile, with its fields and no others, each of its type. Knows no signature.
 *
 * The fields are those of the models in `shared.claims.receipt`, and nothing is converted: who reads less exactly would show as verified what others refuse.
 */

import { Float, decode } from "./cbor.js";
import { require } from "./require.js";

/** A whole number from 0 to 2^53 - 1: those above come as BigInt, and count nothing here; and a float is none, whatever its value. */
export const isCount = (value) => Number.isSafeInteger(value) && value >= 0;

/** What a field holds. `is`: what is said of one that does not; `later`: it came after the first of its kind, and is absent where it is unset. */
const kind = (is, holds) => ({ is, holds });
const text = (is, pattern) => kind(is, (value) => typeof value === "string" && pattern.test(value));
const one = (...of) => kind(`not one of ${of.join(", ")}`, (value) => of.includes(value));
const fraction = (is, holds) => kind(is, (value) => value instanceof Float && Number.isFinite(value.value) && holds(value.value));
const orNull = ({ is, holds }) => kind(is, (value) => value === null || holds(value));
const within = (form) => ({ ...kind("no map", (value) => value instanceof Map), form });
const later = (form) => ({ ...within(form), later: true });

const count = kind("no count that every reader can hold", isCount);
const counted = kind("no count from 1 on that every reader can hold", (value) => isCount(value) && value > 0);
const truth = kind("neither true nor false", (value) => typeof value === "boolean");
const device = kind("no text", (value) => typeof value === "string");
const sha256 = text("no digest", /^[0-9a-f]{64}$/);
const sha384 = text("no digest", /^[0-9a-f]{96}$/);
const session = text("no session", /^s_[0-9a-z]{16}$/);
const visit = text("no visit", /^v_[0-9a-z]{16}$/);
const holder = text("no holder's name", /^[a-z0-9][a-z0-9-]{0,62}$/);
const message = kind("no message", (value) => value instanceof Uint8Array && value.length <= 16384);
const loss = orNull(fraction("no finite loss", () => true));
const seconds = fraction("no duration", (value) => value >= 0 && value < 2 ** 53);
const backend = one("EMULATED", "HARDWARE");
const between = (least, most) => fraction("out of its range", (value) => value >= least && value <= most);
const above = (most) => fraction("out of its range", (value) => value > 0 && value <= most);

const OF_DEVICE = { device, backend, boot_counter: count, life: count, session, program: sha384, model_before: sha256, model_after: sha256 };
const FORMS = {
  "gput/receipt/1": {
    session, visit, index: count, round: count, attempt: count, holder, manifest: sha256, dataset_root: sha256, epoch: count, fence_epoch: count,
    outcome: one("closed", "rejected"), gpu_evidence: sha256, holder_runtime_data: sha256, orchestrator_runtime_data: sha256, losses_released: truth,
    validation_before: loss, validation_after: loss, statement: message, closed_at: count,
    timers: within({ grab_gpu: seconds, import_key: seconds, buffer_read: seconds, gpu_write: seconds, export_key: seconds }),
    privacy_spent: later({ epsilon: between(0, Number.MAX_VALUE), delta: above(Number.MAX_VALUE) }),
  },
  "gput/statement/1": {
    ...OF_DEVICE, visit, epoch: count, holder, travel_mode: one("paper", "scoped", "direct"), records: count, length: count, commitment: sha256,
    dataset_root: sha256, dataset_records: count, first_step: count, steps: count, scrubbed_bytes: count, scrub_digest: sha256,
    privacy: later({ max_grad_norm: between(1e-9, 1e6), noise_multiplier: between(1e-3, 1e6), delta: above(1e-3), max_epsilon: orNull(above(1e6)) }),
    accumulated: later({ before: sha256, after: sha256, batches: count }),
    mixed: later({ round: counted, seed: count, visits: counted, records: counted, first: count }),
  },
  "gput/tour/1": { ...OF_DEVICE, round: count, batches: count, stepped: truth, optimiser_before: sha256, optimiser_after: sha256 },
};

function checkForm(what, said, form) {
  for (const [name, { is, holds, later: absent, form: inner }] of Object.entries(form)) {
    const value = said.get(name);
    if (absent && (value ?? null) === null) continue;
    require(what, said.has(name), `${name} is not written`);
    require(what, holds(value), `${name} is ${is}`);
    if (inner) checkForm(what, value, inner);
  }
  require(what, [...said.keys()].every((name) => Object.hasOwn(form, name)), "a field that its profile does not have");
}

/** The claim that `payload` is. `what`: it is called so. Throws CheckFailed. */
export function claimOf(payload, profile, what) {
  const said = decode(payload);
  require(what, said instanceof Map && said.get("profile") === profile, `not a ${what}`);
  checkForm(what, said, { profile: one(profile), ...FORMS[profile] });
  return said;
}
