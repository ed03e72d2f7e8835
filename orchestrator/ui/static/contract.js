/* The contract's tab: the manifest, who agreed to it, how it differs from another, how to veto. Signs nothing: it has no party's key. */

import { all, get } from "./common/api.js";
import { badge, command, digest, facts, fold, h, show, table } from "./common/dom.js";
import { count, moment } from "./common/format.js";
import { filled, panel, problemBox, redrawn } from "./common/panel.js";
import { agreementView, estimateView } from "./agreed.js";
import { differences, flat } from "./diff.js";
import { manifestOf } from "./manifest.js";

/** The session whose model this one goes on with, and whose records are in it. */
function origin(said) {
  if (!said) return "no other session";
  const link = h("a", { href: `#/sessions/${encodeURIComponent(said.session)}/contract` }, digest(said.session, 20));
  return h("span", null, link, ` at step ${said.step}, with records of ${said.contributors.map((one) => one.holder).join(", ")}`);
}

const DECIDED = new Set(["approved", "refused", "vetoed"]);
const DECISIONS = { approve: "good", refuse: "bad", veto: "bad" };

function summary({ says, digest: own }, live) {
  const same = own === null ? badge("not hashed here", "quiet") : own === live.view.manifest_digest ? badge("digest holds", "good") : badge("ANOTHER DIGEST THAN THE SESSION'S", "bad");
  return h("div", null, h("p", { class: "row" }, "Digest ", h("code", null, own ?? live.view.manifest_digest), same), facts([
    ["Program", digest(says.program)], ["Travel mode", says.travel_mode], ["Rounds", says.rounds], ["Steps per visit", says.steps_per_visit],
    ["Collect", says.collect], ["Accumulate", says.accumulate ?? "no"], ["Buffer", `${says.buffer_bytes} bytes`], ["Privacy floor", count(says.privacy_floor, "record")],
    ["Differential privacy", says.privacy ? JSON.stringify(says.privacy) : "none"], ["Losses rounded to", `${says.loss_decimals} decimals`],
    ["Model goes to", says.output.release_to.join(", ") || "nobody"], ["Quorum", says.quorum ?? "everybody"],
    ["Goes on from", origin(says.predecessor)], ["May be gone on with", says.continuation ?? "with everybody"],
    ["GPU evidence", says.gpu_evidence.roots.join(" or ")], ["Orchestrator's evidence", says.orchestrator_evidence.roots.join(" or ")],
  ]), fold("Every field", table("The manifest, field by field", [["Field", ([path]) => h("code", null, path)], ["Value", ([, value]) => h("code", null, value)]], flat(says))));
}

function approvals(items, roster) {
  const undecided = roster.filter((entry) => !items.some((one) => one.holder === entry.holder)).map((entry) => ({ holder: entry.holder, decision: null }));
  return table("What each holder said, in order; the last word counts", [
    ["Holder", (one) => one.holder], ["Decision", (one) => badge(one.decision ?? "nothing yet", DECISIONS[one.decision] ?? "warn")],
    ["When", (one) => moment(one.at), "tight"], ["Reason", (one) => one.reason ?? ""], ["Records", (one) => one.records ?? "–", "number"],
    ["Dataset root", (one) => digest(one.dataset_root)], ["Signed by", (one) => digest(one.public_key)],
  ], [...items, ...undecided]);
}

function diffTable(before, after, name) {
  const rows = differences(before, after);
  const changed = rows.filter((one) => one.kind !== "same");
  const grid = table(`${count(changed.length, "field")} of ${rows.length} differ from ${name}`, [
    ["Field", (one) => h("code", null, one.path)], ["There", (one) => h("code", { class: one.kind === "same" ? null : one.before === null ? "" : "removed" }, one.before ?? "–")],
    ["Here", (one) => h("code", { class: one.after === null ? "" : "added" }, one.after ?? "–")], ["", (one) => badge(one.kind, { added: "good", removed: "bad", changed: "warn" }[one.kind])],
  ], changed, "Both say the same.");
  grid.classList.add("diff");
  return grid;
}

/** Choose another session, see what differs. */
function comparison(here, live, signal) {
  const place = h("div", { "aria-live": "polite" });
  const select = h("select", { id: "other" }, h("option", { value: "" }, "choose a session"));
  all("/v1/sessions", { signal }).then((found) => {
    for (const one of found.reverse()) if (one.id !== live.view.id) select.append(h("option", { value: one.id }, `${one.name} · ${one.id}`));
    if (live.view.predecessor) select.value = live.view.predecessor;
    return compare();
  }).catch((problem) => { if (problem.name !== "AbortError") show(place, problemBox(problem)); });
  async function compare() {
    const [asked, name] = [select.value, select.selectedOptions[0].textContent];
    place.replaceChildren(); // what stands there is of another session
    if (!asked) return;
    const found = await manifestOf(`/v1/sessions/${encodeURIComponent(asked)}`, signal).then((there) => diffTable(there.says, here.says, name), problemBox);
    if (select.value === asked) show(place, found); // else the answer came too late
  }
  select.addEventListener("change", compare);
  return h("div", null, h("label", { for: "other" }, "Compare with the manifest of "), select, place);
}

function vetoing(live) {
  const { id } = live.view;
  const said = `--manifest ${live.view.manifest_digest}`;
  return h("div", null,
    h("p", null, "A decision is signed with the holder's own key, by the holder's own service. This page has no key and cannot decide. The holder's operator says:"),
    command(`gput party request ${id}`), command(`gput party approve ${id} ${said} --dataset NAME`), command(`gput party veto ${id} ${said} --reason "…"`),
    h("p", { class: "note" }, "A veto holds before the next visit: one that is not fenced yet is recalled, none follows, and nobody else is stopped. "
      + "The commands take GPUT_HOLDER_URL and GPUT_HOLDER_TOKEN; the holder's own page at its /ui/ does the same."));
}

/** The tab. */
export function contractTab({ path, live, signal }) {
  const contract = panel("Manifest", { paths: [`${path}/manifest`], note: "What every holder approves, by digest. A changed manifest is another manifest." });
  const said = panel("Approvals", { paths: [`${path}/approvals`] });
  const expected = panel("What it takes", { paths: [`${path}/estimate`], note: "Before anybody approves: from the manifest, and from visits of earlier sessions here." });
  const datasets = panel("Datasets", { paths: [path], note: "What approvals say of their datasets, compared: declared units and classes, and sizes in decades. No record and no class's name is in it." });
  const differs = panel("Differences", { paths: ["/v1/sessions"] });
  const veto = panel("Approve, refuse, veto");
  veto.body.append(vetoing(live));
  filled(expected.body, async () => estimateView(await get(`${path}/estimate`, { signal })));
  let [roster, heard] = [null, 0];
  const decisions = () => live.facts.filter((fact) => fact.kind === "session" && DECIDED.has(fact.fact)).length;
  const hear = () => {
    heard = decisions();
    return filled(said.body, async () => approvals(await all(`${path}/approvals`, { signal }), roster));
  };
  filled(contract.body, async () => {
    const manifest = await manifestOf(path, signal);
    roster = manifest.says.roster;
    await hear();
    show(differs.body, comparison(manifest, live, signal));
    return summary(manifest, live);
  });
  const update = () => {
    redrawn(datasets.body, () => show(datasets.body, agreementView(live.view.agreement)));
    if (roster !== null && decisions() !== heard) hear();
  };
  return { element: h("div", null, contract.element, expected.element, said.element, datasets.element, veto.element, differs.element), update };
}
