"""Both ends of stock firmware's command channel under a visit key of travel mode `paper`. Knows no command and no memory.

    key(direction) = HKDF(K(e, h2d), CBOR["gput/stock", session, visit, holder, epoch, direction])

so whoever has the visit key has the whole GPU, as the publication leaves it. Directions have keys of their own: nothing can be reflected.
"""

from __future__ import annotations

from typing import Literal

from shared.canonical import cbor_bytes
from shared.claims.visit import Grant
from shared.crypto.aead import OpeningChannel, SealingChannel
from shared.crypto.schedule import KEY_BYTES, hkdf
from shared.errors import ProtocolViolation

Side = Literal["holder", "gpu"]


class StockChannel:
    """One end: a holder seals h2d and opens d2h, the GPU the other way. 64-bit counters, no mask, as on the driver's RPC channel."""

    def __init__(self, visit_key: bytes, grant: Grant, side: Side) -> None:
        self._context = [grant.session, grant.visit, grant.holder, grant.epoch]
        self._out, self._in = ("h2d", "d2h") if side == "holder" else ("d2h", "h2d")
        keys = {d: hkdf(visit_key, cbor_bytes(["gput/stock", *self._context, d]), KEY_BYTES) for d in ("h2d", "d2h")}
        self._sealing = SealingChannel(keys[self._out], label=f"stock {self._out}", wide=True)
        self._opening = OpeningChannel(keys[self._in], label=f"stock {self._in}", wide=True)

    def seal(self, payload: bytes) -> tuple[int, bytes]:
        """(n, ciphertext) of the next frame. Raises: ProtocolViolation: counter or budget exhausted, key erased."""
        n = self._sealing.counter + 1
        return n, self._sealing.seal(payload, self._aad(n, self._out))

    def open(self, n: int, ciphertext: bytes) -> bytes:
        """The peer's next payload.

        Raises:
            ProtocolViolation: `frame-out-of-order`, `key-erased`. VerificationFailed: `tag-mismatch`. Nothing changed.
        """
        if n != self._opening.counter + 1:
            raise ProtocolViolation(
                "the frame is out of order", code="frame-out-of-order",
                expected=str(self._opening.counter + 1), got=str(n),
            )  # fmt: skip
        return self._opening.open(ciphertext, self._aad(n, self._in))

    def erase(self) -> None:
        """Forget both keys; any later use raises."""
        self._sealing.erase()
        self._opening.erase()

    def _aad(self, n: int, direction: str) -> bytes:
        return cbor_bytes(["gput/stock", *self._context, n, direction])
