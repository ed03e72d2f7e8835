"""A local approval policy's verdict on one request. Default deny; knows no file and no storage.

Every rule yields one finding with both sides of the comparison, so that an operator reads all reasons at once.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from math import inf
from typing import Final

from data_holder.policy import EvidenceRules, Limits, Policy, Programs, SessionRules
from data_holder.rule_finding import RuleFinding
from data_holder.snp_findings import snp_findings
from shared.claims.manifest import EvidencePolicy, GpuRules, Manifest
from shared.claims.operators import ALLOWED
from shared.claims.privacy import Privacy
from shared.claims.program import ProgramManifest
from shared.claims.snp_rules import ANY_SNP
from shared.claims.tdx_policy import TdxPolicy

OWNERS: Final = "session.owners"
UNKNOWN_OWNER: Final = "a key that the orchestrator does not name"


def evaluate(
    policy: Policy, manifest: Manifest, program: ProgramManifest, holder: str, owner: str | None
) -> list[RuleFinding]:
    """Every rule's verdict on one request; the request is allowed when all are `ok` (see `allowed`).

    Args:
        owner: fingerprint of the key that signed the manifest; None: not known.
    """
    return [
        *_program_rules(policy.programs, manifest, program),
        *_limit_rules(policy.limits, manifest, holder),
        _subset("output.release_to", manifest.output.release_to, policy.output.release_to),
        *_session_rules(policy.session, manifest, owner),
        *_evidence_rules(policy.evidence, manifest),
        *_peer_rules(policy.evidence, {one.holder: one.evidence for one in manifest.roster if one.holder != holder}),
    ]


def allowed(findings: list[RuleFinding]) -> bool:
    """Whether every rule agreed; no findings at all is a refusal."""
    return bool(findings) and all(finding.ok for finding in findings)


def _program_rules(rules: Programs, manifest: Manifest, program: ProgramManifest) -> Iterator[RuleFinding]:
    listed = manifest.program in rules.digests
    groups = sorted({ALLOWED.get(name, f"not allowed: {name}") for name in program.operators})
    fits = bool(rules.operators) and set(groups) <= set(rules.operators)
    yield RuleFinding(
        "programs", listed or fits,
        expected=f"digest among {len(rules.digests)} listed, or operators within [{', '.join(rules.operators)}]",
        got=f"digest {manifest.program[:16]}…, operators within [{', '.join(groups)}]",
    )  # fmt: skip


def _limit_rules(rules: Limits, manifest: Manifest, holder: str) -> Iterator[RuleFinding]:
    steps = manifest.steps_for(holder)
    yield _at_most("limits.max_rounds", manifest.rounds, rules.max_rounds, required=True)
    floor = rules.min_privacy_floor
    yield RuleFinding(
        "limits.min_privacy_floor", floor is not None and manifest.privacy_floor >= floor,
        expected="a limit in the policy" if floor is None else f">= {floor}", got=str(manifest.privacy_floor),
    )  # fmt: skip
    if rules.max_steps_per_visit is not None:
        yield _at_most("limits.max_steps_per_visit", steps, rules.max_steps_per_visit)
    if rules.max_records_per_visit is not None:
        records = steps * manifest.training.batch_size
        yield _at_most("limits.max_records_per_visit", records, rules.max_records_per_visit)
    if rules.loss_decimals is not None:
        yield _at_most("limits.loss_decimals", manifest.loss_decimals, rules.loss_decimals)
    if rules.max_epsilon is not None:
        yield _privacy_rule(rules.max_epsilon, rules.max_delta, manifest.privacy)


def _privacy_rule(most: float, delta: float, asked: Privacy | None) -> RuleFinding:
    enough = asked is not None and asked.max_epsilon is not None and asked.max_epsilon <= most and asked.delta <= delta
    got = (
        "no privacy"
        if asked is None
        else "no max_epsilon"
        if asked.max_epsilon is None
        else f"epsilon <= {asked.max_epsilon:g}"
    )
    return RuleFinding(
        "limits.max_epsilon", enough, expected=f"privacy with epsilon <= {most:g} at delta <= {delta:g}",
        got=got if asked is None else f"{got} at delta {asked.delta:g}",
    )  # fmt: skip


def _session_rules(rules: SessionRules, manifest: Manifest, owner: str | None) -> Iterator[RuleFinding]:
    everybody = len(manifest.roster)
    if rules.owners:
        got = UNKNOWN_OWNER if owner is None else f"key {owner}"
        yield RuleFinding(OWNERS, owner in rules.owners, expected=f"key {' or '.join(rules.owners)}", got=got)
    if rules.names:
        matched = any(fnmatch.fnmatchcase(manifest.name, pattern) for pattern in rules.names)
        yield RuleFinding("session.names", matched, expected=f"one of {', '.join(rules.names)}", got=manifest.name)
    yield _subset("session.travel_modes", (manifest.travel_mode,), rules.travel_modes)
    if rules.min_parties is not None:
        # Not the roster's length: beyond the quorum a name there may stand for nobody, or for one that never approves.
        parties = manifest.quorum or everybody
        ok = parties >= rules.min_parties
        yield RuleFinding("session.min_parties", ok, expected=f">= {rules.min_parties}", got=str(parties))
    if manifest.continuation == "remaining" or rules.continuation:
        yield RuleFinding(
            "session.continuation", rules.continuation or manifest.continuation != "remaining",
            expected="any" if rules.continuation else "absent or refused", got=manifest.continuation or "absent",
        )  # fmt: skip
    if rules.required_parties:
        yield _required_parties(rules.required_parties, manifest)
    shares, least = manifest.recovery_shares or everybody, min(rules.min_recovery_shares or everybody, everybody)
    if shares != everybody or rules.min_recovery_shares is not None:
        yield RuleFinding("session.min_recovery_shares", shares >= least, expected=f">= {least}", got=str(shares))


def _required_parties(required: tuple[str, ...], manifest: Manifest) -> RuleFinding:
    """A quorum below the roster names nobody, so that each of its holders can be missing."""
    pinned = {name for name, _, key in (one.partition(":") for one in required) if key}
    names = [f"{one.holder}:{one.key}" if one.holder in pinned else one.holder for one in manifest.roster]
    known = {*names, *(entry.holder for entry in manifest.roster)}
    quorum = manifest.quorum or len(names)
    got = f"[{', '.join(names)}]" + (f", any {quorum} of them enough" if quorum < len(names) else "")
    ok = set(required) <= known and quorum == len(names)
    return RuleFinding("session.required_parties", ok, f"[{', '.join(required)}] never absent", got)


def _evidence_rules(rules: EvidenceRules, manifest: Manifest) -> Iterator[RuleFinding]:
    yield _no_emulated(rules, {*manifest.orchestrator_evidence.roots, *manifest.gpu_evidence.roots})
    oldest = max(manifest.orchestrator_evidence.max_age_s, manifest.gpu_evidence.max_age_s)
    yield _at_most("evidence.max_age_s", oldest, rules.max_age_s)
    asked, listed = manifest.orchestrator_evidence, rules.orchestrator_measurements
    # Also where the policy lists none: what a manifest names replaces the trust folder's reference values, and its owner wrote it.
    finding = _subset("evidence.orchestrator_measurements", asked.measurements, listed)
    expected = finding.expected if listed else "none: the trust folder's reference values decide"
    yield RuleFinding(finding.rule, finding.ok and (bool(asked.measurements) or not listed), expected, finding.got)
    if rules.tdx.machines:
        yield _machines(rules, asked)
    # With AMD's root alone no TDX quote counts, and such a manifest cannot say anything of TDX.
    if asked.tdx != rules.tdx and {"INTEL", "EMULATED"} & set(asked.roots):
        yield from _tdx_rules(rules.tdx, asked.tdx)
    if (asked.snp or ANY_SNP) != rules.snp and {"AMD", "EMULATED"} & set(asked.roots):
        yield from snp_findings(rules.snp, asked.snp or ANY_SNP)
    if manifest.gpu_evidence.gpu is not None or rules.gpu != GpuRules():
        yield from _gpu_rules(rules.gpu, manifest.gpu_evidence.gpu or GpuRules())


def _peer_rules(rules: EvidenceRules, peers: dict[str, EvidencePolicy]) -> Iterator[RuleFinding]:
    """What the other holders need not prove: each gets a share of the session's key, and the model where it is released to holders. Only
    faults are told, with whose they are; this holder's own entry says what others want of it."""
    for name, asked in peers.items():
        for finding in _peer(rules, asked):
            if not finding.ok:
                yield RuleFinding(
                    finding.rule, ok=False, expected=finding.expected, got=f"{finding.got} of holder {name}"
                )


