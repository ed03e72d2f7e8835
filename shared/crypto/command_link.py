"""One end of a life's command channel: seals and opens frames and their bulk records. Knows no command, no device, no HTTP.

`shared.wire.gpu.CommandFrame` says what the bytes are. Both ends use this file, so that neither can build an AAD of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shared.canonical import cbor_bytes, sha256
from shared.crypto.aead import OpeningChannel, SealingChannel
from shared.errors import ProtocolViolation

RPC_LABELS = {"h2d": "cpu_gsp_locked_rpc", "d2h": "gsp_cpu_locked_rpc"}
BULK_LABELS = {"h2d": "Lce00_h2d_kernel", "d2h": "Lce00_d2h_kernel"}
"""Key-store labels (reference h100.md 4.2) by direction."""


@dataclass(frozen=True)
class SealedFrame:
    """`ct` and `bulk` of a CommandFrame of this `life` and number `n`."""

    life: int
    n: int
    ct: bytes
    bulk: list[bytes]


class CommandLink:
    """Frames out in one direction, in from the other; both count from 1 and never skip.

    Args:
        sends: "h2d" at the orchestrator, "d2h" at the GPU.
        rpc: key-store keys (32 bytes) by direction, of `RPC_LABELS`.
    """

    def __init__(self, life: int, *, sends: str, rpc: dict[str, bytes]) -> None:
        self.life = life
        self._out, self._in = sends, "d2h" if sends == "h2d" else "h2d"
        self._seal = SealingChannel(rpc[self._out], label=RPC_LABELS[self._out], wide=True)
        self._open = OpeningChannel(rpc[self._in], label=RPC_LABELS[self._in], wide=True)
        self._bulk_seal: SealingChannel | None = None
        self._bulk_open: OpeningChannel | None = None

    def attach_bulk(self, keys: dict[str, bytes], masks: dict[str, bytes]) -> None:
        """Keys (32 bytes) of `BULK_LABELS` and IV masks (12 bytes) by direction, as the answer to OpenLife says."""
        out, into = self._out, self._in
        self._bulk_seal = SealingChannel(keys[out], label=BULK_LABELS[out], iv_mask=masks[out])
        self._bulk_open = OpeningChannel(keys[into], label=BULK_LABELS[into], iv_mask=masks[into])

    @property
    def received(self) -> int:
        """Number of the last frame that was opened."""
        return self._open.counter

    def seal(self, payload: bytes, bulk: Sequence[bytes | memoryview] = ()) -> SealedFrame:
        """The next frame.

        Raises:
            ProtocolViolation: bulk before OpenLife's answer, or a key is used up.
        """
        n = self._seal.counter + 1
        records: list[bytes] = []
        for index, piece in enumerate(bulk):
            if self._bulk_seal is None:
                raise ProtocolViolation("no bulk records before the life is open", code="no-bulk-keys")
            records.append(self._bulk_seal.seal(piece, _bulk_aad(self.life, n, index, len(bulk))))
        return SealedFrame(self.life, n, self._seal.seal(payload, _rpc_aad(self.life, n, self._out, records)), records)

    def open(self, frame: SealedFrame) -> tuple[bytes, list[bytes]]:
        """Payload and bulk plaintexts of the next frame.

        Raises:
            ProtocolViolation `wrong-life`, `wrong-frame-number`; VerificationFailed `tag-mismatch`. Nothing changed.
        """
        if frame.life != self.life:
            raise ProtocolViolation(
                "the frame belongs to another life", code="wrong-life", expected=str(self.life), got=str(frame.life)
            )
        if frame.n != self.received + 1:
            raise ProtocolViolation(
                "the frame is not the next one", code="wrong-frame-number",
                expected=str(self.received + 1), got=str(frame.n),
            )  # fmt: skip
        if frame.bulk and self._bulk_open is None:
            raise ProtocolViolation("no bulk records before the life is open", code="no-bulk-keys")
        payload = self._open.open(frame.ct, _rpc_aad(self.life, frame.n, self._in, frame.bulk))
        total, pieces = len(frame.bulk), []
        for index, record in enumerate(frame.bulk):
            if self._bulk_open is not None:
                pieces.append(self._bulk_open.open(record, _bulk_aad(self.life, frame.n, index, total)))
        return payload, pieces

    def erase(self) -> None:
        """Forget all keys."""
        for channel in (self._seal, self._open, self._bulk_seal, self._bulk_open):
            if channel is not None:
                channel.erase()


def _rpc_aad(life: int, n: int, direction: str, bulk: Sequence[bytes]) -> bytes:
    return cbor_bytes(["gput/rpc", life, n, direction, [sha256(record) for record in bulk]])


def _bulk_aad(life: int, n: int, index: int, total: int) -> bytes:
    return cbor_bytes(["gput/bulk", life, n, index, total])
