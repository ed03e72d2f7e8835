/* This holder's receipts, checked in this browser with the keys that this holder attested, and against what it wrote. No network, no element. */

import { CheckFailed, fromBase64, fromHex, hashed, toHex, toText } from "./common/bytes.js";
import { checkLabelled, ed25519, publicKey } from "./common/cose.js";
import { checkConsistency } from "./common/merkle.js";
import { checkFirstLink } from "./common/receipts_chain.js";
import { checkHead, checkStated, judged, readManifest, step } from "./common/receipts_check.js";
import { require } from "./common/require.js";

const STRANGER = "signed by a key that this holder never attested";

async function channel(entry) {
  const raw = fromHex(entry.signing_key);
  return {
    raw, key: await ed25519(raw), statement: entry.statement_key === null ? null : await publicKey(fromHex(entry.statement_key)),
    gpuEvidence: entry.gpu_evidence, device: entry.device, holderRuntime: entry.holder_runtime_data,
  };
}

/** Whose keys sign, from `GET …/keys`: `introducedBy(runtime)` and `namedBy(kid or key)`. Throws CheckFailed naming the entry. */
async function attestedSigners(entries) {
  const byRuntime = new Map();
  const byKid = new Map();
  for (const [at, entry] of entries.entries()) {
    try {
      const found = await channel(entry);
      byRuntime.set(entry.orchestrator_runtime_data, found);
      for (const name of [found.raw, await hashed("SHA-256", found.raw)]) byKid.set(toHex(name), found.key);
    } catch (error) {
      throw new CheckFailed(error.check ?? "form", `channel ${at}: ${error.message}`);
    }
  }
  const known = (map, name) => map.get(name) ?? (() => { throw new CheckFailed("known key", STRANGER); })();
  const introducedBy = (runtime) => {
    const found = known(byRuntime, runtime);
    require("device's signature", found.statement !== null, "this device certified no key that it signs with");
    return found;
  };
  return { introducedBy, namedBy: (kid) => known(byKid, toHex(kid)), size: byRuntime.size };
}

/** The manifest as this holder was asked about it, believed: {digest, says}. Throws CheckFailed. */
async function agreedManifest(agreement, session) {
  const manifest = await readManifest({ document: agreement.manifest });
  require("manifest", manifest.digest === agreement.digest, "its bytes have another digest than the one that was decided on");
  const key = toHex(await hashed("SHA-256", fromHex(agreement.public_key)));
  require("roster", manifest.says.roster.some((one) => one.holder === agreement.holder && one.key === key), "it does not name this holder with this key");
  return { ...manifest, session };
}

/** The dataset that this holder's own signed word approved: {root, records}; the latter null where that word is a veto. Throws CheckFailed. */
async function ownDecision({ decision, public_key: key, holder, dataset_root: root }, manifest) {
  require("decision", decision !== null, "this holder has not decided yet");
  const document = fromBase64(decision.document);
  await checkLabelled(await ed25519(fromHex(key)), "gput/approval", document, fromBase64(decision.signature), "this holder's signature");
  const said = JSON.parse(toText(document));
  require("decision", said.manifest === manifest.digest && said.session === manifest.session && said.holder === holder, "it is about another manifest, session or holder");
  checkStated(said);
  // A veto names no dataset; the visits before it were still on the one approved.
  if (said.decision !== "approve") return { root, records: null };
  require("dataset root", said.dataset_root === root, "another dataset than the one approved");
  return { root, records: said.records };
}

/** What only this holder can check: the GPU took in exactly what this holder wrote. Throws CheckFailed. */
function againstMemory(agreement, visits, start) {
  const byEpoch = new Map(visits.map((one) => [one.epoch, one]));
  return (receipt, statement, signer) => {
    require("holder", receipt.get("holder") === agreement.holder, "it is about another holder");
    require("own channel", receipt.get("holder_runtime_data") === signer.holderRuntime, "another channel of this holder");
    require("device", statement.get("device") === signer.device, "another GPU than the one attested");
    checkFirstLink(statement, start, `visit ${receipt.get("visit")}`, false);
    const visit = byEpoch.get(receipt.get("epoch"));
    require("own visit", visit !== undefined, `this holder wrote nothing under epoch ${receipt.get("epoch")}`);
    for (const name of ["visit", "round", "index", "attempt"]) require("own visit", receipt.get(name) === visit[name], `${name} differs from what this holder remembers`);
    for (const name of ["commitment", "length", "records"]) require("own data", statement.get(name) === visit[name], `${name} differs from what this holder wrote`);
  };
}

async function logHead({ log, problem }, session, signers) {
  if (problem) throw new CheckFailed("log", problem);
  return checkHead(log, session, signers);
}

async function extendsMemory({ remembered, consistency }, head) {
  if (remembered === null) return;
  await checkConsistency({ size: remembered.size, root: fromHex(remembered.root) }, head, consistency.map(fromHex));
}

/**
 * Everything of this holder's receipts of one session. `bundle`: agreement, keys, log (or `problem`: why there is none), leaves, visits as
 * the holder's API gave them. Returns {whole, results, known} as `checkLog` does.
 */
export async function checkOwnReceipts(bundle, session, told = () => {}) {
  const whole = [];
  const results = [];
  const { agreement } = bundle;
  const manifest = await step(whole, "the manifest is the one this holder decided on, and names it", () => agreedManifest(agreement, session));
  const signers = await step(whole, "the keys this holder attested can be used", () => attestedSigners(bundle.keys));
  const dataset = manifest && await step(whole, "this holder's decision is signed by its own key", () => ownDecision(agreement, manifest));
  if (!signers || !dataset || !manifest) return { whole, results, known: null };
  const head = await step(whole, "the tree head is signed by one of them", () => logHead(bundle, session, signers));
  if (head) await step(whole, "the log extends the one that this holder remembers", () => extendsMemory(bundle.log, head));
  const known = { session, signers, head, manifest, datasets: new Map([[agreement.holder, dataset]]), own: againstMemory(agreement, bundle.visits, manifest.says.predecessor) };
  for (const item of bundle.leaves) {
    results.push(await judged(item, known));
    told(results.length, bundle.leaves.length);
  }
  return { whole, results, known };
}
