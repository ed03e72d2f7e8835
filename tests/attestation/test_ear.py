"""Attestation results as tokens: what they claim of each family, what nobody can make them claim, and who may read them."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from shared.attestation.appraisal import Appraisal
from shared.attestation.appraisals import appraise_snp
from shared.attestation.ar4si import EMULATED, PLACES, Tier, overall, tier_of, vector
from shared.attestation.cpu_verifier import CHECKS, CpuPolicy, verify_cpu_evidence
from shared.attestation.ear import PROFILE, claims_set, sign_result
from shared.attestation.gpu_verifier import GpuPolicy
from shared.attestation.policy_id import policy_digest
from shared.attestation.results import Check, CheckStatus, Examination
from shared.attestation.snp_verifier import SnpEndorsements, examine_snp_evidence
from shared.claims.manifest import GpuRules
from shared.claims.tdx_policy import TdxPolicy
from shared.crypto.jws import sign_compact, verify_compact
from shared.errors import BadRequest, VerificationFailed
from tests.attestation.cpu_world import AT, Machine, evidence
from tests.attestation.ear_world import DATA, KEY, gpu, read, tdx, token
from tests.attestation.gpu_evidence_world import EMULATED as EMULATED_GPU
from tests.attestation.gpu_evidence_world import GpuWorld
from tests.attestation.snp_world import AGREED, body, good_chip, platform, signed


@pytest.fixture(scope="module")
def machine() -> Machine:
    return Machine()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> GpuWorld:
    return GpuWorld.make(tmp_path_factory.mktemp("installation"))


def test_round_trip(machine: Machine, world: GpuWorld) -> None:
    result = read(token(gpu(world), replace(tdx(machine), label="cvm:north"), session="s_1"))
    assert (result.accepted, result.emulated, result.issued_at, dict(result.about)) == (
        True,
        True,
        int(AT),
        {"session": "s_1"},
    )
    assert result.claims["eat_profile"] == PROFILE
    assert result.claims["ear.verifier-id"] == {"developer": "GPU Travelling", "build": "test 1"}
    part = result.submodules["gpu"]
    assert part["ear.veraison.annotated-evidence"]["measres"] == "success"
    assert part["eat_nonce"] == base64.urlsafe_b64encode(b"\x5a" * 32).rstrip(b"=").decode()
    assert part["ear.appraisal-policy-id"] == policy_digest(EMULATED_GPU)
    assert [check["name"] for check in part["gput.checks"]] == [c.name for c in gpu(world).examination]
    assert result.submodules["cvm:north"]["ear.veraison.annotated-evidence"]["tdx.tcb_status"] == "UpToDate"


def test_emulated_evidence_is_accepted_with_a_warning_and_never_passes_for_hardware(
    machine: Machine, world: GpuWorld
) -> None:
    for appraisal in (tdx(machine), gpu(world)):
        assert (appraisal.verdict, appraisal.status, appraisal.root_set) == ("accepted", Tier.WARNING, "EMULATED")
        assert appraisal.vector["hardware"] == EMULATED
        assert "runtime-opaque" not in appraisal.vector
        part = read(token(appraisal)).submodules[appraisal.label]
        assert (part["gput.root-set"], part["gput.backend"], part["ear.status"]) == ("EMULATED", "EMULATED", "warning")
        lie = claims_set([appraisal], build="test", at=int(AT))
        lie["submods"][appraisal.label]["ear.trustworthiness-vector"]["hardware"] = 2
        lie["submods"][appraisal.label]["ear.status"] = lie["ear.status"] = "affirming"
        with pytest.raises(VerificationFailed, match="passes for hardware"):
            sign_result(lie, KEY)
        with pytest.raises(VerificationFailed, match="passes for hardware"):
            read(sign_compact(lie, KEY, typ="eat+jwt"))


def test_hardware_that_passed_is_affirmed_and_a_weak_platform_is_warned_of(machine: Machine) -> None:
    genuine = replace(tdx(machine), root_set="INTEL", known_instance=True)
    assert genuine.vector == {
        "instance-identity": 2, "configuration": 2, "executables": 3, "hardware": 2, "runtime-opaque": 2,
    }  # fmt: skip
    assert genuine.status is Tier.AFFIRMING
    weak = replace(genuine, weak_platform=True, known_instance=False)
    assert (weak.vector["hardware"], weak.status) == (32, Tier.WARNING)
    assert "instance-identity" not in weak.vector  # nobody in particular was expected


def test_refused_evidence_is_contraindicated_and_unexpected_evidence_is_nothing(
    machine: Machine, world: GpuWorld
) -> None:
    production = tdx(machine, CpuPolicy())
    assert (production.verdict, production.status, production.vector["hardware"]) == (
        "refused",
        Tier.CONTRAINDICATED,
        97,
    )
    assert tdx(machine, data=bytes(64)).vector["hardware"] == 99
    unbound = tdx(machine, data=None)
    assert (unbound.verdict, unbound.status) == ("refused", Tier.NONE)
    assert "hardware" not in unbound.vector
    other = gpu(world, replace(EMULATED_GPU, measurements=("00" * 48,)))
    assert (other.status, other.vector["executables"]) == (Tier.CONTRAINDICATED, 33)
    stranger = gpu(world, replace(EMULATED_GPU, rules=GpuRules(devices=("00" * 8,))))
    assert (stranger.status, stranger.vector["instance-identity"]) == (Tier.CONTRAINDICATED, 97)
    assert not read(token(other)).accepted


def test_nothing_checked_affirms_nothing() -> None:
    empty = Appraisal("gpu", "gpu-report", Examination(()), (), "NVIDIA", policy_digest(GpuPolicy()), "00" * 32)
    assert (empty.verdict, empty.status, empty.vector) == ("refused", Tier.NONE, {})
    rootless = replace(empty, examination=Examination((Check("layout", CheckStatus.PASS),)), root_set=None)
    assert rootless.verdict == "refused"
    with pytest.raises(BadRequest, match="nothing was appraised"):
        claims_set([], build="test", at=0)
    with pytest.raises(BadRequest, match="one label"):
        claims_set([empty, empty], build="test", at=0)
    result = read(token(empty))
    assert (result.accepted, result.status) == (False, Tier.NONE)


def test_a_failure_cannot_be_tolerated() -> None:
    failed = Examination((Check("root", CheckStatus.PASS), Check("signature", CheckStatus.FAIL, "gpu-signature")))
    pair = ("signature", CheckStatus.FAIL)
    appraisal = Appraisal("gpu", "gpu-report", failed, [pair], "NVIDIA", "sha-256:", "00" * 32)
    assert (appraisal.verdict, appraisal.status, appraisal.vector["hardware"]) == ("refused", Tier.CONTRAINDICATED, 99)
    with pytest.raises(BadRequest):
        verify_compact(token(appraisal) + "x", KEY.public, typ="eat+jwt")


def test_every_check_of_every_recipe_has_its_place(machine: Machine, world: GpuWorld) -> None:
    chip, trust = good_chip(), platform().trust()
    report = signed(body(), chip.key)
    snp = examine_snp_evidence(report, SnpEndorsements((chip.leaf,)), trust=trust, agreed=AGREED, at=AT)
    names = {*CHECKS, *(c.name for c in snp.examination), *(c.name for c in gpu(world).examination)}
    assert names == PLACES.keys()
    assert appraise_snp(snp, report, AGREED, trust.policy).status is Tier.NONE
    whole = appraise_snp(snp, report, AGREED, trust.policy, genuine_only=True)
    assert (whole.verdict, whole.status) == ("accepted", Tier.WARNING)
    unplaced = Examination((Check("layout", CheckStatus.PASS), Check("brand-new", CheckStatus.FAIL)))
    assert vector(unplaced, (), emulated=False, known_instance=False, weak_platform=False)["hardware"] == 99


def test_what_is_weaker_than_passed_weakens_its_claim() -> None:
    def claims(status: CheckStatus, tolerated: bool) -> dict[str, int]:
        found = Examination((Check("root", CheckStatus.PASS), Check("ocsp", status)))
        pairs = [("ocsp", status)] if tolerated else []
        return vector(found, pairs, emulated=False, known_instance=False, weak_platform=False)

    assert claims(CheckStatus.NOT_CHECKED, True) == {"hardware": 2}
    assert claims(CheckStatus.NOT_CHECKED, False) == {}
    assert claims(CheckStatus.EXPIRED, True) == {"hardware": 32}
    assert claims(CheckStatus.EXPIRED, False) == {"hardware": 96}
    assert claims(CheckStatus.FAIL, True) == {"hardware": 96}


def test_tiers_are_the_drafts() -> None:
    edges = {-128: "contraindicated", -97: "contraindicated", -96: "warning", -33: "warning", -32: "affirming", -2: "affirming",
             -1: "none", 0: "none", 1: "none", 2: "affirming", 31: "affirming", 32: "warning", 95: "warning", 96: "contraindicated",
             127: "contraindicated"}  # fmt: skip
    assert {value: tier_of(value).value for value in edges} == edges
    with pytest.raises(ValueError, match="128"):
        tier_of(128)
    assert overall([]) is Tier.NONE
    assert overall([Tier.AFFIRMING, Tier.NONE, Tier.WARNING]) is Tier.NONE
    assert overall([Tier.CONTRAINDICATED, Tier.NONE]) is Tier.CONTRAINDICATED


def test_policies_have_ids_of_their_own() -> None:
    policies = [
        GpuPolicy(), EMULATED_GPU, GpuPolicy(device="00" * 8), CpuPolicy(), CpuPolicy(platforms=frozenset({"b", "a"})),
        CpuPolicy(tdx=TdxPolicy(tcb_statuses={"UpToDate": None, "OutOfDate": 5})), AGREED,
    ]  # fmt: skip
    assert len({policy_digest(policy) for policy in policies}) == len(policies)
    assert policy_digest(CpuPolicy(platforms=frozenset({"a", "b"}))) == policy_digest(policies[4])


def test_what_verifiers_mint_carries_its_appraisal(machine: Machine, world: GpuWorld) -> None:
    cvm = verify_cpu_evidence(
        evidence(machine.raw(DATA)), report_data=DATA, role="orchestrator", roots=machine.roots,
        reference=machine.reference, policy=machine.policy, at=AT, collateral=machine.store,
    )  # fmt: skip
    assert [c.name for c in cvm.appraisal.examination if c.status is CheckStatus.PASS] == list(cvm.checks)
    assert world.verify().appraisal.verdict == cvm.appraisal.verdict == "accepted"
