"""A holder's end of one grant, without HTTP and HPKE. Test support."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpu_agent.hardware.device import Device
from shared.canonical import keyed_blake3
from shared.claims.visit import Grant
from shared.crypto import schedule
from shared.crypto.aead import SealingChannel
from shared.wire import gpu_answers
from shared.wire.codec import encode
from shared.wire.copy import CLOSING, DATA, Closing, CopyAck, CopyHeader, copy_context, pack_header

FEATURES = 16
RECORD_BYTES = FEATURES * 4 + 8


@dataclass
class Holder:
    """A holder's end of one grant: seals records under the visit key it derived (as if unsealed from the offer)."""

    device: Device
    grant: Grant
    secret: bytes
    installed: gpu_answers.GrantInstalled
    sent: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        grant = self.grant
        recipient = bytes.fromhex(grant.recipient)
        context = schedule.VisitContext(grant.session, grant.epoch, grant.holder, grant.region, recipient)
        self.mask = schedule.visit_iv_mask(self.secret, context)
        self.key = schedule.visit_key(self.secret, context)
        self.channel = self.fresh_channel()

    def fresh_channel(self) -> SealingChannel:
        counter = self.installed.channel_counter
        return SealingChannel(self.key, label="visit", iv_mask=self.mask, channel_counter=counter)

    def seal(self, data: bytes, channel: SealingChannel | None = None, **closing: Any) -> list[bytes]:
        """All records of a visit, the closing one last; `closing` overrides what it states."""
        grant, channel = self.grant, channel or self.channel
        total, out = -(-len(data) // grant.chunk_bytes), []
        for index in range(total):
            piece = data[index * grant.chunk_bytes : (index + 1) * grant.chunk_bytes]
            out.append(self.record(DATA, index, total, piece, channel))
        salt = bytes(range(32))
        fields: dict[str, Any] = {
            "visit": grant.visit, "chunks": total, "records": len(data) // RECORD_BYTES, "length": len(data), "salt": salt,
            "commitment": keyed_blake3(salt, data).hex(),
        }  # fmt: skip
        out.append(self.record(CLOSING, total, total, encode(Closing(**(fields | closing))), channel))
        return out

    def record(self, kind: int, index: int, total: int, plain: bytes, channel: SealingChannel) -> bytes:
        raw = pack_header(CopyHeader(kind, self.grant.epoch, self.grant.region, index, total, len(plain)))
        return raw + channel.seal(plain, raw + copy_context(self.grant))

    def copy(self, record: bytes) -> CopyAck:
        return self.device.copy(self.grant.port, record)

    def send(self, data: bytes) -> CopyAck:
        for record in self.seal(data):
            self.sent.append(record)
            ack = self.copy(record)
        return ack
