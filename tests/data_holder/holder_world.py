"""A holder's surroundings for tests: an orchestrator and a GPU end with real keys, evidence and records, in this process. Knows no test.

The orchestrator double verifies what it gets (approval signatures, holder evidence) and remembers everything it was sent; the GPU double
opens every record with the real channel, accepts byte-identical repeats only, and keeps the transcript.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from blake3 import blake3

from data_holder.trust import AttestedGpu
from shared.attestation.channel import (
    OrchestratorExpectation,
    VerifiedHolder,
    VerifiedOrchestrator,
    build_orchestrator_runtime,
    gpu_evidence_digest,
    report_data,
    seal_offer,
    verify_holder,
    verify_one_time_key,
    verify_orchestrator,
)
from shared.attestation.head_statements import VerifiedHeadStatement, verify_head_statement
from shared.canonical import cbor_bytes, json_bytes, json_value, sha256, sha384
from shared.claims.archive import open_archive, pack
from shared.claims.event_log import REGISTERS, ZERO, extended
from shared.claims.graph import Graph, Node, Ref, encode_graph
from shared.claims.manifest import EvidencePolicy, Manifest, RosterEntry
from shared.claims.program import InitRule, ProgramManifest, SeedInit, TensorSpec
from shared.claims.receipt import DeviceStatement, Receipt
from shared.claims.records import RecordField, RecordSchema
from shared.claims.training import TrainingOptions
from shared.claims.visit import CursorRange, Grant, VisitTimers
from shared.crypto import ecc
from shared.crypto.aead import OpeningChannel
from shared.crypto.cose import p384_point, sign1
from shared.crypto.secret import Secret
from shared.crypto.signing import PartyKey, verify
from shared.crypto.tree_head import TreeHead, sign_tree_head
from shared.crypto.visit_key import VisitKey
from shared.errors import VerificationFailed
from shared.names import Backend
from shared.protocol.membership import check_membership, proof_limit
from shared.protocol.merkle import consistency_proof, inclusion_proof, leaf_hash, root
from shared.wire.codec import decode, encode
from shared.wire.copy import CLOSING, PROOF, Closing, CopyAck, copy_context, parse_record
from shared.wire.visit import (
    Approval,
    ChannelOffer,
    ChannelProof,
    Evidence,
    GpuEvidence,
    OfferDocument,
    Signed,
    VisitOffer,
    VisitReport,
)
from tests.attestation.cpu_world import AT, Machine, evidence, measured

ORCHESTRATOR, AGENT = "http://orchestrator.test", "http://agent.test"
SESSION, NAME, FEATURES = "s_0123456789abcdef", "north", 16
STATEMENT_KEY = ecc.private_key(lambda n: b"\x07" * n)
DEVICE = "ab" * 8


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
        "buffer_bytes": 1 << 16, "privacy_floor": 8,
    }  # fmt: skip
    return Manifest(**{**fields, **changes})


def write_dataset(path: Path, records: int = 50, features: int = FEATURES) -> np.ndarray[Any, Any]:
    values = np.random.default_rng(5).standard_normal((records, features)).astype("<f4")
    np.savez(path, x=values)
    return values


class LocalEvidence:
    """This CVM's path to the enclave of `Machine`, without HTTP."""

    def __init__(self, machine: Machine, cvm: str = "holder-north") -> None:
        self.machine, self.cvm, self.values = machine, cvm, [ZERO] * REGISTERS

    async def quote(self, data: bytes) -> Evidence:
        return evidence(self.machine.raw(data, self.cvm, rtmrs=tuple(self.values)))

    async def registers(self) -> dict[int, bytes]:
        return dict(enumerate(self.values))

    async def extend(self, register: int, digest: bytes, before: bytes) -> None:
        assert self.values[register] == before
        self.values[register] = extended(before, digest)

    async def derived_key(self, label: str) -> Secret:
        return Secret(sha256(b"derived" + label.encode()))

    async def aclose(self) -> None:
        return None


