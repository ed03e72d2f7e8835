/* A session's log, checked leaf by leaf in this browser. Knows the formats, no network and no element. */

import { CheckFailed, fromBase64, fromHex, hashed, toBase64, toHex } from "./bytes.js";
import { decode, encode } from "./cbor.js";
import { checkLabelled, ed25519, parse, verified } from "./cose.js";
import { checkInclusion, leafHash } from "./merkle.js";
import { signersOf } from "./signers.js";

const SAME = ["session", "visit", "epoch", "holder", "dataset_root"];
const COSE_SIGN1 = 0xd2;

/** The signed tree head, believed: {size, root}. Throws CheckFailed. */
export async function checkHead(head, session, signers) {
  const root = fromHex(head.root);
  const said = encode(["gput/tree-head/1", session, head.size, root, head.time]);
  await checkLabelled(signers.namedBy(fromHex(head.key)), "gput/tree-head", said, fromBase64(head.signature), "tree head's signature");
  return { size: head.size, root };
}

/** SHA-256 of the manifest's bytes, hex, and what it says. */
export async function readManifest(signed) {
  const raw = fromBase64(signed.document);
  return { digest: toHex(await hashed("SHA-256", raw)), says: JSON.parse(new TextDecoder().decode(raw)) };
}

/** The holders' approvals, by holder: root of the dataset each signed for. Throws CheckFailed naming the decision. */
export async function checkApprovals(items, manifest, session) {
  const roots = new Map();
  for (const item of items.filter((one) => one.decision === "approve")) {
    const raw = fromBase64(item.document);
    const said = JSON.parse(new TextDecoder().decode(raw));
    const entry = manifest.says.roster.find((one) => one.holder === said.holder);
    const key = fromHex(item.public_key);
    if (!entry || entry.key !== toHex(await hashed("SHA-256", key))) throw new CheckFailed("approval", `${said.holder}: not by the key that the roster names`);
    await checkLabelled(await ed25519(key), "gput/approval", raw, fromBase64(item.signature), `${said.holder}'s approval`);
    if (said.manifest !== manifest.digest || said.session !== session) throw new CheckFailed("approval", `${said.holder} approved another manifest or session`);
    roots.set(said.holder, said.dataset_root);
  }
  return roots;
}

/** One check, by name. Throws CheckFailed. */
export function require(check, held, detail) {
  if (!held) throw new CheckFailed(check, detail);
}

/**
 * As `shared.claims.visit_end`: the whole buffer scrubbed, the planned steps taken, nothing left of what was rejected. But not the digest of
 * what was read back, which is BLAKE3 and no browser has. `rules`: what the manifest says. Throws CheckFailed.
 */
export function checkEnd(receipt, statement, rules) {
  const entry = rules.roster.find((one) => one.holder === receipt.get("holder"));
  const batch = rules.training.batch_size;
  const planned = statement.get("mixed")?.get("records") ?? (entry.steps_per_visit ?? rules.steps_per_visit) * batch;
  const taken = statement.get("steps") * batch;
  const rejected = receipt.get("outcome") === "rejected";
  require("scrub", statement.get("scrubbed_bytes") === rules.buffer_bytes, "not the whole buffer was scrubbed");
  require("steps", rejected ? taken >= 0 && taken <= planned : taken === planned, "other steps than planned");
  if (!rejected) return;
  const added = statement.get("accumulated");
  require("rejected", statement.get("model_before") === statement.get("model_after"), "the model changed all the same");
  require("rejected", !added || added.get("before") === added.get("after"), "the accumulator changed all the same");
}

function compare(receipt, statement, signer, known) {
  for (const name of SAME) require("receipt and statement agree", receipt.get(name) === statement.get(name), `${name} differs`);
  require("session", receipt.get("session") === known.session, "of another session");
  require("manifest", receipt.get("manifest") === known.manifest.digest, "of another manifest");
  require("program", statement.get("program") === known.manifest.says.program, "another program ran");
  require("travel mode", statement.get("travel_mode") === known.manifest.says.travel_mode, "another travel mode");
  require("GPU evidence", receipt.get("gpu_evidence") === signer.gpuEvidence, "another GPU than the key's");
  require("dataset root", receipt.get("dataset_root") === known.roots.get(receipt.get("holder")), "not the dataset that its holder approved");
  require("fence", receipt.get("fence_epoch") > receipt.get("epoch"), "the fence is not after the visit");
  require("scrub", statement.get("scrubbed_bytes") >= statement.get("length"), "fewer bytes scrubbed than were written");
  checkEnd(receipt, statement, known.manifest.says);
}

async function receiptOf(leaf, known) {
  const outer = parse(leaf);
  const payload = await verified(outer, known.signers.namedBy(outer.kid), "orchestrator's signature");
  const receipt = decode(payload);
  require("receipt", receipt instanceof Map && receipt.get("profile") === "gput/receipt/1", "not a receipt");
  const signer = known.signers.introducedBy(receipt.get("orchestrator_runtime_data"));
  const inner = parse(receipt.get("statement"));
  const statement = decode(await verified(inner, signer.statement, "device's signature"));
  require("statement", statement instanceof Map && statement.get("profile") === "gput/statement/1", "not a device statement");
  compare(receipt, statement, signer, known);
  known.own?.(receipt, statement, signer);
  return { receipt, statement };
}

/**
 * Check one leaf: {index, kind, receipt, statement}; an event has `event`. Throws CheckFailed.
 *
 * `known`: session, signers, head (null: there is none to prove inclusion in), manifest, roots; `own(receipt, statement, signer)`: more checks.
 */
