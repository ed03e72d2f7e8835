"""What a policy decides about a TDX guest and its machine: attributes, TCB status, advisories, configuration, machines, service TDs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from shared.attestation.cpu_verifier import CpuPolicy, CpuTrust, verify_cpu_evidence
from shared.attestation.results import CheckStatus
from shared.attestation.tdx_appraisal import check_configuration
from shared.canonical import sha384
from shared.claims.manifest import EvidencePolicy
from shared.claims.tdx_policy import TdxPolicy
from shared.errors import VerificationFailed
from tests.adversary.rows import attack
from tests.attestation.cpu_world import AT, Machine, evidence
from tests.attestation.test_cpu_verifier import DATA, MACHINE, QUOTE, RAW, failed, refused, verify

MACHINE5 = Machine("five", 5)
QUOTE5 = MACHINE5.quote(DATA)
OLD_MODULE, OLD_PLATFORM = bytes([1, 1, 2]) + bytes(13), bytes([2, 1, 1]) + bytes(13)
DAY = 86_400


def policy(**tdx: Any) -> CpuTrust:
    return MACHINE.trust(policy=replace(MACHINE.policy, tdx=TdxPolicy(**tdx)))


def policy5(**tdx: Any) -> CpuTrust:
    return MACHINE5.trust(policy=replace(MACHINE5.policy, tdx=TdxPolicy(**tdx)))


# ------------------------------------------------------------------------------------- the guest


@attack("H19", any="stopped: attributes are judged by the policy")
@pytest.mark.parametrize(
    ("bit", "code"),
    [(0, "cvm-debug"), (29, "cvm-migration"), *((bit, "cvm-attributes") for bit in (1, 4, 6, 8, 17, 23, 26, 32, 61))],
)
def test_refused_attribute_bits_are_named(bit: int, code: str) -> None:
    attributes = (1 << 28 | 1 << bit).to_bytes(8, "little")
    failure = refused(code, MACHINE.requote(QUOTE, td_attributes=attributes))
    assert str(bit) in failure.detail


@pytest.mark.parametrize("bit", [16, 18, 22, 27, 30, 31, 62, 63])
def test_accepted_attribute_bits(bit: int) -> None:
    verify(MACHINE.requote(QUOTE, td_attributes=(1 << 28 | 1 << bit).to_bytes(8, "little")))


def test_sept_ve_disable_and_xfam_are_required() -> None:
    refused("cvm-sept-ve", MACHINE.requote(QUOTE, td_attributes=bytes(8)))
    refused("cvm-xfam", MACHINE.requote(QUOTE, xfam=(0x1).to_bytes(8, "little")))
    refused("cvm-xfam", MACHINE.requote(QUOTE, xfam=(0x3 | 1 << 40).to_bytes(8, "little")))


def test_a_service_td_is_refused_unless_the_policy_names_it() -> None:
    bound, other = sha384(b"a migration TD"), sha384(b"another")
    quote = MACHINE5.requote(QUOTE5, tail=QUOTE5.body.tee_tcb_svn + bound)
    for names in ((), (other.hex(),)):
        assert refused("cvm-service-td", quote, trust=policy5(service_tds=names)).got == bound.hex()
    named = policy5(service_tds=(bound.hex(), other.hex()))
    assert "engine" not in verify(quote, trust=named).checks, "the second verifier refuses every service TD"
    forged = bytearray(quote)
    forged[700] ^= 1
    with pytest.raises(VerificationFailed):
        verify(bytes(forged), trust=named)


@pytest.mark.parametrize("offset", [729 - 584, 829 - 584])  # the hashes of the first and the present service TD
def test_the_extended_report_binds_its_service_tds_as_well(offset: int) -> None:
    tail = bytearray(QUOTE5.body.tee_tcb_svn + bytes(885 - 600))
    assert not failed(MACHINE5.requote(QUOTE5, tail=bytes(tail)), trust=MACHINE5.trust())
    tail[offset] = 7
    assert failed(MACHINE5.requote(QUOTE5, tail=bytes(tail)), trust=MACHINE5.trust())["service-td"] == "cvm-service-td"


# ----------------------------------------------------------------------------------- the machine


@attack("H19", any="stopped: the platform's patch level is judged by the policy")
def test_tcb_status_is_judged_by_the_policy() -> None:
    for svn, advisory in ((OLD_MODULE, "EMULATED-SA-00002"), (OLD_PLATFORM, "EMULATED-SA-00001")):
        quote = MACHINE.requote(QUOTE, tee_tcb_svn=svn)
        failure = refused("tcb-status", quote)
        assert (failure.expected, failure.got) == ("UpToDate", f"OutOfDate, {advisory}")
        cvm = verify(quote, trust=policy(tcb_statuses={"UpToDate": None, "OutOfDate": None}))
        assert (cvm.tcb_status, cvm.advisories) == ("OutOfDate", (advisory,))
        open_to = policy(tcb_statuses={"OutOfDate": None}, rejected_advisories=(advisory,))
        assert refused("tcb-advisory", quote, trust=open_to).got == advisory
    refused("tcb-status", trust=policy(tcb_statuses={"OutOfDate": None}))


def test_below_every_level_is_not_supported_whatever_the_policy() -> None:
    everything = policy(tcb_statuses=dict.fromkeys(EVERY_STATUS))
    for svn in (bytes([0, 1, 2]), bytes([2, 1, 0])):
        refused("tcb-unsupported", MACHINE.requote(QUOTE, tee_tcb_svn=svn + bytes(13)), trust=everything)
    refused("tdx-module", MACHINE.requote(QUOTE, tee_tcb_svn=bytes([2, 9, 2]) + bytes(13)), trust=everything)


EVERY_STATUS = (
    "UpToDate", "SWHardeningNeeded", "ConfigurationNeeded", "ConfigurationAndSWHardeningNeeded", "OutOfDate",
    "OutOfDateConfigurationNeeded", "TDRelaunchAdvised", "TDRelaunchAdvisedConfigurationNeeded",
)  # fmt: skip


def test_grace_counts_from_the_date_of_the_level() -> None:
    quote, level = MACHINE.requote(QUOTE, tee_tcb_svn=OLD_PLATFORM), 1_704_067_200.0  # 2024-01-01
    days = int((AT - level) // DAY)
    verify(quote, trust=policy(tcb_statuses={"OutOfDate": days + 1}))
    failure = refused("tcb-grace", quote, trust=policy(tcb_statuses={"OutOfDate": days}))
    assert "2024-01-01" in str(failure.expected)


def test_a_td_launched_under_an_old_module_is_to_be_relaunched() -> None:
    tail = QUOTE5.body.tee_tcb_svn + bytes(48)
    quote = MACHINE5.requote(QUOTE5, tee_tcb_svn=OLD_MODULE, tail=tail)
    assert str(refused("tcb-status", quote, trust=policy5()).got).startswith("TDRelaunchAdvised, ")
    relaunch = policy5(tcb_statuses={"TDRelaunchAdvised": None, "OutOfDate": None})
    assert verify(quote, trust=relaunch).tcb_status == "TDRelaunchAdvised"
    older = MACHINE5.requote(QUOTE5, tail=OLD_MODULE + bytes(48))
    assert verify(older, trust=policy5()).tcb_status == "UpToDate", "what counts is what the TD was launched under"


def test_the_tdx_module_is_the_makers() -> None:
    refused("tdx-module", MACHINE.requote(QUOTE, mrsigner_seam=b"\1" * 48))
    refused("tdx-module", MACHINE.requote(QUOTE, seam_attributes=b"\1" + bytes(7)))
    verify(MACHINE.requote(QUOTE, mr_seam=b"\1" * 48))


def test_machine_allow_lists_know_both_names_of_a_machine() -> None:
    here = verify(RAW).platform_id
    ppid = MACHINE.store.identify(MACHINE.keys.chain, MACHINE.roots.certificates).ppid
    for name in (here, ppid):
        verify(RAW, trust=policy(machines=(name, "11" * 16)))
        verify(RAW, trust=MACHINE.trust(policy=replace(MACHINE.policy, platforms=frozenset({name}))))
    refused("cvm-platform", trust=policy(machines=("11" * 16,)))
    refused("cvm-platform", trust=MACHINE.trust(policy=replace(MACHINE.policy, platforms=frozenset({"00" * 16}))))
    both = replace(MACHINE.policy, platforms=frozenset({here}), tdx=TdxPolicy(machines=("11" * 16,)))
    refused("cvm-platform", trust=MACHINE.trust(policy=both))


def test_what_is_not_allowed_must_be_stated_absent() -> None:
    pck = MACHINE.store.identify(MACHINE.keys.chain, MACHINE.roots.certificates)
    assert (pck.smt, pck.dynamic_platform, pck.cached_keys) == (False, False, False)
    strict = TdxPolicy(allow_smt=False, allow_dynamic_platform=False, allow_cached_keys=False)
    check_configuration(pck, strict)
    for name in ("smt", "dynamic_platform", "cached_keys"):
        for stated in (True, None):
            changed = replace(pck, **{name: stated})
            check_configuration(changed, TdxPolicy())
            with pytest.raises(VerificationFailed) as caught:
                check_configuration(changed, strict)
            assert caught.value.code == "cvm-configuration"


def test_minimum_evaluation() -> None:
    verify(RAW, trust=policy(minimum_evaluation=1))
    assert refused("collateral-evaluation", trust=policy(minimum_evaluation=2)).got == "1"


# ------------------------------------------------------------------------------------ the policy


def test_the_default_policy_is_for_production_and_refuses_emulation() -> None:
    """L10: nothing emulated passes unless somebody says so twice."""
    for default in (CpuPolicy(), CpuPolicy.of(EvidencePolicy(roots=("INTEL", "AMD")), allow_emulated=False)):
        assert ("EMULATED" not in default.roots, default.allow_emulated) == (True, False)
        assert (default.tdx.tcb_statuses, default.tdx.service_tds) == ({"UpToDate": None}, ())
        refused("quote-root-set", trust=MACHINE.trust(policy=default))


@pytest.mark.parametrize(
    "wrong",
    [
        {"tcb_statuses": {}},
        {"tcb_statuses": {"Revoked": None}},
        {"tcb_statuses": {"UpToDate": -1}},
        {"tcb_status": {"UpToDate": None}},
        {"machines": ("short",)},
        {"service_tds": ("00",)},
        {"rejected_advisories": ("not an id",)},
        {"minimum_evaluation": -1},
    ],
)
def test_a_policy_that_says_nothing_or_the_impossible_is_no_policy(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TdxPolicy(**wrong)


def test_nothing_is_tolerated_that_failed() -> None:
    """The only checks that may be other than passed are the two that say less, never one that says no."""
    forged = MACHINE.requote(QUOTE, rtmr3=b"\1" * 48)
    trust = MACHINE.trust()
    options: dict[str, Any] = {
        "report_data": DATA, "role": "orchestrator", "roots": trust.roots, "reference": trust.reference,
        "policy": trust.policy, "at": AT, "collateral": trust.collateral,
    }  # fmt: skip
    cvm = verify_cpu_evidence(evidence(forged), **options)
    assert "event-log" not in cvm.checks
    assert failed(forged) == {"event-log": "event-log-missing"}
    assert CheckStatus.NOT_CHECKED.value == "not-checked"
    with pytest.raises(VerificationFailed):
        verify_cpu_evidence(evidence(forged).model_copy(update={"event_log": "e30="}), **options)
