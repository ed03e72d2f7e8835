/* The receipts' tab: what it reads of the log, and the words around the verification. Knows the API's paths. */

import { all, get } from "./common/api.js";
import { command, digest, facts, h, show } from "./common/dom.js";
import { leaves, moment } from "./common/format.js";
import { filled, panel } from "./common/panel.js";
import { checking, verifiedLog } from "./common/receipts_view.js";

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

/** The tab; a long log is checked when asked. What was checked stays so, and what came since is said. */
export function receiptsTab({ path, live, signal }) {
  const session = live.view.id;
  const log = panel("Log", { paths: [`${path}/log/head`] });
  const checks = panel("Receipts, verified in this browser", { paths: [`${path}/log/leaves?size=${live.view.log.size}`, `${path}/keys`], note: NOTE });
  const [place, since] = [h("div"), h("p", { role: "status" })];
  const real = checking(session);
  let [size, verified, begun] = [null, null, false];
  const told = () => show(since, verified !== null && size > verified ? `${leaves(size - verified)} came since: this verdict is of the log before.` : null);
  const read = async () => {
    const found = await bundle(path, session, signal);
    verified = found.head.size;
    told();
    return found;
  };
  const verify = () => {
    begun = true;
    return verifiedLog(place, read, real);
  };
  const button = h("button", { type: "button", class: "main", onclick: verify }, "Verify");
  checks.body.append(h("div", { class: "row" }, button, since), place);
  const update = () => {
    if (live.view.log.size === size) return;
    ({ size } = live.view.log);
    button.disabled = size === 0;
    told();
    filled(log.body, async () => (size === 0 ? h("p", { class: "quiet" }, "The log has no leaf yet: the first visit writes the first receipt.") : headFacts(await get(`${path}/log/head`, { signal }))));
    if (!begun && size > 0 && size <= LARGE) verify();
    else if (!begun) show(place, h("p", { class: "quiet" }, size === 0 ? "There is nothing to verify yet." : `Not verified yet: ${leaves(size)} take a while.`), command(real));
  };
  return { element: h("div", null, log.element, checks.element), update };
}

function headFacts(head) {
  return facts([["Leaves", head.size], ["Root", digest(head.root, 24)], ["Signed by", digest(head.key)], ["At", moment(head.time)]]);
}