def _peer(rules: EvidenceRules, asked: EvidencePolicy) -> Iterator[RuleFinding]:
    yield _no_emulated(rules, set(asked.roots))
    yield _at_most("evidence.max_age_s", asked.max_age_s, rules.max_age_s)
    yield _subset("evidence.holder_measurements", asked.measurements, rules.holder_measurements)
    if {"INTEL", "EMULATED"} & set(asked.roots):
        # What is stricter than the manifest's defaults is meant for the orchestrator; a roster's entry has no reason to be so.
        for said, usual in zip(_tdx_rules(rules.tdx, asked.tdx), _tdx_rules(TdxPolicy(), asked.tdx), strict=True):
            yield usual if usual.ok else said
    if {"AMD", "EMULATED"} & set(asked.roots):
        snp = asked.snp or ANY_SNP
        usually = {finding.rule: finding.ok for finding in snp_findings(ANY_SNP, snp)}
        yield from (said for said in snp_findings(rules.snp, snp) if not usually.get(said.rule, True))


def _no_emulated(rules: EvidenceRules, roots: set[str]) -> RuleFinding:
    return RuleFinding(
        "evidence.allow_emulated", rules.allow_emulated or "EMULATED" not in roots,
        expected="any roots" if rules.allow_emulated else "no EMULATED roots", got=", ".join(sorted(roots)),
    )  # fmt: skip


