/* Whose keys signed a session's log: each as its channel's runtime data, quote and GPU evidence name it.
 *
 * Checked here: the quote covers this runtime data; this names session, manifest, signing key and the GPU's evidence; a certificate of the GPU's chain
 * certified the statement key. Not checked here: the quote's and the certificates' own chains up to their makers, and measurements.
 */

import { CheckFailed, canonicalJson, contains, equal, fromBase64, fromHex, fromText, hashed, join, toHex, toText } from "./bytes.js";
import { decode } from "./cbor.js";
import { ed25519, p384, parse, publicKey, verified } from "./cose.js";

/** DER elements of one level: [tag, whole, content]. */
function der(data) {
  const found = [];
  for (let at = 0; at < data.length;) {
    let size = data[at + 1];
    let start = at + 2;
    if (size & 0x80) {
      const many = size & 0x7f;
      size = data.slice(start, start + many).reduce((sum, byte) => sum * 256 + byte, 0);
      start += many;
    }
    if (!(start + size <= data.length)) throw new CheckFailed("certificate", "cut off");
    found.push([data[at], data.slice(at, start + size), data.slice(start, start + size)]);
    at = start + size;
  }
  return found;
}

/** The public point of each P-384 certificate of a PEM chain (97 bytes). */
function points(pem) {
  const blocks = [...pem.matchAll(/-----BEGIN CERTIFICATE-----([^-]+)-----END CERTIFICATE-----/g)];
  return blocks.map(([, body]) => {
    const [[, , certificate]] = der(fromBase64(body.replace(/\s/g, "")));
    const [[, , signed]] = der(certificate);
    const parts = der(signed);
    const key = parts[parts[0][0] === 0xa0 ? 6 : 5]?.[1] ?? new Uint8Array();
    return key.slice(-97);
  }).filter((point) => point.length === 97 && point[0] === 4);
}

async function statementKey(evidence) {
  const message = parse(fromBase64(evidence.statement_key));
  for (const point of points(evidence.chain)) {
    if (!equal(await hashed("SHA-256", point), message.kid)) continue;
    const said = decode(await verified(message, await p384(point), "statement key's certificate"));
    if (!Array.isArray(said) || said.length !== 3 || said[0] !== "gput/statement-key" || !(said[2] instanceof Uint8Array)) break;
    return { raw: toHex(said[2]), key: await publicKey(said[2]) };
  }
  throw new CheckFailed("statement key", "no certificate of the GPU's chain speaks for it");
}

async function signer(entry, session, manifest) {
  const raw = fromBase64(entry.runtime_data);
  const runtime = JSON.parse(toText(raw));
  if (runtime.session !== session || runtime.role !== "orchestrator") throw new CheckFailed("runtime data", "of another session or role");
  if (runtime.manifest !== manifest) throw new CheckFailed("runtime data", "of another manifest");
  if (runtime.signing_key !== entry.signing_key) throw new CheckFailed("signing key", "not the one that the runtime data names");
  const report = await hashed("SHA-512", join(fromText("gput/asc/1 orchestrator"), Uint8Array.of(0), raw));
  if (!contains(fromBase64(entry.evidence.quote), report)) throw new CheckFailed("quote", "does not cover this runtime data");
  const evidence = toHex(await hashed("SHA-256", fromText(canonicalJson(entry.gpu_evidence))));
  if (evidence !== runtime.gpu_evidence) throw new CheckFailed("GPU evidence", "not the one that the runtime data names");
  const [signing, device] = [fromHex(runtime.signing_key), await statementKey(entry.gpu_evidence)];
  return {
    runtime: toHex(await hashed("SHA-256", raw)), manifest: runtime.manifest, gpuEvidence: evidence, raw: signing,
    key: await ed25519(signing), statement: device.key, device: device.raw,
  };
}

/** A session's keys from `GET …/keys`, all for its manifest (digest, hex): `introducedBy(runtime)` and `namedBy(kid)`, and the `devices`' statement keys. Throws CheckFailed naming the entry. */
export async function signersOf(entries, session, manifest) {
  const byRuntime = new Map();
  const byKid = new Map();
  const devices = new Map();
  for (const [at, entry] of entries.entries()) {
    try {
      const found = await signer(entry, session, manifest);
      byRuntime.set(found.runtime, found);
      devices.set(found.device, found.statement);
      byKid.set(toHex(found.raw), found.key);
      byKid.set(toHex(await hashed("SHA-256", found.raw)), found.key);
    } catch (error) {
      throw new CheckFailed(error.check ?? "form", `key ${at}: ${error.message}`);
    }
  }
  const known = (map, name) => map.get(name) ?? (() => { throw new CheckFailed("known key", "signed by a key that no quote names"); })();
  return { introducedBy: (runtime) => known(byRuntime, runtime), namedBy: (kid) => known(byKid, toHex(kid)), devices: [...devices.values()], size: byRuntime.size };
}
