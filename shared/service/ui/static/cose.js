/* Signatures by WebCrypto: COSE_Sign1 (RFC 9052) with EdDSA or ES384, and Ed25519 over labelled data. Knows no payload. */

import { CheckFailed, fromText, join } from "./bytes.js";
import { Tagged, decode, encode } from "./cbor.js";

const ALGORITHMS = { "-8": { name: "Ed25519" }, "-35": { name: "ECDSA", hash: "SHA-384" } };

function malformed(why) {
  throw new CheckFailed("COSE form", why);
}

/** Whether this browser can verify here: a secure context (HTTPS or this machine itself) and Ed25519. */
export async function canVerify() {
  if (!globalThis.crypto?.subtle) return false;
  try {
    await crypto.subtle.importKey("raw", new Uint8Array(32), { name: "Ed25519" }, false, ["verify"]);
    return true;
  } catch {
    return false;
  }
}

export function ed25519(raw) {
  return crypto.subtle.importKey("raw", raw, { name: "Ed25519" }, false, ["verify"])
    .catch(() => { throw new CheckFailed("key", "not an Ed25519 key"); });
}

/** A P-384 key from its uncompressed point (97 bytes). */
export function p384(point) {
  return crypto.subtle.importKey("raw", point, { name: "ECDSA", namedCurve: "P-384" }, false, ["verify"])
    .catch(() => { throw new CheckFailed("key", "not a point of P-384"); });
}

/** A message taken apart, its signature unchecked: {alg, kid, payload, …}. Throws CheckFailed unless of the strict profile. */
export function parse(message) {
  const found = decode(message);
  if (!(found instanceof Tagged) || found.tag !== 18) malformed("not tagged as COSE_Sign1");
  if (!Array.isArray(found.value) || found.value.length !== 4) malformed("not an array of four");
  const [header, unprotected, payload, signature] = found.value;
  if (!(unprotected instanceof Map) || unprotected.size !== 0) malformed("the unprotected header must be empty");
  if (![header, payload, signature].every((part) => part instanceof Uint8Array)) malformed("a part is no byte string");
  const protectedHeader = decode(header);
  if (!(protectedHeader instanceof Map) || protectedHeader.size !== 2) malformed("the header must hold alg and kid only");
  const [alg, kid] = [protectedHeader.get(1), protectedHeader.get(4)];
  if (!(alg in ALGORITHMS) || !(kid instanceof Uint8Array)) malformed("the header must hold alg and kid only");
  return { alg, kid, header, payload, signature };
}

/** The payload, signed by this key (a CryptoKey). `whose` names the signature in the error. */
export async function verified(message, key, whose) {
  const algorithm = ALGORITHMS[message.alg];
  if (algorithm.name !== key.algorithm.name) throw new CheckFailed(whose, "the algorithm does not fit the key");
  const structure = join(Uint8Array.of(0x84), encode("Signature1"), encode(message.header), encode(new Uint8Array()), encode(message.payload));
  if (!await crypto.subtle.verify(algorithm, key, message.signature, structure)) throw new CheckFailed(whose, "the signature is not of this key");
  return message.payload;
}

/** Check an Ed25519 signature over `label ‖ 00 ‖ data`. Throws CheckFailed. */
export async function checkLabelled(key, label, data, signature, whose) {
  const message = join(fromText(label), Uint8Array.of(0), data);
  if (!await crypto.subtle.verify({ name: "Ed25519" }, key, signature, message)) throw new CheckFailed(whose, "the signature is not of this key");
}
