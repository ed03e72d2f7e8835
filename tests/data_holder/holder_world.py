"""A holder's surroundings for tests: an orchestrator and a GPU end with real keys, evidence and records, in this process. Knows no test.

The orchestrator double verifies what it gets (approval signatures, holder evidence) and remembers everything it was sent; the GPU double
opens every record with the real channel, accepts byte-identical repeats only, and keeps the transcript.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

from data_holder.trust import AttestedGpu
from shared.attestation.channel import (
    OrchestratorExpectation,
    VerifiedOrchestrator,
    verify_orchestrator,
)
from shared.attestation.recovery import RecoveryExpectation, VerifiedRecovery, verify_recovery
from shared.canonical import sha256, sha384
from shared.claims.archive import open_archive
from shared.claims.event_log import REGISTERS, ZERO, extended
from shared.claims.graph import Graph, Node, Ref, encode_graph
from shared.claims.manifest import EvidencePolicy, Manifest, RosterEntry
from shared.claims.new_programs import pack
from shared.claims.program import InitRule, ProgramManifest, SeedInit, TensorSpec
from shared.claims.records import RecordField, RecordSchema
from shared.claims.training import TrainingOptions
from shared.crypto.secret import Secret
from shared.crypto.signing import PartyKey
from shared.crypto.visit_key import VisitKey
from shared.errors import VerificationFailed
from shared.names import Backend
from shared.wire.recovery import ShareOffer
from shared.wire.visit import (
    ChannelOffer,
    Evidence,
    GpuEvidence,
)
from tests.attestation.cpu_world import AT, Machine, evidence

ORCHESTRATOR, AGENT = "http://orchestrator.test", "http://agent.test"


SESSION, NAME, FEATURES = "s_0123456789abcdef", "north", 16


STATEMENT_KEY = PartyKey.generate(lambda n: b"\x07" * n)


DEVICE = "ab" * 8
BUFFER_BYTES = 1 << 16


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


class FakeClock:
    """Time that only a test moves."""

    def __init__(self) -> None:
        self.now = AT

    def __call__(self) -> float:
        return self.now


def make_archive(features: int = FEATURES) -> bytes:
    """The smallest real program: loss = sum(x * w) over one float32 field."""
    inputs = (("parameter", "w"), ("record", "x"))
    nodes = (Node("aten.mul.Tensor", (Ref(1), Ref(0))), Node("aten.sum.dim_IntList", (Ref(2), (1,))))
    graphs = {kind: encode_graph(Graph(kind, inputs, nodes, Ref(3))) for kind in ("train", "eval")}  # type: ignore[arg-type]
    manifest = ProgramManifest(
        name="tiny", records=RecordSchema(fields=(RecordField(name="x", dtype="float32", shape=(features,)),)),
        parameters=(TensorSpec(name="w", dtype="float32", shape=(features,)),),
        graphs={kind: sha384(data).hex() for kind, data in graphs.items()},
        operators=("aten.mul.Tensor", "aten.sum.dim_IntList"),
        initial_weights=SeedInit(seed=1, rules=(InitRule(name="w", kind="normal", std=0.1),)),
    )  # fmt: skip
    return pack(manifest, graphs)  # type: ignore[arg-type]


ARCHIVE = make_archive()


PROGRAM = open_archive(ARCHIVE).digest.hex()


def make_manifest(key: str, **changes: Any) -> Manifest:
    emulated = EvidencePolicy(roots=("EMULATED",))
    fields: dict[str, Any] = {
        "name": "study-1", "program": PROGRAM, "training": TrainingOptions(batch_size=4, seed=3),
        "roster": (RosterEntry(holder=NAME, key=key, evidence=emulated), RosterEntry(holder="south", key="cd" * 32)),
        "gpu_evidence": emulated, "orchestrator_evidence": emulated, "rounds": 5, "steps_per_visit": 5,
        "buffer_bytes": BUFFER_BYTES, "privacy_floor": 8,
    }  # fmt: skip
    return Manifest(**{**fields, **changes})


def write_dataset(path: Path, records: int = 50, features: int = FEATURES) -> np.ndarray[Any, Any]:
    values = np.random.default_rng(5).standard_normal((records, features)).astype("<f4")
    np.savez(path, x=values)
    return values


class LocalEvidence:
    """This CVM's path to the enclave of `Machine`, without HTTP."""

    def __init__(self, machine: Machine, cvm: str = "holder-north", code: bytes = b"") -> None:
        self.machine, self.cvm, self.code, self.values = machine, cvm, code, [ZERO] * REGISTERS

    async def quote(self, data: bytes) -> Evidence:
        return evidence(self.machine.raw(data, self.cvm, rtmrs=tuple(self.values)))

    async def relaunch(self) -> bool:
        return False

    async def registers(self) -> dict[int, bytes]:
        return dict(enumerate(self.values))

    async def extend(self, register: int, digest: bytes, before: bytes) -> None:
        assert self.values[register] == before
        self.values[register] = extended(before, digest)

    async def derived_key(self, label: str) -> Secret:
        return Secret(sha256(b"derived" + self.code + label.encode()))

    async def aclose(self) -> None:
        return None


class Verifier:
    """The real channel verification over the machine's roots; the GPU's report is stood in for by its nonce."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.expectations: list[OrchestratorExpectation] = []

    async def prepare(self, offer: ChannelOffer | ShareOffer, *, at: float) -> None:
        """Nothing is fetched: the machine's collateral is at hand."""

    def verify_recovery(
        self, offer: ShareOffer, expected: RecoveryExpectation, manifest: Manifest, *, at: float
    ) -> VerifiedRecovery:
        return verify_recovery(offer, expected=expected, cpu=self.machine.trust(), at=at)

    def verify_orchestrator(
        self, offer: ChannelOffer, expected: OrchestratorExpectation, manifest: Manifest, *, at: float
    ) -> VerifiedOrchestrator[AttestedGpu]:
        self.expectations.append(expected)

        def gpu(evidence: GpuEvidence, nonce: bytes) -> AttestedGpu:
            if evidence.report != "AAAA":
                raise VerificationFailed("bad report", code="gpu-report")
            return AttestedGpu(DEVICE, Backend.EMULATED, STATEMENT_KEY.public)

        return verify_orchestrator(
            offer, expected=expected, cpu=self.machine.trust(), gpu=gpu, max_lifetime_s=86_400, at=at
        )


def problem(status: int, title: str, code: str) -> httpx2.Response:
    return httpx2.Response(status, json={"title": title, "status": status, "code": code, "detail": code})


def visit_key(number: int = 1) -> VisitKey:
    return VisitKey(key=bytes([number]) * 32, iv_mask=b"m" * 12, engine=2, channel_counter=number)
