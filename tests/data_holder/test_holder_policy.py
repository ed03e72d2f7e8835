"""Every policy rule: what it allows, what it denies; default deny."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from data_holder.policy import Policy
from data_holder.policy_rules import allowed, evaluate
from shared.claims.archive import open_archive
from shared.claims.manifest import EvidencePolicy, GpuRules, OutputPolicy
from shared.claims.privacy import Privacy
from shared.claims.snp_rules import SnpRules
from shared.claims.tdx_policy import TdxPolicy
from tests.data_holder.holder_world import ARCHIVE, PROGRAM, make_manifest

PROGRAM_MANIFEST = open_archive(ARCHIVE).manifest
GOOD = """
[programs]
operators = ["arithmetic", "reductions"]
[limits]
max_rounds = 5
min_privacy_floor = 8
[output]
release_to = ["owner"]
[evidence]
allow_emulated = true
"""
MEASURED = "ab" * 48


def verdict(text: str, **manifest: Any) -> list[str]:
    """Names of the rules that deny."""
    policy = Policy.model_validate(tomllib.loads(text))
    findings = evaluate(policy, make_manifest("ef" * 32, **manifest), PROGRAM_MANIFEST, "north", None)
    assert allowed(findings) == all(finding.ok for finding in findings)
    return [finding.rule for finding in findings if not finding.ok]


def with_rules(extra: str) -> str:
    return GOOD + extra


DEVICE = "0123456789abcdef"


def gpu(**rules: Any) -> EvidencePolicy:
    return EvidencePolicy(roots=("EMULATED",), gpu=GpuRules(**rules))


def tdx(**rules: Any) -> dict[str, Any]:
    return {"orchestrator_evidence": EvidencePolicy(roots=("EMULATED",), tdx=TdxPolicy(**rules))}


CHIP = "ab" * 64
LEVELS = "[evidence.snp.minimum_tcb.Genoa]\nsnp = 23\n"
"""No other product counts then."""


def snp(*roots: str, **rules: Any) -> dict[str, Any]:
    """Of the orchestrator."""
    return {"orchestrator_evidence": EvidencePolicy.model_validate({"roots": roots or ("AMD",), "snp": rules})}


def asked_of(holder: str, *roots: str, **more: Any) -> dict[str, Any]:
    """A manifest of genuine hardware, which asks something else of one of its holders: of `north`, whose policy it is, or of another."""
    entries = make_manifest("ef" * 32).roster
    changed = EvidencePolicy.model_validate({"roots": roots or ("INTEL",), **more})
    genuine = EvidencePolicy(roots=("INTEL", "AMD"))
    return {
        "orchestrator_evidence": genuine, "gpu_evidence": EvidencePolicy(roots=("NVIDIA",)),
        "roster": tuple(
            entry.model_copy(update={"evidence": changed if entry.holder == holder else genuine}) for entry in entries
        ),
    }  # fmt: skip


GENUINE = GOOD.replace("allow_emulated = true", "allow_emulated = false")
WEAK = {"UpToDate": None, "OutOfDate": 30}
MACHINE = "ef" * 16


PRIVATE = GOOD.replace("[limits]", "[limits]\nmax_epsilon = 3.0")


def privacy(most: float | None, delta: float = 1e-6) -> Privacy:
    return Privacy(max_grad_norm=1.0, noise_multiplier=2.0, delta=delta, max_epsilon=most)


ROWS: list[tuple[str, str, dict[str, Any], list[str]]] = [
    ("the good policy", GOOD, {}, []),
    ("rounds at the limit", GOOD, {"rounds": 5}, []),
    ("too many rounds", GOOD, {"rounds": 6}, ["limits.max_rounds"]),
    ("floor too low", GOOD, {"privacy_floor": 7}, ["limits.min_privacy_floor"]),
    ("released to holders", GOOD, {"output": OutputPolicy(release_to=("owner", "holders"))}, ["output.release_to"]),
    ("released to nobody", GOOD, {"output": OutputPolicy(release_to=())}, []),
    ("operators outside", GOOD.replace('"arithmetic", ', ""), {}, ["programs"]),
    ("listed by digest", GOOD.replace('operators = ["arithmetic", "reductions"]', f'digests = ["{PROGRAM}"]'), {}, []),
    (
        "another digest", GOOD.replace('operators = ["arithmetic", "reductions"]', f'digests = ["{"00" * 48}"]'), {},
        ["programs"],
    ),
    ("emulated not allowed", GOOD.replace("allow_emulated = true", "allow_emulated = false"), {}, ["evidence.allow_emulated"]),
    ("steps at the limit", with_rules("[session]\n").replace("[limits]", "[limits]\nmax_steps_per_visit = 5"), {}, []),
    ("too many steps", GOOD.replace("[limits]", "[limits]\nmax_steps_per_visit = 4"), {}, ["limits.max_steps_per_visit"]),
    ("records at the limit", GOOD.replace("[limits]", "[limits]\nmax_records_per_visit = 20"), {}, []),
    ("too many records", GOOD.replace("[limits]", "[limits]\nmax_records_per_visit = 19"), {}, ["limits.max_records_per_visit"]),
    ("coarse losses", GOOD.replace("[limits]", "[limits]\nloss_decimals = 4"), {}, []),
    ("fine losses", GOOD.replace("[limits]", "[limits]\nloss_decimals = 2"), {}, ["limits.loss_decimals"]),
    ("privacy asked for and given", PRIVATE, {"privacy": privacy(3.0)}, []),
    ("privacy asked for and not given", PRIVATE, {}, ["limits.max_epsilon"]),
    ("more epsilon than allowed", PRIVATE, {"privacy": privacy(3.1)}, ["limits.max_epsilon"]),
    ("privacy without a limit", PRIVATE, {"privacy": privacy(None)}, ["limits.max_epsilon"]),
    ("a limit at a coarser delta", PRIVATE, {"privacy": privacy(3.0, delta=1e-4)}, ["limits.max_epsilon"]),
    ("that delta allowed", PRIVATE.replace("max_epsilon", "max_delta = 1e-4\nmax_epsilon"), {"privacy": privacy(3.0, delta=1e-4)}, []),
    ("privacy not asked for and given", GOOD, {"privacy": privacy(None)}, []),
    ("name matches", with_rules('[session]\nnames = ["study-*"]'), {}, []),
    ("name differs", with_rules('[session]\nnames = ["trial-*"]'), {}, ["session.names"]),
    ("enough parties", with_rules("[session]\nmin_parties = 2"), {}, []),
    ("too few parties", with_rules("[session]\nmin_parties = 3"), {}, ["session.min_parties"]),
    ("parties that need not take part", with_rules("[session]\nmin_parties = 2"), {"quorum": 1}, ["session.min_parties"]),
    ("a quorum of enough", with_rules("[session]\nmin_parties = 2"), {"quorum": 2}, []),
    ("may go on without it, and nobody was asked", GOOD, {"continuation": "remaining"}, ["session.continuation"]),
    ("may go on without it, as allowed", with_rules("[session]\ncontinuation = true"), {"continuation": "remaining"}, []),
    ("may not go on at all", GOOD, {"continuation": "refused"}, []),
    ("party present", with_rules('[session]\nrequired_parties = ["south"]'), {}, []),
    ("party absent", with_rules('[session]\nrequired_parties = ["west"]'), {}, ["session.required_parties"]),
    ("party not needed", with_rules('[session]\nrequired_parties = ["south"]'), {"quorum": 1}, ["session.required_parties"]),
    ("party needed, as all are", with_rules('[session]\nrequired_parties = ["south"]'), {"quorum": 2}, []),
    ("one holder can give the key away", GOOD, {"recovery_shares": 1}, ["session.min_recovery_shares"]),
    ("one holder can, as allowed", with_rules("[session]\nmin_recovery_shares = 1"), {"recovery_shares": 1}, []),
    ("all holders together", GOOD, {"recovery_shares": 2}, []),
    ("fewer than asked for", with_rules("[session]\nmin_recovery_shares = 2"), {"recovery_shares": 1}, ["session.min_recovery_shares"]),
    ("all, where there are fewer", with_rules("[session]\nmin_recovery_shares = 3"), {}, []),
    ("fewer than there are", with_rules("[session]\nmin_recovery_shares = 3"), {"recovery_shares": 1}, ["session.min_recovery_shares"]),
    (
        "measurement agreed", GOOD + f'orchestrator_measurements = ["{MEASURED}"]',
        {"orchestrator_evidence": EvidencePolicy(roots=("EMULATED",), measurements=(MEASURED,))}, [],
    ),
    (
        "measurement left open", GOOD + f'orchestrator_measurements = ["{MEASURED}"]', {},
        ["evidence.orchestrator_measurements"],
    ),
    (
        "another measurement", GOOD + f'orchestrator_measurements = ["{MEASURED}"]',
        {"orchestrator_evidence": EvidencePolicy(roots=("EMULATED",), measurements=("cd" * 48,))},
        ["evidence.orchestrator_measurements"],
    ),
    (
        "a measurement and a policy that lists none", GOOD,
        {"orchestrator_evidence": EvidencePolicy(roots=("EMULATED",), measurements=(MEASURED,))},
        ["evidence.orchestrator_measurements"],
    ),
    ("a weak TCB", GOOD, tdx(tcb_statuses=WEAK), ["evidence.tdx.tcb_statuses"]),
    ("a weak TCB, allowed", GOOD + "[evidence.tdx.tcb_statuses]\nOutOfDate = 30",
     tdx(tcb_statuses=WEAK), []),
    ("a weak TCB for longer", GOOD + "[evidence.tdx.tcb_statuses]\nOutOfDate = 30",
     tdx(tcb_statuses={"UpToDate": None, "OutOfDate": 31}), ["evidence.tdx.tcb_statuses"]),
    ("without limit", GOOD + "[evidence.tdx.tcb_statuses]\nOutOfDate = 30",
     tdx(tcb_statuses={"UpToDate": None, "OutOfDate": None}), ["evidence.tdx.tcb_statuses"]),
    ("a service TD", GOOD, tdx(service_tds=(MEASURED,)), ["evidence.tdx.service_tds"]),
    ("a service TD, allowed", GOOD + f'[evidence.tdx]\nservice_tds = ["{MEASURED}"]', tdx(service_tds=(MEASURED,)), []),
    *(
        (f"{rule} left open", GOOD + f"[evidence.tdx]\n{rule} = false", {}, [f"evidence.tdx.{rule}"])
        for rule in ("allow_smt", "allow_dynamic_platform", "allow_cached_keys")
    ),
    ("an advisory left out", GOOD + '[evidence.tdx]\nrejected_advisories = ["INTEL-SA-1"]', {}, ["evidence.tdx.rejected_advisories"]),
    ("old collateral", GOOD + "[evidence.tdx]\nminimum_evaluation = 17", tdx(minimum_evaluation=16), ["evidence.tdx.minimum_evaluation"]),
    ("any machine", GOOD + f'[evidence.tdx]\nmachines = ["{MACHINE}"]', {}, ["evidence.tdx.machines"]),
    ("this machine, and any of AMD's", GOOD + f'[evidence.tdx]\nmachines = ["{MACHINE}"]',
     {"orchestrator_evidence": EvidencePolicy(roots=("INTEL", "AMD"), tdx=TdxPolicy(machines=(MACHINE,)))}, ["evidence.tdx.machines"]),
    ("this machine, and one of AMD's", GOOD + f'[evidence.tdx]\nmachines = ["{MACHINE}"]',
     {"orchestrator_evidence": EvidencePolicy(roots=("AMD",))}, ["evidence.tdx.machines"]),
    ("this machine", GOOD + f'[evidence.tdx]\nmachines = ["{MACHINE}"]', tdx(machines=(MACHINE,)), []),
    ("a stricter platform", GOOD, tdx(allow_smt=False, machines=(MACHINE,), minimum_evaluation=17), []),
    (
        "no TDX platform at all", GOOD + "[evidence.tdx]\nminimum_evaluation = 17",
        {"orchestrator_evidence": EvidencePolicy(roots=("AMD",))}, [],
    ),
    ("genuine hardware", GENUINE, asked_of("south"), []),
    ("another holder's is emulated", GENUINE, asked_of("south", "INTEL", "EMULATED"), ["evidence.allow_emulated"]),
    ("its own is emulated", GENUINE, asked_of("north", "EMULATED"), []),
    ("another holder's is, and may be", GOOD, asked_of("south", "EMULATED"), []),
    ("another holder's weak TCB", GENUINE, asked_of("south", tdx=TdxPolicy(tcb_statuses=WEAK)), ["evidence.tdx.tcb_statuses"]),
    ("its own weak TCB", GENUINE, asked_of("north", tdx=TdxPolicy(tcb_statuses=WEAK)), []),
    ("another holder's weak TCB, allowed", GENUINE + "[evidence.tdx.tcb_statuses]\nOutOfDate = 30",
     asked_of("south", tdx=TdxPolicy(tcb_statuses=WEAK)), []),
    ("an AMD machine's rules for TDX say nothing", GENUINE, asked_of("south", "AMD", tdx=TdxPolicy(tcb_statuses=WEAK)), []),
    ("strict about the orchestrator", GENUINE + "[evidence.tdx]\nallow_smt = false",
     asked_of("south") | {"orchestrator_evidence": EvidencePolicy(roots=("INTEL",), tdx=TdxPolicy(allow_smt=False))}, []),
    ("another holder's named program", GENUINE, asked_of("south", measurements=(MEASURED,)), ["evidence.holder_measurements"]),
    ("its named program, allowed", GENUINE + f'holder_measurements = ["{MEASURED}"]', asked_of("south", measurements=(MEASURED,)), []),
    ("the orchestrator's machines are not a holder's", GENUINE + f'[evidence.tdx]\nmachines = ["{MACHINE}"]',
     asked_of("south") | {"orchestrator_evidence": EvidencePolicy(roots=("INTEL",), tdx=TdxPolicy(machines=(MACHINE,)))}, []),
    *(
        (f"SNP: {rule} left open", GOOD + f"[evidence.snp]\n{text}", snp(), [f"evidence.snp.{rule}"])
        for rule, text in {
            "products": 'products = ["Genoa", "Turin"]', "signing_keys": 'signing_keys = ["VCEK"]', "csp_ids": 'csp_ids = ["CN=cloud"]',
            "machines": f'machines = ["{CHIP}"]', "allow_smt": "allow_smt = false",
            "minimum_tcb.Milan": "minimum_tcb = { Milan = { snp = 24 }, Genoa = {}, Turin = {} }",
        }.items()
    ),
    ("SNP: levels left open", GOOD + LEVELS, snp(), ["evidence.snp.products", "evidence.snp.minimum_tcb.Genoa"]),
    ("SNP: the levels that are wanted", GOOD + LEVELS, snp(minimum_tcb={"Genoa": {"snp": 23}}), []),
    ("SNP: any level of a product beside them", GOOD + LEVELS, snp(minimum_tcb={"Genoa": {"snp": 23}, "Milan": {}}),
     ["evidence.snp.products"]),
    ("SNP: another product at high levels", GOOD + LEVELS, snp(minimum_tcb={"Turin": {"snp": 99}}), ["evidence.snp.products"]),
    ("SNP: a product without levels is not asked", GOOD + '[evidence.snp]\nproducts = ["Genoa"]', snp(minimum_tcb={"Genoa": {}}), []),
    ("SNP: another holder's product beside them", GENUINE + LEVELS,
     asked_of("south", "AMD", snp={"minimum_tcb": {"Genoa": {"snp": 23}, "Milan": {}}})
     | snp("AMD", minimum_tcb={"Genoa": {"snp": 23}}), []),
    ("SNP: a migration agent", GOOD, snp(allow_migration_agent=True), ["evidence.snp.allow_migration_agent"]),
    ("SNP: CXL memory", GOOD, snp(allow_cxl=True), ["evidence.snp.allow_cxl"]),
    ("SNP: CXL memory, allowed", GOOD + "[evidence.snp]\nallow_cxl = true", snp(allow_cxl=True), []),
    ("SNP: older firmware than wanted", GOOD + "[evidence.snp.minimum_tcb.Milan]\nsnp = 24\nmicrocode = 219",
     snp(minimum_tcb={"Milan": {"snp": 24, "microcode": 218}}), ["evidence.snp.minimum_tcb.Milan"]),
    ("SNP: newer firmware", GOOD + "[evidence.snp.minimum_tcb.Milan]\nsnp = 24", snp(minimum_tcb={"Milan": {"snp": 25}}), []),
    ("SNP: that product does not count", GOOD + "[evidence.snp.minimum_tcb]\nMilan.snp = 24\nGenoa = {}", snp(products=["Genoa"]), []),
    ("SNP: no rules with Intel alone", GOOD + f'[evidence.snp]\nmachines = ["{CHIP}"]', snp("INTEL"), []),
    ("SNP: this machine", GOOD + f'[evidence.snp]\nmachines = ["{CHIP}"]', snp(machines=[CHIP]), []),
    ("this machine of either kind", GOOD + f'tdx.machines = ["{MACHINE}"]\nsnp.machines = ["{CHIP}"]',
     {"orchestrator_evidence": EvidencePolicy.model_validate(
         {"roots": ("INTEL", "AMD"), "tdx": {"machines": [MACHINE]}, "snp": {"machines": [CHIP]}})}, []),
    ("SNP: another holder's CXL memory", GENUINE, asked_of("south", "AMD", snp={"allow_cxl": True}), ["evidence.snp.allow_cxl"]),
    ("SNP: strict about the orchestrator", GENUINE + "[evidence.snp]\nallow_smt = false",
     asked_of("south", "AMD") | snp("AMD", allow_smt=False), []),
    ("a GPU as strict as can be", GOOD, {"gpu_evidence": gpu()}, []),
    ("a GPU passed through otherwise", GOOD, {"gpu_evidence": gpu(modes=("spt", "ppcie"))}, ["evidence.gpu.modes"]),
    ("allowed", GOOD + '[evidence.gpu]\nmodes = ["spt", "ppcie"]', {"gpu_evidence": gpu(modes=("ppcie",))}, []),
    *(
        (f"lax: {rule}", GOOD, {"gpu_evidence": gpu(**{rule: True})}, [f"evidence.gpu.{rule}"])
        for rule in ("firmware_without_id", "expired_reference_values", "certificate_hold")
    ),
    ("lax, allowed", GOOD + "[evidence.gpu]\ncertificate_hold = true", {"gpu_evidence": gpu(certificate_hold=True)}, []),
    ("revocation left open", GOOD + '[evidence.gpu]\nrevocation = "required"', {}, ["evidence.gpu.revocation"]),
    ("revocation asked for", GOOD + '[evidence.gpu]\nrevocation = "required"', {"gpu_evidence": gpu(revocation="required")}, []),
    ("stricter than asked", GOOD, {"gpu_evidence": gpu(revocation="required")}, []),
    ("any device", GOOD + f'[evidence.gpu]\ndevices = ["{DEVICE}"]', {}, ["evidence.gpu.devices"]),
    ("another device", GOOD + f'[evidence.gpu]\ndevices = ["{DEVICE}"]', {"gpu_evidence": gpu(devices=("00" * 8,))},
     ["evidence.gpu.devices"]),
    ("this device", GOOD + f'[evidence.gpu]\ndevices = ["{DEVICE}"]', {"gpu_evidence": gpu(devices=(DEVICE,))}, []),
    (
        "default deny", "", {},
        ["programs", "limits.max_rounds", "limits.min_privacy_floor", "output.release_to", "evidence.allow_emulated"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "manifest", "denies"), ROWS, ids=[row[0] for row in ROWS])
def test_each_rule(name: str, text: str, manifest: dict[str, Any], denies: list[str]) -> None:
    assert verdict(text, **manifest) == denies


def test_a_fault_of_another_holders_says_whose() -> None:
    policy = Policy.model_validate(tomllib.loads(GENUINE))
    asked = make_manifest("ef" * 32, **asked_of("south", "EMULATED"))
    (fault,) = [finding for finding in evaluate(policy, asked, PROGRAM_MANIFEST, "north", None) if not finding.ok]
    assert (fault.expected, fault.got) == ("no EMULATED roots", "EMULATED of holder south")


def test_every_rule_has_a_row_that_it_denies() -> None:
    denied = {rule for *_, rules in ROWS for rule in rules}
    assert denied >= {
        "programs", "limits.max_rounds", "limits.min_privacy_floor", "limits.max_steps_per_visit", "output.release_to",
        "limits.max_records_per_visit", "limits.loss_decimals", "limits.max_epsilon", "session.names", "session.min_parties",
        "session.required_parties", "session.min_recovery_shares", "session.continuation",
        "evidence.allow_emulated", "evidence.orchestrator_measurements", "evidence.holder_measurements", "evidence.gpu.modes",
        "evidence.gpu.devices", "evidence.gpu.firmware_without_id", "evidence.gpu.expired_reference_values",
        "evidence.gpu.certificate_hold", "evidence.gpu.revocation", "evidence.tdx.tcb_statuses",
        "evidence.tdx.rejected_advisories", "evidence.tdx.allow_smt", "evidence.tdx.allow_dynamic_platform",
        "evidence.tdx.allow_cached_keys", "evidence.tdx.machines", "evidence.tdx.service_tds", "evidence.tdx.minimum_evaluation",
        *(f"evidence.snp.{name}" for name in SnpRules.model_fields if name != "minimum_tcb"), "evidence.snp.minimum_tcb.Milan",
    }  # fmt: skip
