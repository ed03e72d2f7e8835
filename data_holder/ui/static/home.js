/* The holder's first page: what asks, its data as counts and commitments, its policy, visits, receipts, bytes per link. */

import { all, get } from "./common/api.js";
import { badge, digest, facts, fold, h, table } from "./common/dom.js";
import { bytes, count, moment } from "./common/format.js";
import { followed, panel, problemCode } from "./common/panel.js";
import { EVERY_MS, identity, whereWritten } from "./identity.js";

export const STATES = { waiting: "warn", approved: "good", refused: "bad", vetoed: "bad", ended: "quiet" };
const SHOWN = 100;

/** What a row is known by; of one that is damaged, with what of it. */
const marked = (one, name) => (one.fault ? h("span", null, name, " ", badge("damaged", "bad"), ": ", one.fault) : name);
const link = (session) => h("a", { href: `#/requests/${encodeURIComponent(session)}` }, session);

const named = (one) => h("a", { href: `#/requests/${encodeURIComponent(one.session)}` }, one.name, one.name ? " " : null, digest(one.session, 18));

function requestsTable(rows) {
  const ordered = [...rows].sort((a, b) => (b.state === "waiting") - (a.state === "waiting") || b.received_at - a.received_at);
  return table("Sessions that ask to train on this holder's data, the waiting ones first", [
    ["Session", (one) => marked(one, named(one)), "wide"], ["State", (one) => badge(one.state, STATES[one.state] ?? "quiet")],
    ["Program", (one) => one.program_name ?? "not fetched yet"], ["Owner's key", (one) => digest(one.owner)], ["Dataset", (one) => one.dataset ?? "–"],
    ["Policy", (one) => verdict(one.findings)], ["Decided by", (one) => one.decided_by ?? "nobody yet"], ["Waits for", (one) => one.waiting_for ?? ""], ["Came", (one) => moment(one.received_at), "tight"],
  ], ordered, "Nothing has asked yet.");
}

/** What the local policy says of a request, in a word. */
export function verdict(findings) {
  if (findings.length === 0) return "no policy";
  const bad = findings.filter((one) => !one.ok).length;
  return bad === 0 ? badge("all rules hold", "good") : badge(`${count(bad, "rule")} broken`, "bad");
}

/** The newest of a long list that mixes sessions, and all that `stay`; the newest first. */
function newest(rows, at, stay = () => false) {
  return [...rows].reverse().sort((a, b) => at(b) - at(a)).filter((one, place) => place < SHOWN || stay(one));
}

/** The newest receipts and every one that fails, each with all of the holder's own checks. */
export function receiptsTable(rows) {
  return table(`Receipts of this holder's visits; each was checked against what this holder itself remembers${rows.length > SHOWN ? `; the last ${SHOWN} of ${rows.length}, and all that fail` : ""}`, [
    ["Session", (one) => marked(one, link(one.session))], ["Leaf", (one) => one.index, "number"], ["Visit", (one) => digest(one.visit, 18)], ["Outcome", (one) => one.outcome],
    ["Backend", (one) => badge(one.backend, one.backend === "EMULATED" ? "loud" : "good")], ["Verified", (one) => badge(one.verified ? "holds" : "FAILS", one.verified ? "good" : "bad")],
    ["Checks", checks],
  ], newest(rows, (one) => one.closed_at, (one) => !one.verified), undefined, (one) => `${one.session} ${one.index}`);
}

function checks(one) {
  const bad = one.checks.filter((check) => !check.ok);
  return fold(bad.length === 0 ? count(one.checks.length, "check") : `${count(bad.length, "check")} FAIL`, h("ul", { class: "checks" },
    [...bad, ...one.checks.filter((check) => check.ok)].map((check) => h("li", null, badge(check.ok ? "holds" : "FAILS", check.ok ? "good" : "bad"), " ", check.check, check.detail ? `: ${check.detail}` : ""))));
}

