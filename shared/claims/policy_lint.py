"""Evidence policies that cannot mean what they say: contradictory, without effect, or met by no machine. Knows no evidence.

What one field alone can say is the model's to refuse; here is what fields say together. An error is refused at submission; a warning
may be meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from shared.claims.faults import Finding
from shared.claims.manifest import EvidencePolicy, Manifest
from shared.claims.snp_rules import ANY_SNP, SnpRules
from shared.claims.tdx_policy import TdxPolicy

Side = Literal["gpu", "cpu"]
MAKERS: Final[dict[Side, frozenset[str]]] = {"gpu": frozenset({"NVIDIA"}), "cpu": frozenset({"INTEL", "AMD"})}
EMULATED: Final = "EMULATED"
BEST: Final = "UpToDate"
# Intel counts from 1 about twice a year; a number beyond this is a slip of the pen, and no collateral would ever do.
PLAUSIBLE_EVALUATION: Final = 1000


@dataclass(frozen=True)
class Lint:
    """What was found: errors refuse, warnings are said."""

    errors: tuple[Finding, ...]
    warnings: tuple[Finding, ...]


def lint_manifest(manifest: Manifest) -> Lint:
    """All evidence policies of a manifest, and what they say together."""
    policies: list[tuple[str, EvidencePolicy, Side]] = [
        ("gpu_evidence", manifest.gpu_evidence, "gpu"),
        ("orchestrator_evidence", manifest.orchestrator_evidence, "cpu"),
        *((f"roster.{n}.evidence", entry.evidence, "cpu") for n, entry in enumerate(manifest.roster)),
    ]  # fmt: skip
    errors = tuple(finding for field, policy, side in policies for finding in policy_errors(field, policy, side))
    warnings = [finding for field, policy, side in policies for finding in policy_warnings(field, policy, side)]
    warnings += _warnings_together(policies)
    return Lint(errors, tuple(warnings))


def policy_errors(field: str, policy: EvidencePolicy, side: Side) -> Iterator[Finding]:
    """What is wrong with one policy; `side` says what it is about."""
    yield from _roots(field, policy, side)
    yield from _repeated(field, policy)
    yield from _placeholders(field, policy)
    snp = policy.snp or ANY_SNP
    if side == "gpu":
        if policy.snp is not None:
            yield _without_effect(f"{field}.snp", "rules for an SEV-SNP guest stand in the policy of the GPU",
                                  "Move them to orchestrator_evidence or to the holder's evidence.")  # fmt: skip
        if policy.tdx != TdxPolicy():
            yield _without_effect(f"{field}.tdx", "rules for a TDX platform stand in the policy of the GPU",
                                  "Move them to orchestrator_evidence or to the holder's evidence.")  # fmt: skip
        return
    if policy.tdx != TdxPolicy() and not {"INTEL", EMULATED} & set(policy.roots):
        yield _without_effect(
            f"{field}.tdx", "no root that is named belongs to a TDX platform", "Remove tdx, or name INTEL in roots."
        )
    if policy.tdx.machines and "AMD" in policy.roots and not snp.machines:
        yield Finding(f"{field}.tdx.machines", "beside the TDX machines that are named, AMD in roots lets any SEV-SNP machine pass",
                      "Name INTEL alone in roots, or snp.machines too.", "policy-contradiction")  # fmt: skip
    yield from _snp(field, policy, snp)
    yield from _statuses(f"{field}.tdx", policy.tdx)


def _roots(field: str, policy: EvidencePolicy, side: Side) -> Iterator[Finding]:
    named, makers = set(policy.roots), MAKERS[side]
    if EMULATED in named and len(named) > 1:
        yield Finding(f"{field}.roots", "EMULATED stands beside hardware roots, so that either would do and nothing is proven",
                      f"Name EMULATED alone, or {' and '.join(sorted(makers))} without it.", "policy-contradiction")  # fmt: skip
    elif not named & {*makers, EMULATED}:
        what = "a GPU" if side == "gpu" else "a confidential VM"
        yield Finding(f"{field}.roots", f"no evidence of {what} stands on a root of {', '.join(sorted(named))}",
                      f"Name {' or '.join(sorted(makers))}.", "policy-unsatisfiable")  # fmt: skip


def _repeated(field: str, policy: EvidencePolicy) -> Iterator[Finding]:
    lists: dict[str, tuple[str, ...]] = {
        "roots": policy.roots, "measurements": policy.measurements, "tdx.machines": policy.tdx.machines,
        "tdx.service_tds": policy.tdx.service_tds, "tdx.rejected_advisories": policy.tdx.rejected_advisories,
    }  # fmt: skip
    if policy.snp is not None:
        lists |= {
            f"snp.{name}": getattr(policy.snp, name) for name in ("products", "signing_keys", "csp_ids", "machines")
        }
    if policy.gpu is not None:
        lists |= {"gpu.modes": policy.gpu.modes, "gpu.devices": policy.gpu.devices}
    for name, values in lists.items():
        twice = [value for value, count in Counter(values).items() if count > 1]
        if twice:
            yield Finding(
                f"{field}.{name}", f"{_short(twice[0])} stands in it twice", "Name each once.", "policy-repeated"
            )


def _placeholders(field: str, policy: EvidencePolicy) -> Iterator[Finding]:
    lists: dict[str, tuple[str, ...]] = {
        "measurements": policy.measurements, "tdx.machines": policy.tdx.machines, "tdx.service_tds": policy.tdx.service_tds,
    }  # fmt: skip
    if policy.snp is not None:
        lists["snp.machines"] = policy.snp.machines
    if policy.gpu is not None:
        lists["gpu.devices"] = policy.gpu.devices
    for name, values in lists.items():
        if any(set(value) in ({"0"}, {"f"}) for value in values):
            yield Finding(f"{field}.{name}", f"{_short(next(v for v in values if len(set(v)) == 1))} is what stands where nothing was "
                          "measured or named; no evidence that counts has it",
                          "Put the value that `gput attest inspect` shows, or leave the list out.", "policy-unsatisfiable")  # fmt: skip


def _snp(field: str, policy: EvidencePolicy, snp: SnpRules) -> Iterator[Finding]:
    if policy.snp is not None and not {"AMD", EMULATED} & set(policy.roots):
        yield _without_effect(
            f"{field}.snp", "no root that is named belongs to an SEV-SNP guest", "Remove snp, or name AMD in roots."
        )
    if snp.machines and "INTEL" in policy.roots and not policy.tdx.machines:
        yield Finding(f"{field}.snp.machines", "beside the SEV-SNP machines that are named, INTEL in roots lets any TDX machine pass",
                      "Name AMD alone in roots, or tdx.machines too.", "policy-contradiction")  # fmt: skip
    if snp.csp_ids and "VLEK" not in snp.signing_keys:
        yield _without_effect(f"{field}.snp.csp_ids", "no VLEK counts", "Remove it, or name VLEK in signing_keys.")
    if idle := sorted(set(snp.minimum_tcb) - set(snp.products)):
        yield _without_effect(
            f"{field}.snp.minimum_tcb", f"{', '.join(idle)} does not count", "Remove it, or name it in products."
        )


def _statuses(field: str, policy: TdxPolicy) -> Iterator[Finding]:
    statuses = {str(status): days for status, days in policy.tcb_statuses.items()}
    if BEST not in statuses:
        yield Finding(f"{field}.tcb_statuses", f"{', '.join(statuses)} would be accepted and {BEST} would not",
                      f'Add "{BEST}": null.', "policy-contradiction")  # fmt: skip
    elif statuses[BEST] is not None:
        yield Finding(f"{field}.tcb_statuses.{BEST}", "grace counts from the date of the platform's level: the best status would run out",
                      f'Write "{BEST}": null; grace is for the weaker ones.', "policy-contradiction")  # fmt: skip
    for status, days in statuses.items():
        if status != BEST and days == 0:
            yield Finding(f"{field}.tcb_statuses.{status}", "no days of grace: the date of a weaker level has always passed",
                          "Remove the status, or give it days.", "policy-unsatisfiable")  # fmt: skip
    if policy.minimum_evaluation > PLAUSIBLE_EVALUATION:
        yield Finding(f"{field}.minimum_evaluation", f"no collateral has reached evaluation number {policy.minimum_evaluation}",
                      "Put a tcbEvaluationDataNumber that is published, for instance 17.", "policy-unsatisfiable")  # fmt: skip


def policy_warnings(field: str, policy: EvidencePolicy, side: Side) -> Iterator[Finding]:
    """What may be meant, but weakens a policy or does nothing."""
    idle = set(policy.roots) - {*MAKERS[side], EMULATED}
    if idle and set(policy.roots) & MAKERS[side]:
        yield Finding(
            f"{field}.roots", f"{', '.join(sorted(idle))} has no effect here", "Remove it.", "policy-no-effect"
        )
    if policy.snp is not None and (unnamed := sorted(set(policy.snp.products) - set(policy.snp.counted()))):
        yield Finding(f"{field}.snp.products", f"{', '.join(unnamed)} does not count: no least patch levels are named for it",
                      "Name them in minimum_tcb, or leave it out of products.", "policy-no-effect")  # fmt: skip
    weak = [str(status) for status, days in policy.tdx.tcb_statuses.items() if status != BEST and days is None]
    if side == "cpu" and weak:
        yield Finding(f"{field}.tdx.tcb_statuses", f"{', '.join(weak)} is accepted without limit",
                      "Give days of grace.", "policy-weak")  # fmt: skip
    if side == "cpu" and policy.tdx.service_tds:
        yield Finding(f"{field}.tdx.service_tds", "a service TD can read or move the VM, and the second verifier cannot judge such a quote",
                      "Name one only if you trust it.", "policy-weak")  # fmt: skip
    if policy.gpu is not None and policy.gpu.expired_reference_values:
        yield Finding(f"{field}.gpu.expired_reference_values", "reference values whose signer's certificate has run out count",
                      "Fetch current ones instead.", "policy-weak")  # fmt: skip
    if policy.gpu is not None and policy.gpu.certificate_hold:
        yield Finding(f"{field}.gpu.certificate_hold", "certificates that their maker put on hold count",
                      "Allow it only while the maker says why.", "policy-weak")  # fmt: skip


def _warnings_together(policies: list[tuple[str, EvidencePolicy, Side]]) -> Iterator[Finding]:
    emulated = [field for field, policy, _ in policies if EMULATED in policy.roots]
    if emulated and len(emulated) < len(policies):
        others = [field for field, policy, _ in policies if EMULATED not in policy.roots]
        yield Finding(f"{emulated[0]}.roots", f"EMULATED here while {others[0]} asks for hardware: the whole is worth its weakest part",
                      "Ask for hardware everywhere, or for none.", "policy-mixed")  # fmt: skip


def _without_effect(field: str, reason: str, remedy: str) -> Finding:
    return Finding(field, reason, remedy, "policy-no-effect")


def _short(value: str) -> str:
    return value if len(value) <= 24 else f"{value[:12]}…{value[-8:]}"
