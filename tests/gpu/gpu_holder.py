"""A holder's end of one grant, without HTTP and HPKE. Test support."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpu_agent.hardware.device import Device
from shared.claims.visit import Grant
from shared.crypto import schedule
from shared.crypto.chains import SealingChains
from shared.crypto.shares import Share, direct_key
from shared.protocol.record_order import records_of
from shared.wire import gpu_answers
from shared.wire.codec import encode
from shared.wire.copy import CLOSING, DATA, PROOF, Closing, Copied, CopyHeader, copy_context, pack_header
from tests import dataset_tree

FEATURES = 16
RECORD_BYTES = FEATURES * 4 + 8
DATASET_SALT = bytes(range(100, 132))


def root_of(dataset: bytes) -> str:
    """What the holder of `dataset` approves."""
    return dataset_tree.root(DATASET_SALT, dataset_tree.split(dataset, RECORD_BYTES)).hex()


@dataclass
class Holder:
    """A holder's end of one grant: seals records under the visit key it derived (as if unsealed from the offer).

    `dataset` is what it approved, and what its proofs are made from. `share` is its own, where the traffic key is agreed with the GPU.
    """

    device: Device
    grant: Grant
    secret: bytes
    installed: gpu_answers.GrantInstalled
    dataset: bytes = b""
    share: Share | None = None
    sent: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        grant = self.grant
        recipient = bytes.fromhex(grant.recipient)
        context = schedule.VisitContext(grant.session, grant.epoch, grant.holder, grant.region, recipient)
        self.mask = schedule.visit_iv_mask(self.secret, context)
        self.key = schedule.visit_key(self.secret, context)
        if self.share is not None and grant.shares is not None:
            self.key = direct_key(self.key, self.share.agree(bytes.fromhex(grant.shares.gpu)), grant)
        self.channel = self.fresh_channel()

    def fresh_channel(self) -> SealingChains:
        counter = self.installed.channel_counter
        return SealingChains(self.key, self.grant.chains, label="visit", iv_mask=self.mask, channel_counter=counter)

    def proof(self) -> bytes:
        """The proof that the grant's records are those of the dataset."""
        indexes = records_of(self.grant.cursor, self.grant.dataset_records).tolist()
        return dataset_tree.proof(DATASET_SALT, dataset_tree.split(self.dataset, RECORD_BYTES), indexes)

    def commitment(self, salt: bytes, data: bytes) -> str:
        """What is stated of these bytes as the grant's records (hex)."""
        indexes = records_of(self.grant.cursor, self.grant.dataset_records).tolist()
        return dataset_tree.commitment(salt, DATASET_SALT, indexes, dataset_tree.split(data, RECORD_BYTES))

    def seal(
        self, data: bytes, channel: SealingChains | None = None, pieces: list[bytes] | None = None, **closing: Any
    ) -> list[bytes]:
        """All copy records of a visit, the closing one last; `closing` overrides what it states.

        `pieces` are sent as proof records of their own; without them the proof rides in the closing record.
        """
        grant, channel, proofs = self.grant, channel or self.channel, pieces or []
        cut = [data[at : at + grant.chunk_bytes] for at in range(0, len(data), grant.chunk_bytes)]
        total, salt = len(cut) + len(proofs), bytes(range(32))
        out = [self.record(DATA, index, total, piece, channel) for index, piece in enumerate(cut)]
        out += [self.record(PROOF, len(cut) + index, total, piece, channel) for index, piece in enumerate(proofs)]
        fields: dict[str, Any] = {
            "visit": grant.visit, "chunks": len(cut), "records": len(data) // RECORD_BYTES, "length": len(data), "salt": salt,
            "commitment": self.commitment(salt, data), "dataset_salt": DATASET_SALT,
            "proof": self.proof() if pieces is None else b"",
        }  # fmt: skip
        out.append(self.record(CLOSING, total, total, encode(Closing(**(fields | closing))), channel))
        return out

    def record(self, kind: int, index: int, total: int, plain: bytes, channel: SealingChains) -> bytes:
        more = self.grant.more_chains
        raw = pack_header(CopyHeader(kind, self.grant.epoch, self.grant.region, index, total, len(plain), more))
        return raw + channel.seal(plain, raw + copy_context(self.grant))

    def copy(self, record: bytes) -> Copied:
        return self.device.copy(self.grant.port, record)

    def leave(self, data: bytes) -> None:
        """All copy records of a visit into staging."""
        for record in self.seal(data):
            self.sent.append(record)
            self.device.stage(self.grant.port, record)

    def send(self, data: bytes) -> Copied:
        for record in self.seal(data):
            self.sent.append(record)
            ack = self.copy(record)
        return ack