class Verifier:
    """The real channel verification over the machine's roots; the GPU's report is stood in for by its nonce."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.expectations: list[OrchestratorExpectation] = []

    async def prepare(self, offer: ChannelOffer, *, at: float) -> None:
        """Nothing is fetched: the machine's collateral is at hand."""

    def verify_orchestrator(
        self, offer: ChannelOffer, expected: OrchestratorExpectation, manifest: Manifest, *, at: float
    ) -> VerifiedOrchestrator[AttestedGpu]:
        self.expectations.append(expected)

        def gpu(evidence: GpuEvidence, nonce: bytes) -> AttestedGpu:
            if evidence.report != "AAAA":
                raise VerificationFailed("bad report", code="gpu-report")
            return AttestedGpu(DEVICE, Backend.EMULATED, p384_point(STATEMENT_KEY.public_key()))

        return verify_orchestrator(
            offer, expected=expected, cpu=self.machine.trust(), gpu=gpu, max_lifetime_s=86_400, at=at
        )


@dataclass
class Orchestrator(httpx2.AsyncBaseTransport):
    """The orchestrator's holder-facing API, with its memory of what arrived. `down`: refuse connections; `gpu_challenge`: what its GPU
    answered, the holder's nonce when empty."""

    machine: Machine
    clock: FakeClock
    enrolled: PartyKey = field(default_factory=PartyKey.generate)
    signing: PartyKey = field(default_factory=PartyKey.generate)
    archive: bytes = ARCHIVE
    cvm: str = "orchestrator"
    down: bool = False
    lost_answers: int = 0
    gpu_challenge: str = ""
    items: list[dict[str, Any]] = field(default_factory=list)
    approvals: list[Approval] = field(default_factory=list)
    approval_bytes: list[bytes] = field(default_factory=list)
    reports: list[VisitReport] = field(default_factory=list)
    report_bytes: list[bytes] = field(default_factory=list)
    refusals: list[dict[str, Any]] = field(default_factory=list)
    leaves: list[bytes] = field(default_factory=list)
    receipts: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    holder_key: bytes = b""
    manifest: Manifest | None = None
    channels: dict[str, bytes] = field(default_factory=dict)
    gpu_evidence: dict[str, str] = field(default_factory=dict)
    proven: VerifiedHolder | None = None
    next_key: Any = None
    heads: dict[str, int] = field(default_factory=dict)
    signed_head: TreeHead | None = None
    challenge: str = ""
    head_statements: list[VerifiedHeadStatement] = field(default_factory=list)
    refuse_heads: str = ""
    heads_refused: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self.down:
            raise httpx2.ConnectError("down")
        body = await request.aread()
        self.bodies.append(body)
        path = request.url.path
        answer = await self._answer(request, path, body)
        if self.lost_answers and request.method == "POST":
            self.lost_answers -= 1
            raise httpx2.ReadError("answer lost")
        return answer

    async def _answer(self, request: httpx2.Request, path: str, body: bytes) -> httpx2.Response:
        if path == "/v1/inbox":
            return await self._inbox(int(request.url.params["after"]))
        if path.endswith("/archive"):
            return httpx2.Response(200, content=self.archive)
        if path.endswith("/approvals"):
            signed = Signed.model_validate(json_value(body))
            document = base64.b64decode(signed.document)
            verify(self.holder_key, "gput/approval", document, base64.b64decode(signed.signature))
            self.approvals.append(Approval.model_validate(json_value(document)))
            self.approval_bytes.append(body)
            return httpx2.Response(201, json={})
        if path.endswith("/channels"):
            return httpx2.Response(201, json=self._channel_offer(json_value(body)["nonce"]).model_dump(mode="json"))
        if "/channels/" in path:
            return self._channel_proof(path.rsplit("/", 1)[1], ChannelProof.model_validate(json_value(body)))
        if path.endswith("/report"):
            return self._report(body)
        if path.endswith("/refusal"):
            self.refusals.append(json_value(body))
            return httpx2.Response(202, json={})
        if path.endswith("/heads"):
            return self._head_statement(Signed.model_validate(json_value(body)))
        if path.endswith("/consistency"):
            start, to = int(request.url.params["from"]), int(request.url.params["to"])
            return httpx2.Response(200, json={"from": start, "to": to, "path": self._consistency(start, to)})
        if path.endswith("/log/head"):
            head = self.signed_head or self.head()
            signature = b64(sign_tree_head(head, self.signing))
            key = self.signing.public.hex()
            fields = {"size": head.size, "root": head.root.hex(), "signature": signature, "key": key, "time": head.time}
            return httpx2.Response(200, json=fields)
        if path.endswith("/log/inclusion"):
            hashes = [leaf_hash(leaf) for leaf in self.leaves]
            proof = inclusion_proof(int(request.url.params["index"]), hashes)
            return httpx2.Response(200, json={"path": [node.hex() for node in proof]})
        if path.endswith("/receipts"):
            return httpx2.Response(200, json={"items": self.receipts, "next": None})
        return httpx2.Response(404, json={"title": "Not found", "code": "not-found", "detail": path})

    async def _inbox(self, after: int) -> httpx2.Response:
        for _ in range(2):
            items = [item for item in self.items if item["seq"] > after]
            if items:
                return httpx2.Response(200, json={"items": items, "next": items[-1]["seq"]})
            self.changed.clear()
            try:
                await asyncio.wait_for(self.changed.wait(), 1.0)
            except TimeoutError:
                break
        return httpx2.Response(200, json={"items": [], "next": after})

    def post(self, kind: str, **more: Any) -> None:
        """Put an item into the holder's inbox."""
        self.items.append({"seq": len(self.items) + 1, "kind": kind, "session": SESSION, **more})
        self.changed.set()

    def ask_approval(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.post("approval_wanted", manifest=b64(manifest.canonical()))

    def ask_head(self, challenge: str, session: str = SESSION) -> None:
        self.challenge = challenge
        self.post("head_wanted", challenge=challenge)
        self.items[-1]["session"] = session

    def _head_statement(self, signed: Signed) -> httpx2.Response:
        if self.refuse_heads:
            self.heads_refused += 1
            return _problem(403, "Verification failed", self.refuse_heads)
        try:
            stated = verify_head_statement(
                signed, key=self.holder_key, session=SESSION, holder=NAME, challenge=self.challenge
            )
        except VerificationFailed as error:
            return _problem(403, error.title, error.code)
        self.head_statements.append(stated)
        return httpx2.Response(202, json={})

    def _channel_offer(self, nonce: str) -> ChannelOffer:
        assert self.manifest is not None
        name = f"c_{len(self.channels) + 1}"
        gpu = GpuEvidence(report="AAAA", chain="PEM", challenge=self.gpu_challenge or nonce, th2="22" * 48, epoch=0)
        raw = build_orchestrator_runtime(
            session=SESSION, holder=NAME, manifest=self.manifest.digest().hex(), peer_nonce=nonce, nonce="02" * 32,
            signing_key=self.signing.public, enrolled_key=self.enrolled.public, gpu_evidence=gpu,
            not_after=int(self.clock()) + 3600,
        )  # fmt: skip
        self.channels[name] = raw
        self.gpu_evidence[name] = gpu_evidence_digest(gpu)
        quote = self.machine.evidence(self.cvm, report_data("orchestrator", raw), measured(raw))
        return ChannelOffer(channel=name, runtime_data=b64(raw), evidence=quote, gpu_evidence=gpu)

    def _channel_proof(self, channel: str, proof: ChannelProof) -> httpx2.Response:
        self.proven = verify_holder(
            proof, channel=channel, orchestrator_runtime=self.channels[channel], enrolled_key=self.holder_key,
            cpu=self.machine.trust(), max_lifetime_s=86_400, at=self.clock(),
        )  # fmt: skip
        self.next_key = self.proven.one_time_key
        return httpx2.Response(200, json={"channel": channel, "state": "open"})

    def _report(self, body: bytes) -> httpx2.Response:
        report = VisitReport.model_validate(json_value(body))
        self.report_bytes.append(body)
        if any(old.epoch == report.epoch for old in self.reports):
            return httpx2.Response(202, json={})
        self.reports.append(report)
        assert self.proven is not None
        assert report.next_key is not None
        self.next_key = verify_one_time_key(
            report.next_key,
            signing_key=self.proven.signing_key,
            session=SESSION,
            holder=NAME,
            channel=self.proven.channel,
        )
        return httpx2.Response(202, json={})

    def head(self) -> TreeHead:
        return TreeHead(SESSION, len(self.leaves), root([leaf_hash(leaf) for leaf in self.leaves]), int(self.clock()))

    def _consistency(self, start: int, to: int) -> list[str]:
        return [node.hex() for node in consistency_proof(start, [leaf_hash(leaf) for leaf in self.leaves[:to]])]

    def make_offer(
        self, key: VisitKey, *, epoch: int = 1, visit: str = "v_0000000000000001", round: int = 1, signer: PartyKey | None = None,
        grant: dict[str, Any] | None = None, document: dict[str, Any] | None = None, chunk_bytes: int = 256,
        seal_to: Any = None, log_from: int | None = None,
    ) -> tuple[VisitOffer, OfferDocument]:  # fmt: skip
        """An offer as the itinerary plans it, or with the given fields changed before signing."""
        assert self.manifest is not None
        assert self.proven is not None
        to, head = seal_to or self.next_key, self.head()
        count = self.manifest.steps_for(NAME) * self.manifest.training.batch_size
        start_size = self.heads.get(NAME, 0) if log_from is None else log_from
        record_bytes = FEATURES * 4
        said = next(said for said in self.approvals if said.decision == "approve")
        cursor = CursorRange(start=(round - 1) * count, count=count, seed=3)
        granted = Grant(**{
            "session": SESSION, "visit": visit, "life": 1, "epoch": epoch, "holder": NAME, "port": f"holder-{NAME}",
            "region": 7, "byte_budget": count * record_bytes + proof_limit(cursor, said.records or 0), "cursor": cursor,
            "dataset_root": said.dataset_root, "dataset_records": said.records, "record_bytes": record_bytes,
            "chunk_bytes": chunk_bytes, "recipient": to.digest, "expires_at": int(self.clock()) + 60, **(grant or {}),
        })  # fmt: skip
        fields: dict[str, Any] = {
            "channel": self.proven.channel, "manifest": self.manifest.digest().hex(), "grant": granted,
            "gpu": "gpu-0", "agent_url": AGENT,
            "one_time_key": granted.recipient, "iv_epoch": granted.epoch, "round": round, "index": 2 * round - 1, "attempt": 1,
            "log_size": head.size, "log_root": head.root.hex(), "log_time": head.time, "log_from": start_size,
            "log_signature": b64(sign_tree_head(head, self.signing)),
            "log_consistency": self._consistency(start_size, head.size),
        }  # fmt: skip
        made = OfferDocument(**{**fields, **(document or {})})
        self.heads[NAME] = head.size
        try:
            return seal_offer(made, visit_key=key, one_time_key=to, signing_key=signer or self.signing), made
        except Exception:  # an honest sealer refuses some faults: seal honestly, then sign the faulty document
            return self._forced(made, key, to, signer or self.signing), made

    def _forced(self, made: OfferDocument, key: VisitKey, to: Any, signer: PartyKey) -> VisitOffer:
        from shared.attestation import offers
        from shared.crypto.hpke import seal

        raw = json_bytes(made.model_dump(mode="json"))
        sealed = seal(to.public, key.to_bytes(), offers._seal_info(raw))
        signature = signer.sign(offers.LABEL, offers._transcript(to.document, raw, sealed))
        return VisitOffer(document=b64(raw), sealed=b64(sealed), signature=b64(signature))

    def send_offer(self, offer: VisitOffer) -> None:
        self.post("offer", offer=offer.model_dump(mode="json"))

    def make_receipt(self, document: OfferDocument, report: VisitReport, **changes: Any) -> bytes:
        """The receipt of a closed visit, signed by device and orchestrator; `changes` fall on statement and receipt by name."""
        assert self.proven is not None
        grant = document.grant
        statement_fields: dict[str, Any] = {
            "device": DEVICE, "backend": "EMULATED", "boot_counter": 1, "life": 1, "session": SESSION, "visit": grant.visit,
            "epoch": grant.epoch, "holder": NAME, "records": report.records, "length": report.length,
            "commitment": report.commitment, "dataset_root": grant.dataset_root,
            "dataset_records": grant.dataset_records, "program": PROGRAM, "model_before": "11" * 32, "model_after": "22" * 32,
            "first_step": 0, "steps": 5, "scrubbed_bytes": 1 << 16, "scrub_digest": "33" * 32,
        }  # fmt: skip
        key = changes.pop("device_key", STATEMENT_KEY)
        for name in list(changes):
            if name in statement_fields:
                statement_fields[name] = changes.pop(name)
        statement = cbor_bytes(DeviceStatement(**statement_fields).model_dump())
        signer = changes.pop("signer", self.signing)
        fields: dict[str, Any] = {
            "session": SESSION, "visit": grant.visit, "index": document.index, "round": document.round, "attempt": 1,
            "holder": NAME, "manifest": document.manifest, "dataset_root": grant.dataset_root,
            "epoch": grant.epoch, "fence_epoch": grant.epoch + 1,
            "outcome": "closed", "gpu_evidence": self.gpu_evidence[self.proven.channel],
            "holder_runtime_data": sha256(self.proven.runtime_data).hex(),
            "orchestrator_runtime_data": sha256(self.channels[self.proven.channel]).hex(), "losses_released": True,
            "timers": VisitTimers(grab_gpu=0, import_key=0, buffer_read=0, gpu_write=0, export_key=0),
            "statement": sign1(statement, key, kid=sha256(p384_point(key.public_key()))), "closed_at": int(self.clock()),
        }  # fmt: skip
        receipt = Receipt(**{**fields, **changes})
        return sign1(cbor_bytes(receipt.model_dump(mode="python")), signer, kid=bytes.fromhex(signer.fingerprint))

    def close_visit(self, cose: bytes) -> int:
        """Append the receipt to the log and push it."""
        self.leaves.append(cose)
        index = len(self.leaves) - 1
        self.post("receipt", receipt=b64(cose), receipt_index=index)
        return index


@dataclass
class Gpu(httpx2.AsyncBaseTransport):
    """The GPU's copy port with one grant. Faults: `unbound` answers first, `cut_before`/`cut_after` record indexes once each."""

    unbound: int = 0
    cut_before: set[int] = field(default_factory=set)
    cut_after: set[int] = field(default_factory=set)
    transcript: list[bytes] = field(default_factory=list)
    calls: int = 0
    published: bool = False
    refuse_with: str | None = None
    hook: Callable[[int], Any] | None = None

    def install(self, document: OfferDocument, key: VisitKey) -> None:
        self.grant = document.grant
        self.opening = OpeningChannel(key.key, label="test", iv_mask=key.iv_mask, channel_counter=key.channel_counter)
        self.plain, self.proof, self.published = bytearray(), bytearray(), False
        self.accepted: dict[int, bytes] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = await request.aread()
        self.calls += 1
        assert request.url.path == f"/v1/gpus/gpu-0/ports/{self.grant.port}/copy"
        if self.unbound:
            self.unbound -= 1
            return _problem(409, "Conflict", "port-not-bound")
        if self.refuse_with:
            return _problem(409, "Protocol violation", self.refuse_with)
        header, _, _ = parse_record(body)
        if header.index in self.cut_before:
            self.cut_before.discard(header.index)
            raise httpx2.WriteError("cut")
        self.transcript.append(bytes(body))
        if self.hook is not None:
            await self.hook(header.index)
        ack = self._take(body)
        if header.index in self.cut_after:
            self.cut_after.discard(header.index)
            raise httpx2.ReadError("cut")
        return httpx2.Response(200, content=encode(ack))

    def _take(self, body: bytes) -> CopyAck:
        header, raw, sealed = parse_record(body)
        known = self.accepted.get(header.index)
        if known is not None:
            assert known == bytes(body), "another record at a used counter"
        else:
            plain = self.opening.open(sealed, raw + copy_context(self.grant))
            self.accepted[header.index] = bytes(body)
            if header.kind == CLOSING:
                self._close(decode(Closing, plain))
            elif header.kind == PROOF:
                self.proof += plain
            else:
                self.plain += plain
        return CopyAck(index=header.index, received=len(self.plain), published=self.published)

    def _close(self, closing: Closing) -> None:
        assert closing.length == len(self.plain) == self.grant.length
        assert blake3(bytes(self.plain), key=closing.salt).hexdigest() == closing.commitment
        self.proof += closing.proof
        assert len(self.proof) <= self.grant.proof_budget
        check_membership(
            memoryview(self.plain), bytes(self.proof), bytes.fromhex(self.grant.dataset_root), salt=closing.dataset_salt,
            cursor=self.grant.cursor, records=self.grant.dataset_records,
        )  # fmt: skip
        self.published = True

    def one_ciphertext_per_counter(self) -> None:
        """Law L4 over the whole transcript: one record index, one byte string."""
        seen: dict[tuple[int, int], bytes] = {}
        for body in self.transcript:
            header, _, _ = parse_record(body)
            assert seen.setdefault((header.epoch, header.index), body) == body


def _problem(status: int, title: str, code: str) -> httpx2.Response:
    return httpx2.Response(status, json={"title": title, "status": status, "code": code, "detail": code})


def visit_key(number: int = 1) -> VisitKey:
    return VisitKey(key=bytes([number]) * 32, iv_mask=b"m" * 12, engine=2, channel_counter=number)
