"""Whether a genuine SEV-SNP report is what was wanted: guest policy, patch levels, endorser, machine, code. Knows no certificate chain.

Steps of the verifier's recipe that need a policy or an expectation:

    11  product                             16  VMPL
    12  least patch levels                  17  identity and author keys
    13  endorser: kinds of leaf, clouds     18  machine allow-list
    14  debug bit                           19  report data
    15  guest policy: SMT, agent, CXL       20  measurements: one profile as a whole
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from shared.attestation.results import Recipe
from shared.attestation.snp_certificates import Leaf
from shared.attestation.snp_report import GuestPolicy, SigningKey, SnpReport, Tcb, parse_tcb
from shared.attestation.snp_trust import SnpPolicy, SnpProfile
from shared.claims.snp_rules import SnpRules, TcbMinimum
from shared.errors import BadRequest, VerificationFailed

REPORT_DATA_BYTES: Final = 64


@dataclass(frozen=True)
class Expectation:
    """What this very report must say. None: nothing is expected and the check stays open; no profile at all accepts nothing.

    `machines`: the channel's own allow-list of chip ids, beside the rules'; empty means any.
    """

    report_data: bytes | None = None
    profiles: tuple[SnpProfile, ...] | None = None
    machines: frozenset[str] = frozenset()


NOTHING_EXPECTED: Final = Expectation()


def machine_of(report: SnpReport, leaf: Leaf | None) -> str:
    """The chip's id, 128 hex digits: the VCEK's, which a host cannot mask, else the report's; "" where nothing names it."""
    named = (leaf.hwid if leaf is not None else b"") or report.chip_id
    return named.hex() if any(named) else ""


def appraise(
    recipe: Recipe, report: SnpReport, leaf: Leaf | None, policy: SnpPolicy, agreed: SnpRules, expected: Expectation
) -> None:
    """Add the checks of steps 11 to 20, by the verifier's own policy and by what the parties agreed on. Without a leaf, what needs one is
    not checked."""
    both = (policy, agreed)
    _appraise_leaf(recipe, report, leaf, both)
    with recipe.step("debug"):
        if report.policy & GuestPolicy.DEBUG:
            raise _refused("the guest is debuggable: its host can read and change it", "cvm-debug", "off", "on")
    with recipe.step("guest-policy"):
        for rules in both:
            _check_guest_policy(report.policy, rules)
    with recipe.step("vmpl"):
        _check_vmpl(report.vmpl, policy.max_vmpl)
    with recipe.step("identity-keys"):
        _check_digest("id key", policy.id_key_digests, report.id_key_digest)
        author = report.author_key_digest if report.author_key_enabled else bytes(48)
        _check_digest("author key", policy.author_key_digests, author)
    with recipe.step("machine"):
        _check_machine(machine_of(report, leaf), (policy.machines, agreed.machines, expected.machines))
    if expected.report_data is None:
        recipe.not_checked("report-data", "nothing-expected", "no report data was given to compare with")
    else:
        with recipe.step("report-data"):
            _check_report_data(report, expected.report_data)
    if expected.profiles is None:
        recipe.not_checked("measurements", "nothing-expected", "no reference values were given to compare with")
    else:
        with recipe.step("measurements"):
            _check_profiles(report, expected.profiles)


def _appraise_leaf(recipe: Recipe, report: SnpReport, leaf: Leaf | None, both: tuple[SnpRules, ...]) -> None:
    if leaf is None:
        for name in ("product", "minimum-tcb", "endorser"):
            recipe.not_checked(name, "snp-leaf-missing", "there is no leaf to judge it by")
        return
    with recipe.step("product"):
        for rules in both:
            if leaf.product not in rules.products:
                wanted = ", ".join(rules.products)
                raise _refused("the product is not accepted", "snp-product-policy", wanted, leaf.product)
    with recipe.step("minimum-tcb"):
        for rules in both:
            _check_minimum(report, leaf, rules)
    with recipe.step("endorser"):
        for rules in both:
            _check_endorser(leaf, rules)


def _check_endorser(leaf: Leaf, rules: SnpRules) -> None:
    if leaf.kind.name not in rules.signing_keys:
        wanted = ", ".join(rules.signing_keys)
        raise _refused("this kind of leaf is not accepted", "snp-endorser", wanted, leaf.kind.name)
    if leaf.kind is SigningKey.VLEK and rules.csp_ids and leaf.csp_id not in rules.csp_ids:
        raise _refused("the VLEK is another cloud's", "snp-csp", ", ".join(sorted(rules.csp_ids)), leaf.csp_id)


