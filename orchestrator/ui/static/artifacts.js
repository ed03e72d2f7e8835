/* The artifacts' tab: what a session leaves behind, how big, whose, and the command that fetches it. Fetches nothing itself. */

import { all, curl } from "./common/api.js";
import { badge, command, digest, facts, h, show, table } from "./common/dom.js";
import { bytes } from "./common/format.js";
import { filled, panel, redrawn } from "./common/panel.js";
import { saving } from "./common/receipts_view.js";
import { manifestOf } from "./manifest.js";

const TRAFFIC = {
  holder_to_gpu_records: "records, holders to GPU", holder_to_gpu_proofs: "proofs, holders to GPU", holder_to_gpu_sent: "all, holders to GPU",
  orchestrator_to_gpu: "orchestrator to GPU", gpu_to_orchestrator: "GPU to orchestrator", model_to_holders: "finished model, to holders",
};

function model(view, release) {
  const ready = view.model !== null;
  return h("div", null, h("p", { class: "row" }, badge(ready ? "ready" : "not finished", ready ? "good" : "quiet"), `released to ${release.join(", ") || "nobody"}`),
    ready ? facts([["Size", bytes(view.model.size_bytes)], ["SHA-256", digest(view.model.sha256, 24)]]) : null,
    h("p", { class: "note" }, "The model leaves only for whom the manifest's output policy names, by a signed request: no read-only token fetches it."),
    command(`gput session export ${view.id} -o model.safetensors`));
}

function others(view) {
  return [
    ["Receipts, keys, manifest, approvals: all that an offline verification needs", saving(view.id)],
    ["The program that ran", `${curl(`/v1/programs/${view.program}/archive`)} -o program.gput && gput program inspect program.gput`],
    ["Events of the whole session, from its beginning", `gput session watch ${view.id}`],
  ].map(([name, text]) => h("div", null, h("p", null, name), command(text)));
}

/** The tab. */
export function artifactsTab({ path, live, signal }) {
  const finished = panel("Finished model", { paths: [path] });
  const rest = panel("Receipts, program, events");
  const traffic = panel("Bytes moved", { paths: [path], note: "Dataset bytes between holder and orchestrator: none, by construction. Model bytes between machines: none but the finished model, where the output policy releases it." });
  const files = panel("Programs in the library", { paths: ["/v1/programs"] });
  let release = null; // once read, it stays: a session has one manifest
  filled(finished.body, async () => {
    release = (await manifestOf(path, signal)).says.output.release_to;
    return model(live.view, release);
  });
  rest.body.append(...others(live.view));
  filled(files.body, async () => table("Programs", [
    ["Program", (one) => [one.name, one.digest === live.view.program ? [" ", badge("this session's", "info")] : ""]], ["Digest", (one) => digest(one.digest)], ["Model", (one) => bytes(one.model_bytes), "number"], ["Operators", (one) => one.operators.length, "number"],
  ], await all("/v1/programs", { signal })));
  let shown = "";
  const update = () => {
    const now = JSON.stringify([release, live.view.model, live.view.bytes]);
    if (now === shown) return; // not under a reader's hands
    shown = now;
    if (release !== null) redrawn(finished.body, () => show(finished.body, model(live.view, release)));
    redrawn(traffic.body, () => show(traffic.body, table("Bytes of bodies", [["Link", ([name]) => TRAFFIC[name] ?? name], ["Bytes", ([, count]) => bytes(count), "number"]], Object.entries(live.view.bytes))));
  };
  return { element: h("div", null, finished.element, rest.element, traffic.element, files.element), update };
}