def _gpu_rules(allowed: GpuRules, asked: GpuRules) -> Iterator[RuleFinding]:
    """Nothing about the GPU may be laxer than this holder allows."""
    yield _subset("evidence.gpu.modes", asked.modes, allowed.modes)
    if allowed.devices:
        finding = _subset("evidence.gpu.devices", asked.devices, allowed.devices)
        yield RuleFinding(finding.rule, finding.ok and bool(asked.devices), finding.expected, finding.got)
    for name in ("firmware_without_id", "expired_reference_values", "certificate_hold"):
        yield _switch(f"evidence.gpu.{name}", getattr(asked, name), getattr(allowed, name))
    enough = asked.revocation in (allowed.revocation, "required")
    yield RuleFinding("evidence.gpu.revocation", enough, expected=allowed.revocation, got=asked.revocation)


def _tdx_rules(allowed: TdxPolicy, asked: TdxPolicy) -> Iterator[RuleFinding]:
    """Nothing about a TDX platform may be laxer than this holder allows."""
    most, given = ({str(s): inf if d is None else d for s, d in p.tcb_statuses.items()} for p in (allowed, asked))
    most["UpToDate"] = inf  # TOML has no null, and manifests that let the best status run out are refused at submission
    yield RuleFinding(
        "evidence.tdx.tcb_statuses", all(days <= most.get(status, -1) for status, days in given.items()),
        expected=f"within [{_graces(most)}]", got=f"[{_graces(given)}]",
    )  # fmt: skip
    advisories = set(allowed.rejected_advisories) <= set(asked.rejected_advisories)
    yield RuleFinding(
        "evidence.tdx.rejected_advisories", advisories,
        expected=f"at least [{', '.join(allowed.rejected_advisories)}]", got=f"[{', '.join(asked.rejected_advisories)}]",
    )  # fmt: skip
    for name in ("allow_smt", "allow_dynamic_platform", "allow_cached_keys"):
        yield _switch(f"evidence.tdx.{name}", getattr(asked, name), getattr(allowed, name))
    yield _subset("evidence.tdx.service_tds", asked.service_tds, allowed.service_tds)
    least, number = allowed.minimum_evaluation, asked.minimum_evaluation
    yield RuleFinding("evidence.tdx.minimum_evaluation", number >= least, expected=f">= {least}", got=str(number))


def _machines(rules: EvidenceRules, asked: EvidencePolicy) -> RuleFinding:
    """A root of AMD's lets pass what no list of TDX machines names, unless there is one of AMD's machines, which has its own rule."""
    found = _subset("evidence.tdx.machines", asked.tdx.machines, rules.tdx.machines)
    amd = "AMD" in asked.roots and not rules.snp.machines
    named = found.ok and bool(asked.tdx.machines) and not amd
    return RuleFinding(found.rule, named, found.expected, f"{found.got}, any SEV-SNP machine" if amd else found.got)


def _graces(statuses: dict[str, float]) -> str:
    return ", ".join(s if days == inf else f"{s} for {days:g} days" for s, days in statuses.items())


def _switch(rule: str, asked: bool, allowed: bool) -> RuleFinding:
    return RuleFinding(rule, allowed or not asked, "either" if allowed else "no", "yes" if asked else "no")


def _at_most(rule: str, value: int, limit: int | None, *, required: bool = False) -> RuleFinding:
    ok = value <= limit if limit is not None else not required
    return RuleFinding(rule, ok, expected="a limit in the policy" if limit is None else f"<= {limit}", got=str(value))


def _subset(rule: str, inner: tuple[str, ...], outer: tuple[str, ...]) -> RuleFinding:
    return RuleFinding(
        rule, set(inner) <= set(outer), expected=f"within [{', '.join(outer)}]", got=f"[{', '.join(inner)}]"
    )
