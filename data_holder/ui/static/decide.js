/* The form in which an operator decides on a request, and the commands that decide the same. What it sends the holder's service signs. */

import { curl, post } from "./common/api.js";
import { announce, command, digest, fold, h, show } from "./common/dom.js";
import { problemBox } from "./common/panel.js";

const MAY = { waiting: ["approve", "refuse"], approved: ["veto"], refused: [], vetoed: [], ended: [] };
const WORDS = {
  approve: "I have read what would run and agree to exactly this manifest.",
  refuse: "This holder takes no part in this session.",
  veto: "Withdraw for good: a visit not yet fenced is recalled, no other follows. What was trained before stays in the model.",
};

const named = (verb) => verb[0].toUpperCase() + verb.slice(1);

/** Names that a request can give, as the service takes them: settings may name a dataset otherwise, and then it is used only where they, or the policy, say so. */
const NAMEABLE = /^[a-z0-9][a-z0-9._-]{0,62}$/;

/** What may be chosen. The first is what is chosen at first: the one way that names none comes last. */
const offered = (datasets) => [
  ...datasets.filter((one) => one.source !== "withdrawn" && one.fault === null && NAMEABLE.test(one.name)).map((one) => h("option", { value: one.name }, one.name)),
  h("option", { value: "" }, "as the policy or the settings say"),
];

/** What is chosen, and `said(verb)`: the one body of that decision, for the button and for the commands. */
function choices(request, datasets, approves) {
  const dataset = h("select", { id: "dataset" }, offered(datasets));
  const sizes = h("input", { id: "statistics", type: "checkbox", checked: true });
  const reason = h("input", { id: "reason", type: "text", maxlength: 500, autocomplete: "off" });
  const element = h("div", { class: "row" }, approves ? h("label", null, "Dataset ", dataset) : null,
    approves ? h("label", null, sizes, "Say how large values are, in powers of ten, and which classes are there") : null,
    h("label", null, "Reason, which everybody in the session reads ", reason));
  const said = (verb) => ({
    manifest: request.manifest, reason: reason.value,
    ...(verb === "approve" ? { ...(dataset.value ? { dataset: dataset.value } : {}), statistics: sizes.checked } : {}),
  });
  return { element, said };
}

/** The form; `redo(request)` hears what the service answered. */
export function decisionForm(request, datasets, redo) {
  const verbs = MAY[request.state] ?? [];
  const after = request.state === "refused" ? " A refusal stands; the owner can submit the session anew." : "";
  if (verbs.length === 0) return h("p", { class: "quiet" }, `Nothing is left to decide: ${request.state}.${after}`);
  const { element, said } = choices(request, datasets, verbs.includes("approve"));
  const sure = h("input", { id: "sure", type: "checkbox" });
  const answer = h("div");
  const buttons = verbs.map((verb) => h("button", { type: "button", class: verb === "approve" ? "main" : "danger", "aria-describedby": `means-${verb}`, onclick: () => act(verb) }, named(verb)));
  async function act(verb) {
    if (!sure.checked) {
      show(answer, h("p", { role: "alert", class: "problem" }, "Tick the box first: a decision is signed and cannot be unsaid."));
      sure.focus();
      return;
    }
    for (const button of buttons) button.disabled = true;
    try {
      redo(await post(`/v1/requests/${request.session}/${verb}`, said(verb)));
      announce(`Done: ${verb}`);
    } catch (problem) {
      show(answer, problemBox(problem));
      for (const button of buttons) button.disabled = false;
    }
  }
  const same = h("div");
  const retell = () => show(same, verbs.flatMap((verb) => commands(request.session, verb, said(verb))));
  retell();
  return h("div", { class: "decide", oninput: retell }, verbs.map((verb) => h("p", { id: `means-${verb}` }, h("strong", null, `${named(verb)}: `), WORDS[verb])),
    element, h("label", null, sure, "I decide on manifest ", digest(request.manifest, 16)), h("div", { class: "row" }, buttons), answer, fold("The same as commands", same));
}

/** A word that a shell leaves as it is. */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function commands(session, verb, body) {
  const line = [`gput party ${verb} ${session} --manifest ${body.manifest}`];
  if (body.dataset) line.push(`--dataset ${quoted(body.dataset)}`);
  if (body.statistics === false) line.push("--no-statistics");
  if (body.reason) line.push(`--reason ${quoted(body.reason)}`);
  return [command(line.join(" ")), command(curl(`/v1/requests/${session}/${verb}`, "POST", body))];
}
