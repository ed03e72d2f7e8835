"""The visit key as it travels inside HPKE: key, IV mask, copy-engine slot, channel counter. Knows no grant and no engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shared.canonical import cbor_bytes, cbor_value
from shared.errors import BadRequest

KEY_BYTES = 32
IV_MASK_BYTES = 12
_COUNTER_LIMIT = 2**32


@dataclass(frozen=True)
class VisitKey:
    """AES-256-GCM key (32 bytes) and IV mask (12 bytes) of one visit's H2D traffic; neither shows in repr.

    `engine` is the copy-engine slot, `channel_counter` the upper 32 bits of the IV counter (reference h100.md 4.4).
    Raises: BadRequest `bad-visit-key` when built with wrong lengths or ranges.
    """

    key: bytes = field(repr=False)
    iv_mask: bytes = field(repr=False)
    engine: int
    channel_counter: int

    def __post_init__(self) -> None:
        if not (isinstance(self.key, bytes) and len(self.key) == KEY_BYTES):
            raise BadRequest("a visit key has 32 bytes", code="bad-visit-key")
        if not (isinstance(self.iv_mask, bytes) and len(self.iv_mask) == IV_MASK_BYTES):
            raise BadRequest("an IV mask has 12 bytes", code="bad-visit-key")
        for number in (self.engine, self.channel_counter):
            if type(number) is not int or not 0 <= number < _COUNTER_LIMIT:
                raise BadRequest("engine and channel counter are 32-bit numbers", code="bad-visit-key")

    def to_bytes(self) -> bytes:
        """Deterministic CBOR map {key, iv_mask, engine, channel_counter}."""
        return cbor_bytes(
            {
                "key": self.key,
                "iv_mask": self.iv_mask,
                "engine": self.engine,
                "channel_counter": self.channel_counter,
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> VisitKey:
        """Inverse of `to_bytes`, strict. Raises: BadRequest; no message contains key bytes."""
        value: Any = cbor_value(data)
        if not isinstance(value, dict) or set(value) != {"key", "iv_mask", "engine", "channel_counter"}:
            raise BadRequest("a visit key is a CBOR map of four fields", code="bad-visit-key")
        return cls(**value)
