/* Inclusion in the Merkle tree of RFC 9162 section 2.1, over SHA-256. Knows no log and no signature. */

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
