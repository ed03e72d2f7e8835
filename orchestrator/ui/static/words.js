/* What phases, facts and states are called, and how loudly. Pure: knows no element. */

export const PHASES = {
  DRAFT: "quiet", AWAITING_APPROVAL: "warn", READY: "info", RUNNING: "info", PAUSED: "warn", COMPLETED: "good", FAILED: "bad", CANCELLED: "quiet",
};

export const ENDED = new Set(["COMPLETED", "FAILED", "CANCELLED"]);

/** Kinds of a timeline's spans, in their order, and what they mean. */
export const SPANS = [
  ["setup", "setup: the GPU is attested, program and model go in; checkpoints"],
  ["grant", "grant: plan, new epoch and key, offer"],
  ["provision", "provision: the GPU is at the holder"],
  ["verify", "fence and verify"],
  ["train", "train"],
  ["validate", "validate"],
  ["scrub", "scrub and receipt"],
  ["waiting", "nothing measured: waiting, or between steps"],
  ["broken", "recalled, rejected, quarantined or lost"],
];

const DURATIONS = {
  plan: "grant", grant: "grant", offer: "grant", provision: "provision", report: "verify", fence: "verify", verify: "verify",
  ahead: "grant", train: "train", validate: "validate", verdict: "validate", epilogue: "scrub", close: "scrub",
};

/** The kind of span that one of a visit's `durations` belongs to. */
export function spanOf(name) {
  return DURATIONS[name] ?? "waiting";
}

/** The kind of span that a visit without `durations` is in after this fact. */
export const AFTER_FACT = {
  planned: "grant", granted: "grant", offered: "provision", reported: "verify", fenced: "verify", verified: "train", trained: "validate",
  validated: "scrub", scrubbed: "scrub",
};

export const BROKEN = new Set(["recalled", "rejected", "quarantined", "lost"]);

/** The facts that end a visit. */
export const ENDS = ["closed", ...BROKEN];

/** EMULATED or not: the badge's text and kind. */
export function backendBadge(backend) {
  if (backend === "EMULATED") return ["EMULATED", "loud"];
  return backend ? [`REAL ${backend}`, "good"] : ["not attested yet", "quiet"];
}
