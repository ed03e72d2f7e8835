/* The panel that verifies a session's receipts in this browser: what it reads of the holder's API, and the words around it. */

import { Problem, all, get } from "./common/api.js";
import { h } from "./common/dom.js";
import { panel } from "./common/panel.js";
import { verifiedLog } from "./common/receipts_view.js";
import { checkOwnReceipts } from "./own_receipts.js";

const LARGE = 2000;
const NOTE = "Signatures of orchestrator, device and log (Ed25519), inclusion in the signed tree, that the log extends the one remembered here, and what this holder "
  + "itself wrote, checked in your browser with the keys that this holder attested. Evidence behind those keys was verified by the service when each channel opened, not here; "
  + "privacy, mixtures and accumulation are among the service's own checks above. The command below checks everything, with --trust by roots of your own.";

/** The log's signed head, or the problem in its place: signatures can be checked while the orchestrator is away. */
async function head(path, options) {
  try {
    return { log: await get(`${path}/log`, options), problem: null };
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    return { log: null, problem: `${problem.message} (${problem.code})` };
  }
}

/** What `checkOwnReceipts` checks. Throws Problem. */
export async function bundle(path, session, signal) {
  const options = { signal };
  const found = await head(path, options);
  const size = found.log === null ? "" : `?size=${found.log.size}`;
  const [agreement, keys, items, visits] = await Promise.all([
    get(`${path}/agreement`, options), all(`${path}/keys`, options), all(`${path}/log/receipts${size}`, options), all(`/v1/visits?session=${session}`, options),
  ]);
  const leaves = items.map((one) => ({ index: one.index, kind: "receipt", leaf: one.receipt, path: one.path }));
  return { session, agreement, keys, leaves, visits, ...found };
}

/** The panel {element, paint}; `paint(receipts, head)` verifies, of many receipts only when asked. `head`: SIZE:ROOT as remembered. */
export function verification(session, path, signal) {
  const { element, body } = panel("Receipts, verified in this browser", { paths: [`${path}/keys`, `${path}/log`, `${path}/log/receipts`], note: NOTE });
  const place = h("div");
  function paint(receipts, remembered) {
    body.replaceChildren();
    if (receipts === 0) {
      body.append(h("p", { class: "quiet" }, "No receipt yet: the first one comes when a visit is closed."));
      return;
    }
    const held = remembered ? ` --head ${remembered}` : "";
    const real = `gput session receipts ${session} --trust TRUST_FOLDER -o receipts && gput receipts verify receipts${held}`;
    const verify = () => verifiedLog(place, () => bundle(path, session, signal), real, checkOwnReceipts);
    body.append(h("button", { type: "button", class: "main", onclick: verify }, receipts > LARGE ? "Verify" : "Verify again"), place);
    if (receipts <= LARGE) verify();
  }
  return { element, paint };
}