def _missed(least: TcbMinimum, tcb: Tcb) -> list[str]:
    """Components below the minimum."""
    levels = {name: getattr(tcb, name) for name in TcbMinimum.model_fields}
    return [name for name, level in levels.items() if level is not None and level < getattr(least, name)]


def _check_minimum(report: SnpReport, leaf: Leaf, rules: SnpRules) -> None:
    if not rules.minimum_tcb:
        return
    least = rules.minimum_tcb.get(leaf.product)
    if least is None:  # who named levels for one product means no machine of another to pass with any
        raise VerificationFailed(
            f"no least patch level was agreed for {leaf.product}, and for others one was",
            code="snp-minimum-tcb",
            expected=f"levels for {', '.join(sorted(rules.minimum_tcb))}",
            got=leaf.product,
            remedy=f"name {leaf.product}'s least levels in minimum_tcb as well, all 0 where any will do",
        )
    # The launch TCB too: a guest that older firmware launched may have been tampered with before the update.
    for name, raw in (("reported", report.reported_tcb), ("launch", report.launch_tcb)):
        tcb = parse_tcb(raw, leaf.product)
        if missed := _missed(least, tcb):
            raise VerificationFailed(
                f"the {name} TCB is below the minimum in {', '.join(missed)}",
                code="snp-minimum-tcb",
                expected=", ".join(f"{part} {level}" for part, level in least.model_dump().items()),
                got=str(tcb),
                remedy="update the machine's firmware and launch the guest anew",
            )


def _check_vmpl(level: int, least: int) -> None:
    if level > least:
        raise VerificationFailed(
            "the report speaks for too low a privilege",
            code="snp-vmpl",
            expected=f"at most {least}",
            got=str(level),
            remedy="ask for it at that level; where an SVSM beneath the guest is meant, raise max_vmpl in the trust folder's "
            "reference.json (snp.policy)",
        )


def _check_guest_policy(guest: GuestPolicy, rules: SnpRules) -> None:
    bits = (
        (GuestPolicy.SMT, rules.allow_smt, "SMT"),
        (GuestPolicy.MIGRATE_MA, rules.allow_migration_agent, "a migration agent"),
        (GuestPolicy.CXL_ALLOW, rules.allow_cxl, "CXL memory"),
    )
    for bit, allowed, what in bits:
        if guest & bit and not allowed:
            raise _refused(f"the guest's policy allows {what}", "snp-guest-policy", f"no {what}", f"{int(guest):#x}")


def _check_digest(what: str, accepted: tuple[str, ...], got: bytes) -> None:
    if accepted and got.hex() not in accepted:
        raise _refused(
            f"the guest's {what} is not accepted", "snp-identity-key", " | ".join(sorted(accepted)), got.hex()
        )


def _check_machine(machine: str, lists: Iterable[Collection[str]]) -> None:
    for allowed in lists:
        if allowed and machine not in allowed:
            got = machine or "hidden: the chip id is masked and a VLEK names none"
            raise _refused("the machine is not on the allow-list", "cvm-platform", ", ".join(sorted(allowed)), got)


def _check_report_data(report: SnpReport, expected: bytes) -> None:
    if len(expected) != REPORT_DATA_BYTES:
        raise BadRequest(f"report data has {REPORT_DATA_BYTES} bytes, got {len(expected)}", code="bad-report-data")
    if not hmac.compare_digest(report.report_data, expected):
        got = report.report_data.hex()
        raise _refused("the report does not cover these bytes", "quote-report-data", expected.hex(), got)


def _check_profiles(report: SnpReport, profiles: tuple[SnpProfile, ...]) -> None:
    differ = [profile.mismatches(report) for profile in profiles]
    if not all(differ):
        return  # at least one profile matches as a whole
    near = next(((p, names) for p, names in zip(profiles, differ, strict=True) if "measurement" not in names), None)
    remedy = "compare the builds; take over new reference values only after reviewing them"
    if near is not None:
        profile, names = near
        raise VerificationFailed(
            f"the code is known, but {', '.join(names)} of the guest is not what goes with it",
            code="cvm-measurement",
            expected=", ".join(f"{name} {getattr(profile, name)}" for name in names),
            got=", ".join(f"{name} {_shown(getattr(report, name))}" for name in names),
            remedy=remedy,
        )
    raise VerificationFailed(
        "the measured code is not what is accepted",
        code="cvm-measurement",
        expected=" | ".join(profile.measurement for profile in profiles) or "no reference value is configured",
        got=report.measurement.hex(),
        remedy=remedy,
    )


def _shown(value: bytes | int) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _refused(why: str, code: str, expected: str, got: str) -> VerificationFailed:
    return VerificationFailed(why, code=code, expected=expected, got=got)
