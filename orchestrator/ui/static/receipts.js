/* The receipts' tab: what it reads of the log, and the words around the verification. Knows the API's paths. */

import { all, get } from "./common/api.js";
import { digest, facts, h } from "./common/dom.js";
import { moment } from "./common/format.js";
import { filled, panel } from "./common/panel.js";
import { verifiedLog } from "./common/receipts_view.js";

const LARGE = 2000;
const NOTE = "Signatures (Ed25519; P-384 of the GPU's own certificates), canonical CBOR, inclusion in the signed tree and what receipt, statement and approvals say of one another, checked in your browser. "
  + "The script that checks came from this same service, and certificate chains are not followed to their makers: the command below checks everything, with a program of your own.";

async function bundle(path, session, signal) {
  const options = { signal };
  const head = await get(`${path}/log/head`, options);
  const [leaves, keys, manifest, approvals] = await Promise.all([
    all(`${path}/log/leaves?size=${head.size}`, options), all(`${path}/keys`, options), get(`${path}/manifest`, options), all(`${path}/approvals`, options),
  ]);
  return { session, head, leaves, keys, manifest, approvals };
}

/** The tab; a long log is checked when asked. */
export function receiptsTab({ path, live, signal }) {
  const session = live.view.id;
  const log = panel("Log", { paths: [`${path}/log/head`] });
  const checks = panel("Receipts, verified in this browser", { paths: [`${path}/log/leaves?size=${live.view.log.size}`, `${path}/keys`], note: NOTE });
  const place = h("div");
  const real = `gput session receipts ${session} --trust TRUST_FOLDER -o receipts && gput receipts verify receipts`;
  const verify = () => verifiedLog(place, () => bundle(path, session, signal), real);
  checks.body.append(h("button", { type: "button", class: "main", onclick: verify }, "Verify again"), place);
  filled(log.body, async () => {
    const head = await get(`${path}/log/head`, { signal });
    return facts([["Leaves", head.size], ["Root", digest(head.root, 24)], ["Signed by", digest(head.key)], ["At", moment(head.time)]]);
  });
  if (live.view.log.size <= LARGE) verify();
  return { element: h("div", null, log.element, checks.element) };
}
