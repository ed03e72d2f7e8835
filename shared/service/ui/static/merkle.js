/* Inclusion in the Merkle tree of RFC 9162 section 2.1, and that one tree extends another, over SHA-256. Knows no log and no signature. */

import { CheckFailed, equal, hashed, join } from "./bytes.js";

const MAX_PROOF = 64;

/** SHA-256(00 ‖ leaf). */
export const leafHash = (leaf) => hashed("SHA-256", join(Uint8Array.of(0), leaf));

const nodeHash = (left, right) => hashed("SHA-256", join(Uint8Array.of(1), left, right));

/** Check that leaf hash `leaf` is at `index` of the tree of `size` leaves under `root` (RFC 9162 2.1.3.2). Throws CheckFailed. */
export async function checkInclusion(leaf, index, size, path, root) {
  const refuse = (why) => { throw new CheckFailed("inclusion proof", why); };
  if (path.length > MAX_PROOF || path.some((node) => node.length !== 32)) refuse("not a list of hashes");
  if (!(index >= 0 && index < size)) refuse(`leaf ${index} is outside a tree of ${size}`);
  let position = BigInt(index);
  let last = BigInt(size) - 1n;
  let result = leaf;
  for (const sibling of path) {
    if (last === 0n) refuse("the proof is too long");
    if (position & 1n || position === last) {
      result = await nodeHash(sibling, result);
      while (!(position & 1n) && position !== 0n) {
        position >>= 1n;
        last >>= 1n;
      }
    } else result = await nodeHash(result, sibling);
    position >>= 1n;
    last >>= 1n;
  }
  if (last !== 0n || !equal(result, root)) refuse("it does not lead to the signed root");
}

/** The roots of both trees that a consistency proof leads to: [old, whole]. */
async function replayed(oldSize, size, path, refuse) {
  let position = BigInt(oldSize) - 1n;
  let last = BigInt(size) - 1n;
  const up = () => { position >>= 1n; last >>= 1n; };
  while (position & 1n) up();
  let [old, whole] = [path[0], path[0]];
  for (const sibling of path.slice(1)) {
    if (last === 0n) refuse("the proof is too long");
    if (position & 1n || position === last) {
      [old, whole] = [await nodeHash(sibling, old), await nodeHash(sibling, whole)];
      while (!(position & 1n) && position !== 0n) up();
    } else whole = await nodeHash(whole, sibling);
    up();
  }
  if (last !== 0n) refuse("the proof is too short");
  return [old, whole];
}

/** Check that the tree `now` extends the tree `before`, each {size, root} (RFC 9162 2.1.4.2). Throws CheckFailed. */
export async function checkConsistency(before, now, path) {
  const refuse = (why) => { throw new CheckFailed("consistency proof", why); };
  if (path.length > MAX_PROOF || path.some((node) => node.length !== 32)) refuse("not a list of hashes");
  if (!(before.size >= 0 && before.size <= now.size)) refuse(`a log of ${now.size} leaves does not extend one of ${before.size}`);
  if (before.size === 0 || before.size === now.size) {
    const known = before.size === 0 ? await hashed("SHA-256", new Uint8Array()) : now.root;
    if (path.length > 0 || !equal(before.root, known)) refuse("the trees differ, or the proof is not empty");
    return;
  }
  // A complete subtree of a power-of-two size stands for itself and is left out of the proof.
  const complete = (BigInt(before.size) & (BigInt(before.size) - 1n)) === 0n;
  const whole = complete ? [before.root, ...path] : path;
  if (whole.length === 0) refuse("the proof is too short");
  const [old, root] = await replayed(before.size, now.size, whole, refuse);
  if (!equal(old, before.root) || !equal(root, now.root)) refuse("it does not lead to both roots");
}
