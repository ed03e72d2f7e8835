/* Manifests as the page reads them: signed document to digest and fields. Knows one path of the API. */

import { get } from "./common/api.js";
import { canVerify } from "./common/cose.js";
import { readManifest } from "./common/receipts_check.js";
import { fromBase64, toText } from "./common/bytes.js";

/** {says, digest}; `digest` is null where this browser cannot hash. Throws Problem. */
export async function manifestOf(path, signal) {
  const signed = await get(`${path}/manifest`, { signal });
  if (await canVerify()) return readManifest(signed);
  return { says: JSON.parse(toText(fromBase64(signed.document))), digest: null };
}

/** Whether a manifest admits evidence that no hardware gives, of anybody. */
export function admitsEmulated(says) {
  return [says.gpu_evidence, says.orchestrator_evidence, ...says.roster.map((one) => one.evidence)].some((one) => one?.roots.includes("EMULATED"));
}
