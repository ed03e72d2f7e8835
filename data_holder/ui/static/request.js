/* One request in full: what would run, by which operators, under which terms; and the decision, which the holder's service signs. */

import { all, get } from "./common/api.js";
import { badge, digest, facts, fold, h, show, table } from "./common/dom.js";
import { bytes, count, duration, moment, number } from "./common/format.js";
import { UNCHANGED, filled, followed, panel, redrawn } from "./common/panel.js";
import { decisionForm } from "./decide.js";
import { STATES, receiptsTable, verdict, visitsTable } from "./home.js";
import { EVERY_MS, whereWritten } from "./identity.js";
import { verification } from "./verify.js";

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
    ["Rule", (one) => one.rule, "wide"], ["Result", (one) => badge(one.ok ? "holds" : "broken", one.ok ? "good" : "bad")], ["Expected", (one) => one.expected], ["Got", (one) => one.got],
  ], request.findings, "This holder has no policy file."));
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

const titled = (request) => [request.document.name, " ", badge(request.state, STATES[request.state] ?? "quiet")];

function heading(request) {
  return facts([
    ["Session", request.session], ["Manifest", digest(request.manifest, 16)], ["Came", moment(request.received_at)], ["Decided by", request.decided_by ?? "nobody yet"], ["Decided", request.decided_at ? moment(request.decided_at) : null],
    ["Reason", request.reason], ["Dataset", request.dataset], ["Dataset root signed for", request.dataset_root ? digest(request.dataset_root, 16) : null],
    ["Newest log head seen", request.log_head ? digest(request.log_head, 16) : null], ["Waits for", request.waiting_for], ["Session's phase", request.phase],
  ]);
}

/** Panels of what a request says, and the form; `draw({request, datasets})` draws those that differ, `decided(request)` hears a decision. */
function requestParts(path, decided) {
  const titles = { takes: "What it takes", decide: "Decide", program: "The program", terms: "Terms", policy: "Policy" };
  const panels = Object.fromEntries(Object.entries(titles).map(([name, title]) => [name, panel(title, { paths: [path] })]));
  let form = null;
  function draw({ request, datasets }) {
    const drawn = { takes: expected(request), program: programView(request.program), terms: terms(request), policy: findings(request) };
    for (const [name, one] of Object.entries(drawn)) redrawn(panels[name].body, () => show(panels[name].body, one));
    // A form that somebody fills in stays, until there is something else to decide about.
    const now = JSON.stringify([request.state, request.manifest, request.program?.digest, datasets.map((one) => [one.name, one.source, one.fault])]);
    if (now === form) return;
    form = now;
    show(panels.decide.body, decisionForm(request, datasets, decided));
  }
  return { elements: Object.values(panels).map((one) => one.element), draw };
}

/** Panels of a request's privacy, visits and receipts; `heard(request)` tells them what the request says by now. */
function recordParts(session, path, signal) {
  const [visitsPath, receiptsPath] = [`/v1/visits?session=${session}`, `/v1/receipts?session=${session}`];
  const [spent, visits, receipts] = [panel("Privacy", { paths: [path] }), panel("Visits", { paths: [visitsPath] }), panel("Receipts", { paths: [receiptsPath] })];
  const verified = verification(session, path, signal);
  const known = { request: null, receipts: null };
  function told(what) {
    Object.assign(known, what);
    if (known.request === null || known.receipts === null) return;
    verified.paint(known.receipts.length, known.request.log_head);
    filled(spent.body, () => privacy(known.request, known.receipts, signal));
  }
  followed(visits.body, whereWritten(() => all(visitsPath, { signal }), signal), visitsTable, signal, EVERY_MS);
  followed(receipts.body, whereWritten(() => all(receiptsPath, { signal }), signal), (found) => {
    told({ receipts: found });
    return [receiptsTable(found), h("p", { class: "note" }, "The service that keeps them made these checks when each came.")];
  }, signal, EVERY_MS);
  return { elements: [spent.element, visits.element, receipts.element, verified.element], heard: (request) => told({ request }) };
}

/** The page; it is read again every few seconds until `signal`. */
export function requestPage(session, signal) {
  const path = `/v1/requests/${encodeURIComponent(session)}`;
  const title = h("h1", null, session); // it stays where the request cannot be read
  const head = h("div");
  const place = h("div", null, title, head);
  const records = recordParts(encodeURIComponent(session), path, signal);
  const parts = requestParts(path, (request) => {
    known.decisions += 1;
    show(head, drawn({ request, datasets: known.datasets }));
  });
  const known = { decisions: 0, datasets: [] };
  function drawn(found) {
    known.datasets = found.datasets;
    if (head.nextSibling === null) place.append(...parts.elements, ...records.elements);
    parts.draw(found);
    records.heard(found.request);
    show(title, titled(found.request));
    return heading(found.request);
  }
  const read = async () => {
    const { decisions } = known;
    const [request, datasets] = await Promise.all([get(path, { signal }), all("/v1/datasets", { signal })]);
    return decisions === known.decisions ? { request, datasets } : UNCHANGED; // what was asked for before a decision is older than its answer
  };
  followed(head, read, drawn, signal, EVERY_MS);
  return place;
}
