/* Tours of accumulated gradients in a session's log: the device's word on each end, and the accumulator's own chain. Knows no network and no element.
 *
 * The rules are those of `gput.receipt_tours`.
 */

import { CheckFailed, fromBase64 } from "./bytes.js";
import { claimOf } from "./claims.js";
import { parse, verified } from "./cose.js";
import { goneBack, restoredTo, theirs } from "./receipts_chain.js";
import { require } from "./require.js";
import { checkTourEnd } from "./visit_end.js";

async function believed(message, devices) {
  for (const key of devices) {
    try {
      return await verified(message, key, "tour's end");
    } catch (error) {
      if (!(error instanceof CheckFailed)) throw error;
    }
  }
  throw new CheckFailed("tour's end", "signed by no GPU that was attested in this session");
}

/** What the device said of the tour's end that a leaf tells of (`told`), under the statement key of an attested GPU. Throws CheckFailed. */
export async function tourEnd(told, { session, signers, manifest }) {
  require("tour's end", manifest.says.accumulate, "in a session that has none");
  const said = claimOf(await believed(parse(fromBase64(told.get("statement"))), signers.devices), "gput/tour/1", "tour's end");
  const expected = { session, program: manifest.says.program, round: told.get("round"), stepped: told.get("stepped") };
  for (const [name, value] of Object.entries(expected)) require("tour's end", said.get(name) === value, `${name} differs`);
  checkTourEnd(told, said, manifest.says);
  return said;
}

/** An accumulator: its digest, how many batches' gradients it holds and of which round's visits (0: it is empty), beside which model. */
const held = (digest, batches, round, model) => `${digest} ${batches} ${round} ${model}`;
const partsOf = (one) => one.split(" ");

function ofEnd(said) {
  const began = held(said.get("optimiser_before"), said.get("batches"), said.get("round"), said.get("model_before"));
  return [began, held(said.get("optimiser_after"), 0, 0, said.get("model_after"))];
}

function ofVisit(leaf, receipt, statement) {
  const model = statement.get("model_before");
  require("accumulator", model === statement.get("model_after"), `leaf ${leaf} changed the model, which the end of a tour alone may`);
  const added = statement.get("accumulated");
  const stood = (digest, batches) => held(digest, batches, batches === 0 ? 0 : receipt.get("round"), model);
  const steps = receipt.get("outcome") === "closed" ? statement.get("steps") : 0;
  return [stood(added.get("before"), added.get("batches") - steps), stood(added.get("after"), added.get("batches"))];
}

/** After a restore or the choice of the best model: what stood, with the stops behind it, and what the next leaf may begin with. */
function heard(event, stood, left) {
  const position = restoredTo(event);
  if (position !== null) return goneBack(stood, position);
  const best = event[2] === "best_chosen" ? theirs(stood, (one) => partsOf(one)[3] === event[3].get("model")) : [];
  return [[...stood, ...best.map((one) => [stood.at(-1)[0], one])], [...left, ...best]];
}

function fault(began, left) {
  const round = partsOf(began)[2];
  const other = left.map(partsOf).find(([digest, batches, , model]) => held(digest, batches, round, model) === began);
  return other ? `finds the gradients of round ${other[2]} in the accumulator, and is of round ${round}` : "did not begin with what was left in the accumulator";
}

/** Each visit adds to what the leaf before it left, and each end spends exactly what was added, all of it by visits of its own round. Throws CheckFailed. */
export function checkAccumulated(checked) {
  let [stood, left] = [[], []];
  for (const { index: leaf, receipt, statement, event, end } of checked) {
    if (!receipt && !end) {
      [stood, left] = heard(event, stood, left);
      continue;
    }
    const [began, after] = end ? ofEnd(end) : ofVisit(leaf, receipt, statement);
    const fits = stood.length > 0 ? left.includes(began) : partsOf(began)[1] === "0";
    require("accumulator", fits, `leaf ${leaf} ${fault(began, left)}`);
    if (stood.length === 0) stood = [[0, began]];
    stood.push([end ? stood.at(-1)[0] : receipt.get("index"), after]);
    left = [after];
  }
}
