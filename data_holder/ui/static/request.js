/* One request in full: what would run, by which operators, under which terms; and the decision, which the holder's service signs. */

import { all, curl, get, post } from "./common/api.js";
import { announce, badge, command, digest, facts, fold, h, show, table } from "./common/dom.js";
import { bytes, count, duration, moment, number } from "./common/format.js";
import { filled, panel, problemBox } from "./common/panel.js";
import { STATES, receiptsTable, verdict, visitsTable } from "./home.js";
import { verification } from "./verify.js";

const MAY = { waiting: ["approve", "refuse"], approved: ["veto"], refused: [], vetoed: [], ended: [] };
const WORDS = {
  approve: "I have read what would run and agree to exactly this manifest.",
  refuse: "This holder takes no part in this session.",
  veto: "Withdraw for good: a visit not yet fenced is recalled, no other follows. What was trained before stays in the model.",
};

function programView(program) {
  if (program === null) return h("p", { class: "quiet" }, "The program was not fetched yet; nothing can be approved before.");
  return h("div", null, facts([["Name", program.name], ["Digest", digest(program.digest, 24)], ["Parameters", `${program.parameters} in ${program.parameter_tensors} tensors`], ["Tokenizer", program.tokenizer || "none"]]),
    program.description ? h("p", null, program.description) : null, h("h3", null, `${count(program.operators.length, "operator")} that the graph calls`),
    h("ul", { class: "operators" }, program.operators.map((name) => h("li", null, h("code", { class: "badge quiet" }, name)))),
    h("p", { class: "note" }, "A program is this graph and nothing else: it has no files, no sockets and no clock. Its outputs are losses and the update of the model."),
    table("The record it expects", [["Field", (one) => one.name], ["Type", (one) => one.dtype], ["Shape", (one) => `[${one.shape.join(", ")}]`], ["Least", (one) => one.min ?? "–", "number"], ["Most", (one) => one.max ?? "–", "number"]], program.records.fields ?? []));
}

function terms(request) {
  const says = request.document;
  return h("div", null, facts([
    ["Session's name", says.name], ["Signed by the owner's key", request.owner ? digest(request.owner, 24) : "not known: the orchestrator does not say"], ["Rounds", says.rounds], ["Steps per visit", says.steps_per_visit], ["Travel mode", says.travel_mode], ["Collect", says.collect],
    ["Privacy floor", count(says.privacy_floor, "record")], ["Losses rounded to", `${says.loss_decimals} decimals`], ["Model goes to", says.output.release_to.join(", ") || "nobody"],
    ["GPU evidence", says.gpu_evidence.roots.join(" or ")], ["With", says.roster.map((one) => one.holder).join(", ")],
    ["Goes on from", says.predecessor ? `${says.predecessor.session} at step ${says.predecessor.step}` : "no other session"],
    ["Records already in the model", says.predecessor ? says.predecessor.contributors.map((one) => one.holder).join(", ") : "nobody's"],
    ["May be gone on with without you", says.continuation === "remaining" ? "yes: your share stays in the model if you leave" : "no"],
  ]), fold("The whole manifest", h("pre", { class: "scroller", tabindex: 0 }, JSON.stringify(says, null, 2))));
}

function findings(request) {
  return h("div", null, h("p", null, verdict(request.findings)), table("What this holder's policy says, rule by rule", [
    ["Rule", (one) => one.rule], ["Result", (one) => badge(one.ok ? "holds" : "broken", one.ok ? "good" : "bad")], ["Expected", (one) => one.expected], ["Got", (one) => one.got],
  ], request.findings, "This holder has no policy file."));
}

function decisionForm(request, datasets, redo) {
  const verbs = MAY[request.state] ?? [];
  const after = request.state === "refused" ? " A refusal stands; the owner can submit the session anew." : "";
  if (verbs.length === 0) return h("p", { class: "quiet" }, `Nothing is left to decide: ${request.state}.${after}`);
  const dataset = h("select", { id: "dataset" }, datasets.map((one) => h("option", { value: one.name }, one.name)));
  if (request.dataset) dataset.value = request.dataset;
  const sizes = h("input", { id: "statistics", type: "checkbox", checked: true });
  const reason = h("input", { id: "reason", type: "text", maxlength: 500, autocomplete: "off" });
  const sure = h("input", { id: "sure", type: "checkbox" });
  const said = h("div");
  const buttons = verbs.map((verb) => h("button", { type: "button", class: verb === "approve" ? "main" : "danger", "aria-describedby": `means-${verb}`, onclick: () => act(verb) }, verb[0].toUpperCase() + verb.slice(1)));
  async function act(verb) {
    if (!sure.checked) {
      show(said, h("p", { role: "alert", class: "problem" }, "Tick the box first: a decision is signed and cannot be unsaid."));
      sure.focus();
      return;
    }
    const body = { manifest: request.manifest, reason: reason.value, ...(verb === "approve" ? { dataset: dataset.value, statistics: sizes.checked } : {}) };
    for (const button of buttons) button.disabled = true;
    try {
      redo(await post(`/v1/requests/${request.session}/${verb}`, body));
      announce(`Done: ${verb}`);
    } catch (problem) {
      show(said, problemBox(problem));
      for (const button of buttons) button.disabled = false;
    }
  }
  return h("div", { class: "decide" }, verbs.map((verb) => h("p", { id: `means-${verb}` }, h("strong", null, `${verb[0].toUpperCase()}${verb.slice(1)}: `), WORDS[verb])),
    h("div", { class: "row" }, verbs.includes("approve") ? h("label", null, "Dataset ", dataset) : null, verbs.includes("approve") ? h("label", null, sizes, "Say how large values are, in powers of ten, and which classes are there") : null, h("label", null, "Reason, which everybody in the session reads ", reason)),
    h("label", null, sure, "I decide on manifest ", digest(request.manifest, 16)), h("div", { class: "row" }, buttons), said, commands(request, verbs, datasets));
}