export async function checkLeaf(item, known) {
  const leaf = fromBase64(item.leaf);
  const kind = leaf[0] === COSE_SIGN1 ? "receipt" : "event";
  require("kind", item.kind === kind, `the service calls it ${item.kind}, its bytes say ${kind}`);
  const found = kind === "receipt" ? await receiptOf(leaf, known) : { event: decode(leaf) };
  if (known.head) {
    require("inclusion proof", Array.isArray(item.path), "the log has none for this leaf");
    await checkInclusion(await leafHash(leaf), item.index, known.head.size, item.path.map(fromHex), known.head.root);
  }
  return { index: item.index, kind, ...found };
}

/** A receipt goes on where the manifest's predecessor came to rest, if it is of the next step; none is of one before. Throws CheckFailed. */
export function checkFirstLink(statement, start, who, first) {
  if (!start) return;
  const step = statement.get("first_step");
  const fits = step >= start.step && (!first || step === start.step) && (step !== start.step || statement.get("model_before") === start.model);
  if (!fits) throw new CheckFailed("predecessor", `${who} does not go on where ${start.session} came to rest`);
}

/** Whether a receipt goes on with the mixture that the one before it is of: `gput.receipt_chain` has the same rule. */
function sameTour(before, mixed) {
  return Boolean(before && mixed) && mixed.get("first") > 0 && ["round", "seed", "visits", "records"].every((name) => before.get(name) === mixed.get(name));
}

/** The models that the log may stand at after an event: a restore puts any earlier one back, the choice of the best that one. */
function afterEvent([, , kind, details], known, last, index) {
  if (kind === "restored") return new Set(known);
  if (kind !== "best_chosen") return last;
  if (!known.has(details.get("model"))) throw new CheckFailed("chain of models", `leaf ${index} chooses a model that no earlier receipt left`);
  return new Set([details.get("model")]);
}

/**
 * Each receipt starts from the model that the one before it left, the first from its predecessor's if there is one; only behind the leaf of a
 * restore may one start from an earlier model. Throws CheckFailed naming the leaf. `checked`: receipts and events in the log's order.
 */
export function checkChain(checked, start) {
  const known = new Set(start ? [start.model] : []);
  let last = new Set(known);
  let before = null;
  for (const { index, receipt, statement, event } of checked) {
    if (!receipt) {
      last = afterEvent(event, known, last, index);
      continue;
    }
    checkFirstLink(statement, start, `leaf ${index}`, before === null);
    const [from, to] = [statement.get("model_before"), statement.get(receipt.get("outcome") === "closed" ? "model_after" : "model_before")];
    const stands = sameTour(before?.get("mixed"), statement.get("mixed")) ? new Set([before.get("model_before")]) : last;
    const why = known.has(from) ? "an earlier model, and no leaf tells of a restore" : "a model that no earlier receipt left";
    if (stands.size > 0 && !stands.has(from)) throw new CheckFailed("chain of models", `leaf ${index} starts from ${why}`);
    before = statement;
    last = new Set([to]);
    known.add(from).add(to);
  }
}

/** One check among those of the whole log: its result goes to `whole`, its value comes back, null where it does not hold. */
export async function step(whole, name, act) {
  try {
    const value = await act();
    whole.push({ name, ok: true, detail: "" });
    return value;
  } catch (error) {
    whole.push({ name, ok: false, detail: error.message });
    return null;
  }
}

/**
 * Everything of a session's log. `bundle`: head, leaves, keys, manifest, approvals as the API gave them. `told(done, of)` hears progress.
 *
 * Returns {whole, results, known}: the checks of the log as a whole {name, ok, detail}; of each leaf {index, ok, check, detail, kind,
 * receipt, statement, event}; and what a leaf is checked against.
 */
export async function checkLog(bundle, session, told = () => {}) {
  const whole = [];
  const results = [];
  const manifest = await step(whole, "the manifest can be read", () => readManifest(bundle.manifest));
  if (!manifest) return { whole, results, known: null };
  const signers = await step(whole, "keys are named by the orchestrator's quotes and the GPU's certificates", () => signersOf(bundle.keys, session, manifest.digest));
  const head = signers && await step(whole, "the tree head is signed by one of them", () => checkHead(bundle.head, session, signers));
  const roots = await step(whole, "each holder's approval is signed by the key in the roster", () => checkApprovals(bundle.approvals, manifest, session));
  if (!head || !roots) return { whole, results, known: null };
  const known = { session, signers, head, manifest, roots };
  for (const item of bundle.leaves) {
    results.push(await judged(item, known));
    told(results.length, bundle.leaves.length);
  }
  await step(whole, "every leaf of the signed tree is here, once and in its place", () => require("log",
    bundle.leaves.length === head.size && bundle.leaves.every((item, at) => item.index === at), `${bundle.leaves.length} leaves of ${head.size} came, or out of order`));
  // The chain is told of leaves that hold: one that does not is named for itself.
  if (!manifest.says.accumulate && results.every((one) => one.ok)) await step(whole, "each visit starts from the model that the one before it left", () => checkChain(results, manifest.says.predecessor));
  return { whole, results, known };
}

/** One leaf's result, whatever comes. */
export async function judged(item, known) {
  try {
    return { ok: true, check: "", detail: known.head ? "" : "inclusion in the log was not checked", ...await checkLeaf(item, known) };
  } catch (error) {
    return { index: item.index, kind: item.kind, ok: false, check: error.check ?? "form", detail: error.message };
  }
}

/** The same leaf with one bit of its bytes flipped, for people who want to see it found. */
export function withFlippedBit(item, offset, bit) {
  const leaf = fromBase64(item.leaf);
  leaf[offset % leaf.length] ^= 1 << bit;
  return { ...item, leaf: toBase64(leaf) };
}
