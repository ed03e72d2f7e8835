/* Signatures by WebCrypto: COSE_Sign1 (RFC 9052) with EdDSA or ES384, and Ed25519 over labelled data. Knows no payload. */

import { CheckFailed, fromHex, fromText, hashed, join } from "./bytes.js";
import { Tagged, decode, encode } from "./cbor.js";

const MAX_HEADER_BYTES = 128; // an algorithm, and a key id of 64 bytes
const ALGORITHMS = { "-8": { name: "Ed25519" }, "-35": { name: "ECDSA", hash: "SHA-384" } };

function malformed(why) {
  throw new CheckFailed("COSE form", why);
}

/** The base point of P-384 (FIPS 186-5): a key to try with. */
const P384_POINT = "04aa87ca22be8b05378eb1c71ef320ad746e1d3b628ba79b9859f741e082542a385502f25dbf55296c3a545e3872760ab7"
  + "3617de4a96262c6f5d9e98bf9292dc29f8f41dbd289a147ce9da3113b5f0b8c00a60b1ce1d7e819d7a431d7c90ea0e5f";

/** What this browser lacks for verifying, here and now; empty where it can. Found by trying, since no list of browsers stays true. */
export async function lacking() {
  if (!globalThis.crypto?.subtle) return ["WebCrypto (browsers have it on pages that come over HTTPS or from this machine itself)"];
  const tried = {
    "Ed25519, which orchestrators and holders sign with": () => ed25519(new Uint8Array(32)),
    "ECDSA on P-384, which GPUs certify with": () => p384(fromHex(P384_POINT)),
    "SHA-256": () => hashed("SHA-256", new Uint8Array()),
    "SHA-512": () => hashed("SHA-512", new Uint8Array()),
  };
  const found = await Promise.all(Object.entries(tried).map(([name, act]) => Promise.resolve().then(act).then(() => null, () => name)));
  return found.filter((name) => name !== null);
}

/** Whether this browser can verify here. */
export const canVerify = async () => (await lacking()).length === 0;

export function ed25519(raw) {
  return crypto.subtle.importKey("raw", raw, { name: "Ed25519" }, false, ["verify"])
    .catch(() => { throw new CheckFailed("key", "not an Ed25519 key"); });
}

/** A P-384 key from its uncompressed point (97 bytes). */
export function p384(point) {
  return crypto.subtle.importKey("raw", point, { name: "ECDSA", namedCurve: "P-384" }, false, ["verify"])
    .catch(() => { throw new CheckFailed("key", "not a point of P-384"); });
}

/** A key that its raw form says, and its length of which kind: Ed25519 (32 bytes), or P-384 (97). */
export const publicKey = (raw) => (raw.length === 32 ? ed25519(raw) : p384(raw));

/** A message taken apart, its signature unchecked: {alg, kid, payload, …}. Throws CheckFailed unless of the strict profile. */
export function parse(message) {
  const found = decode(message);
  if (!(found instanceof Tagged) || found.tag !== 18) malformed("not tagged as COSE_Sign1");
  if (!Array.isArray(found.value) || found.value.length !== 4) malformed("not an array of four");
  const [header, unprotected, payload, signature] = found.value;
  if (!(unprotected instanceof Map) || unprotected.size !== 0) malformed("the unprotected header must be empty");
  if (![header, payload, signature].every((part) => part instanceof Uint8Array)) malformed("a part is no byte string");
  const protectedHeader = header.length <= MAX_HEADER_BYTES ? decode(header, { numbered: true }) : null;
  if (!(protectedHeader instanceof Map) || protectedHeader.size !== 2) malformed("the header must hold alg and kid only");
  const [alg, kid] = [protectedHeader.get(1), protectedHeader.get(4)];
  if (!Number.isInteger(alg) || !(alg in ALGORITHMS) || !(kid instanceof Uint8Array)) malformed("the header must hold alg and kid only");
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