function commands(request, verbs, datasets) {
  const lines = verbs.flatMap((verb) => {
    const body = { manifest: request.manifest, reason: "", ...(verb === "approve" ? { dataset: datasets[0]?.name ?? "NAME" } : {}) };
    const name = verb === "approve" ? ` --dataset ${datasets[0]?.name ?? "NAME"}` : "";
    return [command(`gput party ${verb} ${request.session} --manifest ${request.manifest}${name}`), command(curl(`/v1/requests/${request.session}/${verb}`, "POST", body))];
  });
  return fold("The same as commands", lines);
}

/** What the session would take of this holder, and what its approval says of the dataset. */
function expected({ estimate, profile }) {
  return h("div", null, facts([
    ["Visits of the GPU", estimate.visits], ["Training steps", estimate.steps], ["Bytes of records sent to the GPU", bytes(estimate.bytes)],
    ["Each record", estimate.passes === null ? "known with the dataset" : `${estimate.passes.toFixed(2)} times`],
    ["A visit", estimate.seconds_per_visit === null ? "not known yet" : duration(estimate.seconds_per_visit)], ["All visits here", duration(estimate.seconds)],
  ]), estimate.unknown.map((why) => h("p", { class: "quiet" }, `Not known yet: ${why}.`)), h("p", { class: "note" }, estimate.basis),
  profile ? fold("What the approval says of the dataset's fields", h("pre", { class: "scroller", tabindex: 0 }, JSON.stringify(profile, null, 2))) : null);
}

async function privacy(request, receipts, signal) {
  if (!request.privacy) return h("p", null, "This manifest asks for no differential privacy: nothing bounds what the model may remember of a record.");
  const last = receipts.at(-1);
  const spent = last ? (await get(`/v1/receipts/${last.session}/${last.index}`, { signal })).claims.privacy_spent : null;
  return facts([["ε spent, as the last receipt says", number(spent?.epsilon ?? 0)], ["ε by the plan, at most", number(request.privacy.epsilon)], ["δ", String(request.privacy.delta)]]);
}

function heading(request) {
  return h("div", null, h("h1", null, request.document.name, " ", badge(request.state, STATES[request.state] ?? "quiet")), facts([
    ["Session", request.session], ["Manifest", digest(request.manifest, 16)], ["Came", moment(request.received_at)], ["Decided by", request.decided_by ?? "nobody yet"], ["Decided", request.decided_at ? moment(request.decided_at) : null],
    ["Reason", request.reason], ["Dataset", request.dataset], ["Dataset root signed for", request.dataset_root ? digest(request.dataset_root, 16) : null],
    ["Newest log head seen", request.log_head ? digest(request.log_head, 16) : null], ["Waits for", request.waiting_for], ["Session's phase", request.phase],
  ]));
}

/** The page. */
export function requestPage(session, identity, signal) {
  const path = `/v1/requests/${encodeURIComponent(session)}`;
  const options = { signal };
  const place = h("div", null, h("h1", null, session));
  const titles = { takes: "What it takes", decide: "Decide", program: "The program", terms: "Terms", policy: "Policy", privacy: "Privacy", visits: "Visits", receipts: "Receipts" };
  const read = { decide: [path], receipts: [`/v1/receipts?session=${session}`], visits: [`/v1/visits?session=${session}`] };
  const verified = verification(session, path, signal);
  const parts = Object.fromEntries(Object.entries(titles).map(([name, title]) => [name, panel(title, { paths: read[name] ?? [path] })]));
  async function paint(given = null) {
    try {
      const request = given ?? await get(path, options);
      const [datasets, visits, receipts] = await Promise.all([all("/v1/datasets", options), all(`/v1/visits?session=${session}`, options), all(`/v1/receipts?session=${session}`, options)]);
      show(place, heading(request), Object.values(parts).map((one) => one.element), verified.element);
      show(parts.takes.body, expected(request));
      show(parts.decide.body, decisionForm(request, datasets, paint));
      show(parts.program.body, programView(request.program));
      show(parts.terms.body, terms(request));
      show(parts.policy.body, findings(request));
      show(parts.visits.body, visitsTable(visits));
      show(parts.receipts.body, receiptsTable(receipts), h("p", { class: "note" }, "The service that keeps them made these checks when each came."));
      verified.paint(receipts.length, request.log_head);
      await filled(parts.privacy.body, () => privacy(request, receipts, signal));
    } catch (problem) {
      if (problem.name !== "AbortError") show(place, problemBox(problem));
    }
  }
  paint();
  return place;
}
