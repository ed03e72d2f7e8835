/* The panel that verifies a session's receipts in this browser: what it reads of the holder's API, and the words around it. */

import { Problem, all, get } from "./common/api.js";
import { command, h, show } from "./common/dom.js";
import { count } from "./common/format.js";
import { panel } from "./common/panel.js";
import { checking, verifiedLog } from "./common/receipts_view.js";
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

/**
 * The panel {element, paint}; `paint(receipts, head)` says how many there are by now and verifies them, at first and if they are not too many;
 * what comes later is verified when asked. `head`: SIZE:ROOT as remembered.
 */
export function verification(session, path, signal) {
  const { element, body } = panel("Receipts, verified in this browser", { paths: [`${path}/keys`, `${path}/log`, `${path}/log/receipts`], note: NOTE });
  const [place, since] = [h("div"), h("span", { class: "quiet" })];
  const known = { receipts: 0, head: null, verified: null };
  const button = h("button", { type: "button", class: "main", onclick: verify }, "Verify");
  const real = () => checking(session, known.head);
  const sayWhatCame = () => {
    const more = known.verified === null ? 0 : known.receipts - known.verified;
    show(since, more > 0 ? `${count(more, "receipt")} came since.` : "");
  };
  async function read() {
    const found = await bundle(path, session, signal);
    known.verified = found.leaves.length;
    button.textContent = "Verify again";
    sayWhatCame();
    return found;
  }
  function verify() {
    return verifiedLog(place, read, real(), checkOwnReceipts);
  }
  function paint(receipts, head) {
    const first = known.receipts === 0;
    Object.assign(known, { receipts, head });
    sayWhatCame();
    if (receipts === 0) show(body, h("p", { class: "quiet" }, "No receipt yet: the first one comes when a visit is closed."));
    else if (first) {
      show(body, h("div", { class: "row" }, button, since), place);
      if (receipts <= LARGE) verify();
      else show(place, command(real()));
    }
  }
  return { element, paint };
}