/** Visits, the newest first. */
export function visitsTable(rows) {
  return table(`Visits of the GPU to this holder${rows.length > SHOWN ? `; the last ${SHOWN} of ${rows.length}` : ""}`, [
    ["Session", (one) => marked(one, link(one.session))], ["Visit", (one) => digest(one.visit, 18)], ["Round", (one) => one.round, "number"], ["Phase", (one) => one.phase], ["Records", (one) => `${one.start} … ${one.start + one.count - 1}`, "tight"],
    ["Bytes", (one) => bytes(one.length), "number"], ["Commitment", (one) => digest(one.commitment)], ["Refused", (one) => (one.refusal ? [one.refusal.detail, " ", problemCode(one.refusal.code)] : "")], ["At", (one) => moment(one.at), "tight"],
  ], newest(rows, (one) => one.at), undefined, (one) => one.visit);
}

function linksFacts(links) {
  return facts([
    ["Records to the GPU", bytes(links.dataset_bytes_to_gpu)], ["Proofs to the GPU", bytes(links.proof_bytes_to_gpu)], ["Records to the orchestrator", bytes(links.dataset_bytes_to_orchestrator)],
    ["All to the GPU", bytes(links.bytes_to_gpu)], ["All to the orchestrator", bytes(links.bytes_to_orchestrator)], ["From the orchestrator", bytes(links.bytes_from_orchestrator)],
  ]);
}

function datasetsTable(rows) {
  return table("Datasets", [["Name", (one) => marked(one, one.name)], ["Place", (one) => h("code", null, one.path)], ["Set by", (one) => one.source], ["Since", (one) => moment(one.added_at), "tight"]], rows);
}

function identityFacts(who) {
  return facts([["Key", digest(who.fingerprint, 24)], ["Orchestrator", who.orchestrator_url], ["Backend", who.backend], ["Approves", who.approve === "policy" ? "by its policy" : "by hand"], ["Sessions", who.sessions]]);
}

function policyView(policy) {
  return h("div", null, facts([["Mode", policy.mode === "policy" ? "decides by policy" : "a person decides"], ["File", policy.path]]),
    policy.problems.map((text) => h("p", { class: "quiet" }, text)), policy.policy ? fold("The policy as loaded", h("pre", { class: "scroller", tabindex: 0 }, JSON.stringify(policy.policy, null, 2))) : null);
}

/** The page; what it shows is read again every few seconds until `signal`, for whoever waits for a request leaves it open. */
export function homePage(identified, signal) {
  const asked = panel("What asks", { paths: ["/v1/requests"], note: "Open one to read what would run, and to decide." });
  const data = panel("Data", { paths: ["/v1/datasets"], note: "Names and places; records are counted, and committed to, when a session is approved. No content is ever shown." });
  const policy = panel("Policy", { paths: ["/v1/policy"] });
  const links = panel("Bytes per link", { paths: ["/v1/links"], note: "Since this service started. Records go to the GPU and to nobody else." });
  const visits = panel("Visits", { paths: ["/v1/visits"] });
  const receipts = panel("Receipts", { paths: ["/v1/receipts"] });
  const who = h("div");
  const list = (path) => () => all(path, { signal });
  const keep = (body, read, draw) => followed(body, read, draw, signal, EVERY_MS);
  keep(who, () => identity(signal), identityFacts);
  keep(asked.body, list("/v1/requests"), requestsTable);
  keep(data.body, list("/v1/datasets"), datasetsTable);
  keep(policy.body, () => get("/v1/policy", { signal }), policyView);
  keep(links.body, () => get("/v1/links", { signal }), linksFacts);
  keep(visits.body, whereWritten(list("/v1/visits"), signal), visitsTable);
  keep(receipts.body, whereWritten(list("/v1/receipts"), signal), receiptsTable);
  return h("div", null, h("h1", null, `Data holder ${identified.name}`), who, asked.element, h("div", { class: "split" }, data.element, policy.element),
    visits.element, receipts.element, links.element);
}
