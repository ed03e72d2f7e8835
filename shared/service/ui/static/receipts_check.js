/* A session's log, checked leaf by leaf in this browser. Knows the formats, no network and no element. */

import { CheckFailed, canonicalJson, fromBase64, fromHex, hashed, toBase64, toHex, toText } from "./bytes.js";
import { decode, encode } from "./cbor.js";
import { claimOf, isCount } from "./claims.js";
import { checkLabelled, ed25519, parse, verified } from "./cose.js";
import { checkInclusion, leafHash } from "./merkle.js";
import { checkChain, checkOnce } from "./receipts_chain.js";
import { checkAccumulated, tourEnd } from "./receipts_tours.js";
import { require } from "./require.js";
import { signersOf } from "./signers.js";
import { checkEnd, checkVerdict } from "./visit_end.js";

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

/** An approval states its dataset, in numbers that every reader can hold, and another decision states none. Throws CheckFailed. */
export function checkStated({ decision, holder, records, record_bytes: bytes, dataset_root: root, at }) {
  const counted = [records, bytes].every((one) => isCount(one) && one > 0) && /^[0-9a-f]{64}$/.test(root);
  const stated = decision === "approve" ? counted : [records, bytes, root].every((one) => one === null);
  require("approval", stated && isCount(at), `${holder}'s decision states no dataset as an approval does, or one though it approves none`);
}

async function decisionOf(item, manifest, session) {
  const raw = fromBase64(item.document);
  const text = toText(raw);
  const said = JSON.parse(text);
  const entry = manifest.says.roster.find((one) => one.holder === said.holder);
  const key = fromHex(item.public_key);
  require("approval", entry && entry.key === toHex(await hashed("SHA-256", key)), `${said.holder}: not by the key that the roster names`);
  await checkLabelled(await ed25519(key), "gput/approval", raw, fromBase64(item.signature), `${said.holder}'s decision`);
  require("approval", said.manifest === manifest.digest && said.session === session, `${said.holder} decided on another manifest or session`);
  require("approval", said.decision === item.decision, `${said.holder} signed another decision than the service says`);
  require("approval", canonicalJson(said) === text, `${said.holder}'s decision is not in its one form`);
  checkStated(said);
  return said;
}

/** The holders' approvals, by holder: {root, records} of the dataset each signed for. Throws CheckFailed naming the decision. */
async function checkApprovals(items, manifest, session) {
  const datasets = new Map();
  // Of who never approved no key is shown, and nothing is taken.
  for (const item of items.filter((one) => one.decision === "approve" || one.public_key !== null)) {
    const { decision, holder, dataset_root: root, records } = await decisionOf(item, manifest, session);
    if (decision !== "approve") continue;
    require("approval", (datasets.get(holder)?.root ?? root) === root, `${holder} approved two datasets`);
    datasets.set(holder, { root, records });
  }
  return datasets;
}

/** As many holders approved as the manifest asks for before anything of it runs. Throws CheckFailed. */
function checkQuorum({ quorum, roster }, approved) {
  const least = quorum ?? roster.length;
  require("quorum", approved >= least, `something was trained though ${approved} approved where the manifest asks for ${least}`);
}

/** The stop is one of the plan's, and this holder's; where the order is shuffled, only `checkOnce` tells (no browser has SHAKE-256). */
function checkStop(receipt, { rounds, roster, visit_order: order }) {
  const index = receipt.get("index");
  require("stop", index >= 1 && index <= rounds * roster.length, "the plan has no such stop");
  require("stop", receipt.get("round") === Math.floor((index - 1) / roster.length) + 1, "not of this round");
  require("stop", order !== "roster" || roster[(index - 1) % roster.length].holder === receipt.get("holder"), "another holder's stop");
}

/** The records were trained on in their round's mixture where the manifest collects tours, and by themselves elsewhere: a mixture says how many steps were planned. */
function checkMixture(receipt, statement, rules) {
  const mixed = statement.get("mixed") ?? null;
  require("mixture", (mixed !== null) === (rules.collect === "tour"), mixed ? "trained on in one, which nobody agreed on" : "trained on in none, though tours are collected");
  require("mixture", !mixed || mixed.get("round") === receipt.get("round"), "of another round than the visit");
}

function compare(receipt, statement, signer, known) {
  for (const name of SAME) require("receipt and statement agree", receipt.get(name) === statement.get(name), `${name} differs`);
  require("session", receipt.get("session") === known.session, "of another session");
  require("manifest", receipt.get("manifest") === known.manifest.digest, "of another manifest");
  require("program", statement.get("program") === known.manifest.says.program, "another program ran");
  require("travel mode", statement.get("travel_mode") === known.manifest.says.travel_mode, "another travel mode");
  require("GPU evidence", receipt.get("gpu_evidence") === signer.gpuEvidence, "another GPU than the key's");
  const approved = known.datasets.get(receipt.get("holder"));
  require("dataset root", approved && receipt.get("dataset_root") === approved.root, "not the dataset that its holder approved");
  // Of a dataset that the holder's page knows by a veto alone, nobody says there how many records it has.
  require("dataset", [null, statement.get("dataset_records")].includes(approved.records), "another number of records than its holder approved");
  require("fence", receipt.get("fence_epoch") > receipt.get("epoch"), "the fence is not after the visit");
  require("scrub", statement.get("scrubbed_bytes") >= statement.get("length"), "fewer bytes scrubbed than were written");
  const added = (statement.get("accumulated") ?? null) !== null;
  require("accumulation", added === Boolean(known.manifest.says.accumulate), added ? "gradients were kept, which nobody agreed on" : "no word of what was accumulated");
  checkStop(receipt, known.manifest.says);
  checkMixture(receipt, statement, known.manifest.says);
  checkVerdict(receipt, statement, known.manifest.says);
  checkEnd(receipt, statement, known.manifest.says);
}

