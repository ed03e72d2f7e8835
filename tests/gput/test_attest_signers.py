"""An orchestrator's attested key in files: refused for everything that a channel refuses it for, and accepted else."""

from __future__ import annotations

import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from gpu_agent.hardware.root_of_trust import unsigned_of
from gput.attest.documents import judge
from gput.attest.trust import Trust, Wish
from shared.attestation.channel import report_data
from shared.attestation.evidence_files import pieces_of
from shared.attestation.gpu_report import STATEMENT_KEY_PROFILE
from shared.attestation.nonces import gpu_nonce
from shared.attestation.snp_trust import SnpProfile, SnpTrust
from shared.canonical import cbor_bytes, json_bytes, json_value, sha256
from shared.claims.event_log import Event
from shared.claims.manifest import EvidencePolicy
from shared.crypto import ecc
from shared.crypto.cose import p384_point, sign1
from shared.wire.spdm import get_measurements
from shared.wire.visit import GpuEvidence
from tests.attestation import snp_world as snp
from tests.attestation.channel_world import (
    MACHINE,
    MANIFEST,
    ORCHESTRATOR,
    OTHER_SESSION,
    SESSION,
    b64,
    orchestrator_runtime,
)
from tests.attestation.cpu_world import AT, measured
from tests.attestation.gpu_evidence_world import Factory

DEVICE = Factory()
WISH = Wish(at=AT, allow_emulated=True)
LEAF = DEVICE.leaf.key
KEY_OF_BOOT = [STATEMENT_KEY_PROFILE, bytes(32), bytes(range(32))]


def certified(payload: object, key: ec.EllipticCurvePrivateKey = LEAF) -> str:
    return b64(sign1(cbor_bytes(payload), key, kid=sha256(p384_point(LEAF.public_key()))))


def gpu_evidence(statement_key: str) -> GpuEvidence:
    nonce = gpu_nonce(b"\x11" * 32, b"\x22" * 48, 0, ORCHESTRATOR.public)
    data = unsigned_of(DEVICE.firmware, get_measurements(nonce), b"r" * 32)
    return GpuEvidence(
        report=b64(data + ecc.sign(LEAF, data)), chain=DEVICE.pem(), challenge="11" * 32, th2="22" * 48, epoch=0,
        statement_key=statement_key,
    )  # fmt: skip


GPU = gpu_evidence(certified(KEY_OF_BOOT))


def attested(raw: bytes, gpu: GpuEvidence, events: tuple[Event, ...] | None = None, **beside: Any) -> bytes:
    """The key as receipts keep it; `events`: what its machine measured, else what it should."""
    own = measured(raw) if events is None else events
    evidence = MACHINE.evidence("orchestrator", report_data("orchestrator", raw), own)
    item = {"runtime_data": b64(raw), "evidence": evidence.model_dump(), "gpu_evidence": gpu.model_dump(), **beside}
    return json.dumps(item).encode()


def told(item: bytes, wish: Wish = WISH) -> list[str]:
    """Codes of the refusals ("" where there is none): the key, its machine, its GPU."""
    known = SnpProfile(measurement=snp.MEASUREMENT.hex())
    own = SnpTrust(snp.platform().roots, {"orchestrator": (known,)})
    found = judge(pieces_of(item, "key.json"), Trust(DEVICE.trust, MACHINE.trust(), own), wish)
    return [one.refusal.code if one.refusal else "" for one in found]


def of(gpu: GpuEvidence = GPU, **runtime: Any) -> list[str]:
    return told(attested(orchestrator_runtime(gpu_evidence=gpu, **runtime), gpu))


ACCEPTED = ["", "", ""]


def test_a_key_that_its_machine_and_gpu_speak_for() -> None:
    assert of() == ACCEPTED
    assert (
        told(attested(orchestrator_runtime(gpu_evidence=GPU), GPU, signing_key=ORCHESTRATOR.public.hex())) == ACCEPTED
    )
    assert of(gpu_evidence("")) == ACCEPTED  # as in a channel: the quote covers that there is none


def test_its_time_is_the_verifiers() -> None:
    for not_after, code in ((AT, "channel-lifetime"), (AT - 31_536_000, "channel-lifetime"), (AT + 1, "")):
        assert of(not_after=int(not_after)) == [code, "", ""]
    found = judge(pieces_of(attested(orchestrator_runtime(gpu_evidence=GPU, not_after=int(AT)), GPU), "key"),
                  Trust(DEVICE.trust, MACHINE.trust(), snp.platform().trust()), WISH)[0]  # fmt: skip
    assert found.examination.find("lifetime").status == "expired"
    assert found.examination.find("role").reason == f"orchestrator of session {SESSION}, manifest {MANIFEST}"


def test_its_time_is_at_most_the_policys() -> None:
    item = attested(orchestrator_runtime(gpu_evidence=GPU, not_after=int(AT) + 86_400 + 61), GPU)
    assert told(item) == ["channel-lifetime", "", ""]
    week = EvidencePolicy(roots=("EMULATED",), max_age_s=7 * 86_400)
    assert told(item, Wish(at=AT, allow_emulated=True, policy=week)) == ACCEPTED


def test_its_machine_measured_this_very_session_and_key() -> None:
    raw = orchestrator_runtime(gpu_evidence=GPU)
    for other in (
        measured(orchestrator_runtime(gpu_evidence=GPU, session=OTHER_SESSION)),
        measured(orchestrator_runtime(gpu_evidence=GPU, signing_key=bytes(32))),
        (Event(register=3, type="started", content={"what": "test"}),),
    ):
        assert told(attested(raw, GPU, other)) == ["channel-event", "", ""]
    assert told(attested(raw, GPU, ())) == ACCEPTED  # nothing was measured at all: there is nothing to ask


def test_its_log_gives_the_quoted_register() -> None:
    item = json.loads(attested(orchestrator_runtime(gpu_evidence=GPU), GPU))
    item["evidence"]["event_log"] = ""
    assert told(json.dumps(item).encode())[0] == "event-log"


def test_its_gpu_certified_the_key_of_its_statements() -> None:
    stranger = ec.generate_private_key(ec.SECP384R1())
    for wrong, code in (
        (certified(KEY_OF_BOOT, stranger), "bad-signature"),
        (certified(["gput/something-else", *KEY_OF_BOOT[1:]]), "gpu-statement-key"),
        (certified([STATEMENT_KEY_PROFILE, b"short", KEY_OF_BOOT[2]]), "malformed-statement-key"),
        (b64(b"no signed message"), "malformed-cose"),
    ):
        assert of(gpu_evidence(wrong)) == [code, "", ""]


def test_it_is_an_orchestrators_and_the_one_that_is_written_beside() -> None:
    holder = json_value(orchestrator_runtime(gpu_evidence=GPU))
    assert isinstance(holder, dict)
    raw = json_bytes({**holder, "role": "holder"})
    assert told(attested(raw, GPU))[0] == "channel-role"
    raw = orchestrator_runtime(gpu_evidence=GPU)
    assert told(attested(raw, GPU, signing_key="00" * 32)) == ["gpu-evidence-mismatch", "", ""]


def test_a_machine_without_a_register_for_it_is_not_asked_what_it_measured() -> None:
    raw, chip = orchestrator_runtime(gpu_evidence=GPU), snp.good_chip()
    item = json.loads(attested(raw, GPU))
    report = snp.signed(snp.body(report_data=report_data("orchestrator", raw)), chip.key)
    item["evidence"] = snp.platform().evidence(report, chip.leaf).model_dump()
    assert told(json.dumps(item).encode()) == ACCEPTED
