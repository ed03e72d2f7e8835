"""What the holder knows of one session, folded from its journal's facts. Pure: the same facts always give the same state.

Only this decides: the highest epoch seen, the log head remembered, the manifest and decision as signed, whose keys sign, what is open.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from data_holder.protocol.visit import HOLDER_VISIT, HolderFact, HolderPhase
from shared.errors import ProtocolViolation, Refused
from shared.names import Role

REQUEST, DECISION, CHANNEL, VISIT, HEAD, RECEIPT, RELEASED, ENDED = (
    "request", "decision", "channel", "visit", "head", "receipt", "share_released", "ended"
)  # fmt: skip


@dataclass(frozen=True)
class RememberedHead:
    """The newest log head this holder accepted: `size` leaves, `root` 32 bytes."""

    size: int
    root: bytes


@dataclass(frozen=True)
class RememberedReceipt:
    """The newest receipt this holder verified: its visit's epoch, and its leaf hash (32 bytes)."""

    epoch: int
    leaf: bytes


@dataclass(frozen=True)
class Decision:
    """This holder's newest signed word on the session, as bytes; verified again whenever it is used."""

    document: bytes
    signature: bytes
    dataset: str | None
    by: str


@dataclass(frozen=True)
class ChannelRecord:
    """Public facts of one attested channel, which later receipts refer to. Keys raw; digests hex. `holder_runtime` is empty where a life
    was introduced to everybody and no channel opened: its key signed, but no visit went through it."""

    channel: str
    orchestrator_runtime: str
    holder_runtime: str
    gpu_evidence: str
    signing_key: bytes
    enrolled_key: bytes
    statement_key: bytes
    device: str


@dataclass
class Attempt:
    """One open attempt of a visit. `report`: the exact report bytes from PROVISIONED on, so that a repeat is byte-identical."""

    visit: str
    epoch: int
    phase: HolderPhase
    report: bytes = b""


@dataclass
class SessionState:
    """See the module's docstring. `seq`: facts folded so far; `receipts`: verified receipts."""

    session: str
    seq: int = 0
    manifest: bytes = b""
    owner: tuple[bytes, bytes] | None = None  # the key (raw) that signed it, and its signature; None: nobody said
    decision: Decision | None = None
    dataset_root: str = ""  # as approved, over so many `records`; a veto does not take it from the visits before
    records: int = 0
    record_rule: int = 0  # by which that root was made (`shared.protocol.membership`)
    conversion: int = 0  # by which tables were read for it (`data_holder.datasets`)
    highest_epoch: int = 0
    head: RememberedHead | None = None
    channels: dict[str, ChannelRecord] = field(default_factory=dict)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    receipts: int = 0
    newest_receipt: RememberedReceipt | None = None
    released: list[str] = field(default_factory=list)  # measurements of orchestrators that this holder's share went to
    ended: str | None = None

    def fold(self, kind: str, body: Mapping[str, Any]) -> None:
        """Take in one fact. Raises: ProtocolViolation when the visit's table does not allow it."""
        _FOLDS[kind](self, body)
        self.seq += 1

    def orchestrator_key(self) -> bytes | None:
        """The orchestrator's enrolled key (raw) as attested so far: it must not change under way. None before the first channel.

        Raises:
            Refused: code `orchestrator-changed`.
        """
        known = {record.enrolled_key for record in self.channels.values()}
        if len(known) > 1:
            raise Refused(f"session {self.session} has channels to two orchestrators", code="orchestrator-changed")
        return next(iter(known), None)

    def known_gpu(self) -> str | None:
        """The GPU (PDI, hex) as attested before in this session: another one is refused, however genuine. None before the first channel.

        Raises:
            Refused: code `gpu-changed`.
        """
        known = {record.device for record in self.channels.values()}
        if len(known) > 1:
            raise Refused(f"session {self.session} has channels to two GPUs", code="gpu-changed")
        return next(iter(known), None)


def request_body(manifest: bytes, owner: tuple[bytes, bytes] | None) -> dict[str, str]:
    """What is written down of a request. `owner`: the key (raw) that signed it and its signature, or None while nobody said."""
    key, signature = owner or (b"", b"")
    said = {"owner_key": key.hex(), "owner_signature": base64.b64encode(signature).decode()}
    return {"manifest": base64.b64encode(manifest).decode(), **said}


def _request(state: SessionState, body: Mapping[str, Any]) -> None:
    state.manifest = base64.b64decode(body["manifest"])
    if body["owner_key"]:
        state.owner = bytes.fromhex(body["owner_key"]), base64.b64decode(body["owner_signature"])


def _decision(state: SessionState, body: Mapping[str, Any]) -> None:
    document, signature = base64.b64decode(body["document"]), base64.b64decode(body["signature"])
    state.decision = Decision(document, signature, body["dataset"], body["by"])
    if body["dataset_root"]:
        state.dataset_root, state.record_rule = body["dataset_root"], int(body["record_rule"])
        state.conversion = int(body["conversion"])
    state.records = body["records"] or state.records


def _channel(state: SessionState, body: Mapping[str, Any]) -> None:
    raw = {name: bytes.fromhex(body[name]) for name in ("signing_key", "enrolled_key", "statement_key")}
    record = ChannelRecord(**{**body, **raw})
    state.channels[record.orchestrator_runtime] = record


def _visit(state: SessionState, body: Mapping[str, Any]) -> None:
    """One fact of an attempt; OFFERED opens it and claims its epoch for ever."""
    epoch, fact = int(body["epoch"]), HolderFact(body["fact"])
    if fact is HolderFact.OFFERED:
        if epoch <= state.highest_epoch:
            raise ProtocolViolation(
                f"epoch {epoch} was seen before", code="epoch-not-new",
                expected=f"> {state.highest_epoch}", got=str(epoch),
            )  # fmt: skip
        state.attempts[epoch] = Attempt(body["visit"], epoch, HolderPhase.IDLE)
        state.highest_epoch = epoch
    attempt = state.attempts.get(epoch)
    if attempt is None:
        raise ProtocolViolation(f"no open attempt under epoch {epoch}", code="attempt-not-open")
    attempt.phase = HOLDER_VISIT.after(attempt.phase, fact, Role(body["actor"]))
    if fact is HolderFact.PROVISIONED:
        attempt.report = base64.b64decode(body["report"])
    if HOLDER_VISIT.final(attempt.phase):
        del state.attempts[epoch]


def _head(state: SessionState, body: Mapping[str, Any]) -> None:
    state.head = RememberedHead(int(body["size"]), bytes.fromhex(body["root"]))


def _receipt(state: SessionState, body: Mapping[str, Any]) -> None:
    state.receipts += 1
    receipt = RememberedReceipt(int(body["epoch"]), bytes.fromhex(body["leaf"]))
    if state.newest_receipt is None or receipt.epoch > state.newest_receipt.epoch:
        state.newest_receipt = receipt


def _released(state: SessionState, body: Mapping[str, Any]) -> None:
    state.released.append(str(body["measurement"]))


def _ended(state: SessionState, body: Mapping[str, Any]) -> None:
    state.ended = str(body["phase"]) or None  # none: it goes on after all


_FOLDS = {
    REQUEST: _request, DECISION: _decision, CHANNEL: _channel, VISIT: _visit, HEAD: _head, RECEIPT: _receipt,
    RELEASED: _released, ENDED: _ended,
}  # fmt: skip
KINDS = tuple(_FOLDS)
"""Every kind of fact there is."""