async function receiptOf(leaf, known) {
  const outer = parse(leaf);
  const payload = await verified(outer, known.signers.namedBy(outer.kid), "orchestrator's signature");
  const receipt = claimOf(payload, "gput/receipt/1", "receipt");
  const signer = known.signers.introducedBy(receipt.get("orchestrator_runtime_data"));
  const inner = parse(receipt.get("statement"));
  const statement = claimOf(await verified(inner, signer.statement, "device's signature"), "gput/statement/1", "device statement");
  compare(receipt, statement, signer, known);
  known.own?.(receipt, statement, signer);
  return { receipt, statement };
}

/** The four parts of an event of this session, with what the chain reads of it. Throws CheckFailed. */
function eventOf(leaf, session) {
  const event = decode(leaf);
  require("event", Array.isArray(event) && event.length === 4 && event[0] === "gput/log-event/1", "not the form of one");
  const [, of, kind, details] = event;
  require("event", of === session, "of another session");
  require("event", typeof kind === "string" && details instanceof Map, "not the form of one");
  require("event", kind !== "restored" || isCount(details.get("position")), "a restore that does not say how many stops lie behind it");
  require("event", kind !== "best_chosen" || typeof details.get("model") === "string", "the choice of a model that names none");
  return event;
}

async function eventFound(leaf, known) {
  const event = eventOf(leaf, known.session);
  return event[2] === "tour_ended" ? { event, end: await tourEnd(event[3], known) } : { event };
}

/**
 * Check one leaf: {index, kind, receipt, statement}; an event has `event`, and that of a tour's end what the device said of it (`end`). Throws CheckFailed.
 *
 * `known`: session, signers, head (null: there is none to prove inclusion in), manifest, datasets; `own(receipt, statement, signer)`: more checks.
 */
async function checkLeaf(item, known) {
  const leaf = fromBase64(item.leaf);
  const kind = leaf[0] === COSE_SIGN1 ? "receipt" : "event";
  require("kind", item.kind === kind, `the service calls it ${item.kind}, its bytes say ${kind}`);
  const found = kind === "receipt" ? await receiptOf(leaf, known) : await eventFound(leaf, known);
  if (known.head) {
    require("inclusion proof", Array.isArray(item.path), "the log has none for this leaf");
    await checkInclusion(await leafHash(leaf), item.index, known.head.size, item.path.map(fromHex), known.head.root);
  }
  return { index: item.index, kind, ...found };
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
 * receipt, statement, event, end}; and what a leaf is checked against.
 */
export async function checkLog(bundle, session, told = () => {}) {
  const whole = [];
  const results = [];
  const manifest = await step(whole, "the manifest can be read", () => readManifest(bundle.manifest));
  if (!manifest) return { whole, results, known: null };
  const signers = await step(whole, "keys are named by the orchestrator's quotes and the GPU's certificates", () => signersOf(bundle.keys, session, manifest.digest));
  const head = signers && await step(whole, "the tree head is signed by one of them", () => checkHead(bundle.head, session, signers));
  const datasets = await step(whole, "each holder's decision is signed by the key in the roster", () => checkApprovals(bundle.approvals, manifest, session));
  if (!head || !datasets) return { whole, results, known: null };
  const known = { session, signers, head, manifest, datasets };
  for (const item of bundle.leaves) {
    results.push(await judged(item, known));
    told(results.length, bundle.leaves.length);
  }
  await step(whole, "every leaf of the signed tree is here, once and in its place", () => require("log",
    bundle.leaves.length === head.size && bundle.leaves.every((item, at) => item.index === at), `${bundle.leaves.length} leaves of ${head.size} came, or out of order`));
  // What leaves say of one another is asked of leaves that hold: one that does not is named for itself.
  if (results.every((one) => one.ok)) await checkTogether(whole, results, manifest.says, datasets.size);
  return { whole, results, known };
}

async function checkTogether(whole, results, rules, approved) {
  if (results.some((one) => one.receipt)) await step(whole, "as many holders approved as the manifest asks for", () => checkQuorum(rules, approved));
  await step(whole, "no stop, visit or epoch has two receipts", () => checkOnce(results));
  await step(whole, "each visit starts from the model that the one before it left", () => checkChain(results, rules));
  if (rules.accumulate) await step(whole, "each visit adds to what was accumulated, and each tour's end spends all of it", () => checkAccumulated(results));
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
