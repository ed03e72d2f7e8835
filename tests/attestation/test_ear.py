"""Attestation results as tokens: what they claim of each family, what nobody can make them claim, and who may read them."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from shared.attestation.appraisal import Appraisal, policy_digest
from shared.attestation.appraisals import appraise_gpu, appraise_snp, appraise_tdx
from shared.attestation.ar4si import EMULATED, PLACES, Tier, overall, tier_of, vector
from shared.attestation.cpu_verifier import CHECKS, CpuPolicy, examine_cpu_evidence, verify_cpu_evidence
from shared.attestation.ear import PROFILE, AttestationResult, claims_set, read_result, sign_result
from shared.attestation.gpu_verifier import GpuPolicy
from shared.attestation.results import Check, CheckStatus, Examination
from shared.attestation.snp_verifier import SnpEndorsements, examine_snp_evidence
from shared.canonical import json_bytes
from shared.claims.manifest import GpuRules
from shared.claims.tdx_policy import TdxPolicy
from shared.crypto.jws import parse_compact, sign_compact, verify_compact
from shared.crypto.signing import PartyKey
from shared.errors import BadRequest, VerificationFailed
from tests.attestation.cpu_world import AT, Machine, evidence
from tests.attestation.gpu_evidence_world import EMULATED as EMULATED_GPU
from tests.attestation.gpu_evidence_world import GpuWorld
from tests.attestation.snp_world import AGREED, body, good_chip, platform, signed

KEY = PartyKey.generate(lambda size: b"\x07" * size)
DATA = bytes(range(64))


@pytest.fixture(scope="module")
def machine() -> Machine:
    return Machine()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> GpuWorld:
    return GpuWorld.make(tmp_path_factory.mktemp("installation"))


def tdx(machine: Machine, policy: CpuPolicy | None = None, data: bytes | None = DATA) -> Appraisal:
    raw, policy = machine.raw(DATA), policy or machine.policy
    found = examine_cpu_evidence(
        evidence(raw), report_data=data, role="orchestrator", roots=machine.roots, reference=machine.reference,
        policy=policy, at=AT, collateral=machine.store,
    )  # fmt: skip
    return appraise_tdx(found, raw, policy)


def gpu(world: GpuWorld, policy: GpuPolicy = EMULATED_GPU, **changes: Any) -> Appraisal:
    report = world.report()
    return appraise_gpu(world.examine(report, policy=policy, **changes), report, policy)


def token(*appraisals: Appraisal, **about: str) -> str:
    return sign_result(claims_set(appraisals, build="test 1", at=int(AT), about=about), KEY)


def read(text: str) -> AttestationResult:
    return read_result(text, KEY.public, at=AT)


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


# ------------------------------------------------------------------ forgery


def test_another_key_another_type_another_time(machine: Machine) -> None:
    good = token(tdx(machine))
    with pytest.raises(VerificationFailed, match="another") as caught:
        read_result(good, PartyKey.generate().public, at=AT)
    assert caught.value.code == "token-key"
    with pytest.raises(VerificationFailed, match="typ is another"):
        verify_compact(good, KEY.public, typ="JWT")
    for at, age in ((AT - 100, None), (AT + 1000, 999.0)):
        with pytest.raises(VerificationFailed) as late:
            read_result(good, KEY.public, at=at, max_age_s=age)
        assert late.value.code == "result-time"
    with pytest.raises(TypeError):
        AttestationResult(Tier.AFFIRMING, 0, {}, {}, {})
    with pytest.raises(TypeError):
        replace(read(good), status=Tier.AFFIRMING)


def test_no_bit_of_a_token_is_free(machine: Machine) -> None:
    good = token(tdx(machine, data=None))
    begun, tried = time.monotonic(), 0
    for position in range(0, len(good), max(1, len(good) // 200)):
        for other in ("A", "b", "0", "-", ".", "="):
            if good[position] != other:
                tried += 1
                with pytest.raises((BadRequest, VerificationFailed)):
                    read(good[:position] + other + good[position + 1 :])
    assert tried > 800
    assert time.monotonic() - begun < 20


def b64(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json_bytes(value)
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def zoo() -> Iterator[str]:
    """Texts that are no token of ours."""
    good = sign_compact({"eat_profile": PROFILE}, KEY, typ="eat+jwt")
    head, body, signature = good.split(".")
    yield from (
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        good + ".",
        good + "=",
        good.replace(".", "", 1),
        "x" * (1 << 21),
        "é.é.é",
    )
    none = b64({"alg": "none", "kid": KEY.fingerprint, "typ": "eat+jwt"})
    yield from (f"{none}.{body}.", f"{none}.{body}.{signature}")
    jwk = b64({"alg": "EdDSA", "jwk": {}, "kid": KEY.fingerprint, "typ": "eat+jwt"})
    yield f"{jwk}.{body}.{signature}"
    hmac = b64({"alg": "HS256", "kid": KEY.fingerprint, "typ": "eat+jwt"})
    yield f"{hmac}.{body}.{signature}"
    yield f"{b64(b'[]')}.{body}.{signature}"
    yield f"{b64(json.dumps(json.loads(base64.urlsafe_b64decode(head + '=='))).encode())}.{body}.{signature}"  # with spaces
    yield f"{head}.{b64(b'[' * 50_000 + b']' * 50_000)}.{signature}"
    yield f"{head}.{b64(b'{' + b'nonsense')}.{signature}"


def test_the_zoo_of_tokens() -> None:
    for text in zoo():
        with pytest.raises((BadRequest, VerificationFailed)):
            read(text)


@pytest.mark.parametrize("change", [
    {"iat": "now"}, {"iat": True}, {"iat": 1.5}, {"submods": {}}, {"submods": []}, {"submods": {"gpu": 3}}, {"ear.status": ["warning"]},
    {"ear.status": "affirming"}, {"ear.status": 2}, {"gput.about": None}, {"gput.about": {"session": 3}}, {"eat_profile": "other"},
])  # fmt: skip
def test_a_signed_token_of_another_form_is_refused(machine: Machine, change: dict[str, Any]) -> None:
    claims = claims_set([tdx(machine)], build="test", at=int(AT)) | change
    with pytest.raises((BadRequest, VerificationFailed)):
        read(sign_compact(claims, KEY, typ="eat+jwt"))


@pytest.mark.parametrize("change", [
    {"gput.checks": []}, {"gput.checks": [{"status": ["fail"]}]}, {"gput.checks": [{"status": "fail"}]}, {"gput.verdict": "yes"},
    {"gput.verdict": "refused"}, {"ear.status": "affirming"}, {"ear.trustworthiness-vector": {}}, {"gput.root-set": 3},
    {"ear.trustworthiness-vector": {"hardware": 200}}, {"ear.trustworthiness-vector": {"hardware": True}},
    {"ear.trustworthiness-vector": {"hardware": -33, "executables": 96}},
])  # fmt: skip
def test_a_signed_token_that_claims_more_than_it_bears_out_is_refused(machine: Machine, change: dict[str, Any]) -> None:
    claims = claims_set([tdx(machine)], build="test", at=int(AT))
    claims["submods"]["cvm"] |= change
    with pytest.raises((BadRequest, VerificationFailed)):
        read(sign_compact(claims, KEY, typ="eat+jwt"))


def test_what_is_signed_as_a_token_is_signed_as_nothing_else() -> None:
    text = sign_compact({"a": 1}, KEY, typ="eat+jwt")
    signed, _, _ = text.rpartition(".")
    _, _, signature = parse_compact(text)
    assert KEY.sign_jws(signed.encode()) == signature
    for other in (
        b"",
        b"eyJ",
        b"eyJa\x00.b",
        b'"@method": GET',
        b"\x84\x6aSignature1",
        b"eyJ.a.b",
        b"gput/offer\x00x",
        b"eyJa.b\n",
    ):
        with pytest.raises(BadRequest):
            KEY.sign_jws(other)


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
