/* The trust tab: what the orchestrator relied on, check by check, how old it is, emulated or real. Knows the API's views. */

import { all, passing } from "./common/api.js";
import { badge, digest, facts, fold, h, show, table } from "./common/dom.js";
import { age, count, duration, moment } from "./common/format.js";
import { UNCHANGED, filled, panel, problemCode, redrawn } from "./common/panel.js";
import { manifestOf } from "./manifest.js";
import { backendBadge } from "./words.js";

const KINDS = { pass: "good", affirming: "good", accepted: "good", warning: "warn", warn: "warn", skip: "quiet", "not-available": "quiet", none: "quiet", fail: "bad", contraindicated: "bad", rejected: "bad" };
const AGES_MS = 5000;
const AGAIN_MS = 2000;
const NOTE = "Evidence that the orchestrator verified and relied on: the GPU's in each of its lives, and each holder's machine, with every channel. "
  + "A result counts by its signed token; gput attest session checks that, this table only reads it.";

const status = (text) => badge(text, KINDS[text] ?? "info");

function checks(one) {
  const odd = one.checks.filter((check) => check.status !== "pass");
  const rows = [...odd, ...one.checks.filter((check) => check.status === "pass")];
  return fold(`${count(one.checks.length, "check")}, ${odd.length === 0 ? "all pass" : `${odd.length} to look at`}`, table(`Checks of ${one.subject}`, [
    ["Check", (check) => check.name], ["Result", (check) => status(check.status)], ["Expected", (check) => check.expected || "–"],
    ["Got", (check) => check.got || "–"], ["Why", (check) => [check.reason, check.code ? [" ", problemCode(check.code)] : ""]], ["What to do", (check) => check.remedy],
  ], rows));
}

/** A badge that goes on to say how old a result is, until it is taken off the page; too old is loud. */
function aging(one, limit, signal) {
  const told = badge("", "quiet", moment(one.at));
  const say = () => {
    const now = Date.now() / 1000;
    told.className = `badge ${limit !== null && now - one.at > limit ? "warn" : "quiet"}`;
    told.textContent = age(one.at, now);
  };
  say();
  const timer = setInterval(() => (told.isConnected ? say() : clearInterval(timer)), AGES_MS); // drawn anew, another one says it
  signal.addEventListener("abort", () => clearInterval(timer));
  return told;
}

function ageOf(one, limit, signal) {
  return [aging(one, limit, signal), limit !== null ? h("span", { class: "quiet" }, `may be ${duration(limit)} old when it is used`) : ""];
}

function policy(subject, manifest) {
  if (!manifest) return null;
  if (subject === "gpu") return manifest.gpu_evidence;
  return manifest.roster.find((one) => `cvm:${one.holder}` === subject)?.evidence ?? null;
}

function results(items, { manifest, boots, signal }) {
  return h("div", null, items.map((one) => h("section", { class: "result", "data-key": one.subject },
    h("h3", null, one.subject === "gpu" ? "The GPU" : one.subject.replace("cvm:", "The machine of "), " ", badge(...backendBadge(one.backend === "HARDWARE" ? one.root_set : one.backend))),
    h("p", { class: "row" }, status(one.verdict), status(one.status), ageOf(one, policy(one.subject, manifest)?.max_age_s ?? null, signal)),
    facts([["Roots expected", policy(one.subject, manifest)?.roots.join(" or ") ?? "as the manifest says"], ["Roots got", one.root_set], ["Evidence", one.kind], ["Life", one.life], ["Boot counter", boots.get(one.signing_key)], ["Signed by", digest(one.signing_key)]]),
    checks(one))));
}

function newest(items) {
  const found = new Map();
  for (const one of items) found.set(one.subject, one);
  return [...found.values()];
}

/** What a later life, or a channel that was opened since, shows itself by. */
function lives(live) {
  const opened = live.facts.filter((fact) => fact.kind === "session" && fact.fact === "life_opened").length;
  return JSON.stringify([opened, live.view.holders.filter((one) => one.channel).map((one) => one.holder)]);
}

function keysTable(keys) {
  return table("Keys", [
    ["Life", (one) => one.life, "tight"], ["Boot counter", (one) => one.boot_counter, "number"], ["Channel with", (one) => (one.holder === "*" ? "none: the life's own introduction" : one.holder)], ["Signing key", (one) => digest(one.signing_key)], ["Evidence", (one) => one.evidence.kind],
  ], keys);
}

/** All results, the newest of each subject first. `about`: manifest, boot counters by signing key, signal. */
function resultsView(items, about) {
  if (items.length === 0) return h("p", { class: "quiet" }, "Nothing was attested yet: that happens when the session starts.");
  const now = newest(items);
  const older = items.filter((one) => !now.includes(one));
  return h("div", null, results(now, about), older.length > 0 ? fold(`${count(older.length, "earlier result")}`, results(older, about)) : null);
}

/** The tab; it is read again when a life or a channel was opened. */
export function trustTab({ path, live, signal, emulated }) {
  const trust = panel("Trust", { paths: [`${path}/attestations`], note: NOTE });
  const keys = panel("Signing keys", { paths: [`${path}/keys`], note: "Keys of each channel and life, and whose evidence speaks for them. Receipts are verified against these." });
  let [seen, shown, busy] = [null, "", false];
  const read = async () => {
    const before = shown;
    [seen, shown] = [null, ""]; // until it is known: what could not be read is read again
    const now = lives(live);
    const [items, found] = await Promise.all([all(`${path}/attestations`, { signal }), all(`${path}/keys`, { signal })]);
    const says = JSON.stringify([items, found]);
    const { says: manifest } = await manifestOf(path, signal);
    [seen, shown] = [now, says];
    if (says === before) return UNCHANGED;
    if (items.some((one) => one.backend === "EMULATED")) emulated(true);
    redrawn(keys.body, () => show(keys.body, keysTable(found)));
    return resultsView(items, { manifest, boots: new Map(found.map((one) => [one.signing_key, one.boot_counter])), signal });
  };
  const update = () => {
    if (busy || lives(live) === seen) return;
    busy = true;
    const again = (problem) => {
      if (passing(problem)) setTimeout(update, AGAIN_MS); // a session that has ended brings no other reason to look again
      throw problem;
    };
    filled(trust.body, () => read().catch(again)).finally(() => {
      busy = false;
      if (seen !== null) update(); // a life may have opened meanwhile
    });
  };
  return { element: h("div", null, trust.element, keys.element), update };
}
