"""The orchestrator as a holder sees it: inbox, channels, offers and receipts with real keys, and every lie that a test asks for."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, field
from typing import Any

import httpx2

from shared.attestation.channel import (
    VerifiedHolder,
    gpu_evidence_digest,
    seal_offer,
    verify_holder,
    verify_one_time_key,
)
from shared.attestation.head_statements import VerifiedHeadStatement, verify_head_statement
from shared.canonical import json_value, sha256
from shared.claims.manifest import Manifest
from shared.claims.visit import CursorRange, Grant
from shared.crypto.signing import PartyKey, verify
from shared.crypto.tree_head import TreeHead, sign_tree_head
from shared.crypto.visit_key import VisitKey
from shared.errors import VerificationFailed
from shared.protocol.membership import proof_limit
from shared.protocol.merkle import consistency_proof, inclusion_proof, leaf_hash, root
from shared.wire.visit import (
    Approval,
    ChannelOffer,
    ChannelProof,
    GpuEvidence,
    OfferDocument,
    Signed,
    VisitOffer,
    VisitReport,
)
from tests.attestation.cpu_world import Machine
from tests.data_holder.holder_papers import asked_by, forced_offer, quoted_offer, signed_receipt
from tests.data_holder.holder_world import (
    AGENT,
    ARCHIVE,
    FEATURES,
    NAME,
    SESSION,
    FakeClock,
    b64,
    problem,
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
    keys: list[dict[str, Any]] = field(default_factory=list)
    keys_asked: int = 0
    bodies: list[bytes] = field(default_factory=list)
    holder_key: bytes = b""
    manifest: Manifest | None = None
    channels: dict[str, bytes] = field(default_factory=dict)
    gpu_evidence: dict[str, str] = field(default_factory=dict)
    proven: VerifiedHolder | None = None
    next_key: Any = None
    heads: dict[str, int] = field(default_factory=dict)
    signed_head: TreeHead | None = None
    more_leaves: str | None = None  # the cursor that every page of leaves ends with
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
            signature, key = b64(sign_tree_head(head, self.signing)), self.signing.public.hex()
            fields = {"size": head.size, "root": head.root.hex(), "signature": signature, "key": key, "time": head.time}
            return httpx2.Response(200, json=fields)
        if path.endswith("/log/inclusion"):
            index, size = int(request.url.params["index"]), int(request.url.params["size"])
            proof = [node.hex() for node in inclusion_proof(index, [leaf_hash(leaf) for leaf in self.leaves[:size]])]
            return httpx2.Response(200, json={"index": index, "size": size, "path": proof})
        if path.endswith("/log/leaves"):
            hashes = [leaf_hash(leaf) for leaf in self.leaves[: int(request.url.params["size"])]]
            ways = [[node.hex() for node in inclusion_proof(index, hashes)] for index in range(len(hashes))]
            items = [{"index": index, "path": way} for index, way in enumerate(ways)]
            return httpx2.Response(200, json={"items": items, "next": self.more_leaves})
        if path.endswith("/receipts"):
            return httpx2.Response(200, json={"items": self.receipts, "next": None})
        if path.endswith("/keys"):
            self.keys_asked += 1
            page = int(request.url.params.get("after", 0))
            after = str(page + 1) if page + 1 < len(self.keys) else None
            return httpx2.Response(200, json={"items": self.keys[page : page + 1], "next": after})
        return httpx2.Response(404, json={"title": "Not found", "code": "not-found", "detail": path})

    async def _inbox(self, after: int) -> httpx2.Response:
        for _ in range(2):
            items = [item for item in self.items if item["seq"] > after]
            if items:
                return httpx2.Response(200, json={"items": items, "next": items[-1]["seq"]})
            self.changed.clear()
            try:
                async with asyncio.timeout(1.0):
                    await self.changed.wait()
            except TimeoutError:
                break
        return httpx2.Response(200, json={"items": [], "next": after})

    def post(self, kind: str, **more: Any) -> None:
        """Put an item into the holder's inbox."""
        self.items.append({"seq": len(self.items) + 1, "kind": kind, "session": SESSION, **more})
        self.changed.set()

    def ask_approval(self, manifest: Manifest, owner: PartyKey | None = None, **changes: Any) -> None:
        self.manifest = manifest
        self.post("approval_wanted", **(asked_by(owner, manifest.canonical()) | changes))

    def ask_head(self, challenge: str, session: str = SESSION) -> None:
        self.challenge = challenge
        self.post("head_wanted", challenge=challenge)
        self.items[-1]["session"] = session

    def _head_statement(self, signed: Signed) -> httpx2.Response:
        if self.refuse_heads:
            self.heads_refused += 1
            return problem(403, "Verification failed", self.refuse_heads)
        try:
            stated = verify_head_statement(
                signed, key=self.holder_key, session=SESSION, holder=NAME, challenge=self.challenge
            )
        except VerificationFailed as error:
            return problem(403, error.title, error.code)
        self.head_statements.append(stated)
        return httpx2.Response(202, json={})

    def _channel_offer(self, nonce: str) -> ChannelOffer:
        name, gpu = f"c_{len(self.channels) + 1}", self._gpu(self.gpu_challenge or nonce)
        offer = self._proof(name, gpu, peer_nonce=nonce)
        self.channels[name] = base64.b64decode(offer.runtime_data)
        self.gpu_evidence[name] = gpu_evidence_digest(gpu)
        return offer

    def _gpu(self, challenge: str) -> GpuEvidence:
        return GpuEvidence(report="AAAA", chain="PEM", challenge=challenge, th2="22" * 48, epoch=0)

    def _proof(self, name: str, gpu: GpuEvidence, **changes: Any) -> ChannelOffer:
        assert self.manifest is not None
        fields: dict[str, Any] = {
            "session": SESSION, "holder": NAME, "manifest": self.manifest.digest().hex(), "nonce": "02" * 32,
            "signing_key": self.signing.public, "enrolled_key": self.enrolled.public, "gpu_evidence": gpu,
            "not_after": int(self.clock()) + 3600,
        }  # fmt: skip
        return quoted_offer(self.machine, self.cvm, name, gpu, {**fields, **changes})

    def introduce(self, **changes: Any) -> dict[str, Any]:
        """List this life's introduction, or one with the given fields changed before it was quoted; the item."""
        proof = self._proof("*", self._gpu("44" * 32), **{"holder": "*", "peer_nonce": "00" * 32, **changes})
        item = {"holder": "*", "signing_key": self.signing.public.hex(), **proof.model_dump(mode="json")}
        self.keys.append(item)
        return item

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
        key, channel = self.proven.signing_key, self.proven.channel
        self.next_key = verify_one_time_key(
            report.next_key, signing_key=key, session=SESSION, holder=NAME, channel=channel
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
            return forced_offer(made, key, to, signer or self.signing), made

    def send_offer(self, offer: VisitOffer) -> None:
        self.post("offer", offer=offer.model_dump(mode="json"))

    def make_receipt(self, document: OfferDocument, report: VisitReport, **changes: Any) -> bytes:
        """The receipt of a closed visit, signed by device and orchestrator; `changes` fall on statement and receipt by name."""
        assert self.proven is not None
        given = {
            "gpu_evidence": self.gpu_evidence[self.proven.channel],
            "holder_runtime_data": sha256(self.proven.runtime_data).hex(),
            "orchestrator_runtime_data": sha256(self.channels[self.proven.channel]).hex(), "closed_at": int(self.clock()),
        }  # fmt: skip
        return signed_receipt(document, report, changes.pop("signer", self.signing), {**given, **changes})

    def close_visit(self, cose: bytes) -> int:
        """Append the receipt to the log and push it."""
        self.leaves.append(cose)
        self.post("receipt", receipt=b64(cose), receipt_index=len(self.leaves) - 1)
        return len(self.leaves) - 1
