"""One end of the command channel between orchestrator and GPU: batches and bulk records under one life's keys. Knows no command, no HTTP.

Both ends count frames: frame `n` (from 1) and its answer use message counter n of `cpu_gsp_locked_rpc` / `gsp_cpu_locked_rpc`
(64-bit counters, no mask); bulk records use the counted IVs of `Lce00_h2d_kernel` / `Lce00_d2h_kernel` under the masks that
open_life's answer tells.

    frame AAD  CBOR["gput/rpc", life, n, "h2d" | "d2h", [SHA-256 of each sealed bulk record]]
    bulk AAD   CBOR["gput/bulk", life, n, index, total]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from shared.canonical import cbor_bytes, sha256
from shared.crypto.aead import OpeningChannel, SealingChannel
from shared.crypto.schedule import lce_label, slot_key
from shared.errors import ProtocolViolation, VerificationFailed

Side = Literal["orchestrator", "gpu"]
_RPC = {"h2d": "cpu_gsp_locked_rpc", "d2h": "gsp_cpu_locked_rpc"}


class CommandChannel:
    """Keys of one life, as one side uses them: the orchestrator seals h2d and opens d2h, the GPU the other way."""

    def __init__(self, export_master_secret: bytes, life: int, side: Side) -> None:
        self.life = life
        self._out, self._in = ("h2d", "d2h") if side == "orchestrator" else ("d2h", "h2d")
        self._seal_rpc = SealingChannel(
            slot_key(export_master_secret, _RPC[self._out]), label=_RPC[self._out], wide=True
        )
        self._open_rpc = OpeningChannel(slot_key(export_master_secret, _RPC[self._in]), label=_RPC[self._in], wide=True)
        # Bulk keys wait for their masks: no record may go out under a mask the peer does not know.
        self._bulk_keys = {d: slot_key(export_master_secret, _lce(d)) for d in ("h2d", "d2h")}
        self._seal_bulk: SealingChannel | None = None
        self._open_bulk: OpeningChannel | None = None

    def set_masks(self, h2d: bytes, d2h: bytes) -> None:
        """IV masks (12 bytes each) of the two bulk keys; once.

        Raises:
            ProtocolViolation: `masks-set`: they were set before.
        """
        if not self._bulk_keys:
            raise ProtocolViolation("the bulk keys have their masks already", code="masks-set")
        masks = {"h2d": h2d, "d2h": d2h}
        keys, self._bulk_keys = self._bulk_keys, {}
        self._seal_bulk = SealingChannel(keys[self._out], label=_lce(self._out), iv_mask=masks[self._out])
        self._open_bulk = OpeningChannel(keys[self._in], label=_lce(self._in), iv_mask=masks[self._in])

    @property
    def sent(self) -> int:
        """Number of the last frame sealed here."""
        return self._seal_rpc.counter

    @property
    def received(self) -> int:
        """Number of the last frame opened here."""
        return self._open_rpc.counter

    def seal(self, payload: bytes, bulk: Sequence[bytes | memoryview] = ()) -> tuple[int, bytes, list[bytes]]:
        """(n, ciphertext, sealed bulk records) of the next frame.

        Raises:
            ProtocolViolation: bulk before the masks, counters or budget exhausted.
        """
        n = self._seal_rpc.counter + 1
        records: list[bytes] = []
        for index, record in enumerate(bulk):
            if self._seal_bulk is None:
                raise ProtocolViolation("bulk records need open_life first", code="no-bulk-keys")
            records.append(self._seal_bulk.seal(record, self._bulk_aad(n, index, len(bulk))))
        return n, self._seal_rpc.seal(payload, self._frame_aad(n, self._out, records)), records

    def open(self, life: int, n: int, ciphertext: bytes, records: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
        """(payload, bulk plaintexts) of the peer's next frame. The frame is authenticated before any bulk record is touched.

        Raises:
            ProtocolViolation: another life or number. VerificationFailed: a tag does not verify.
        """
        if life != self.life or n != self._open_rpc.counter + 1:
            raise ProtocolViolation(
                "the frame is out of order", code="frame-out-of-order",
                expected=f"life {self.life} frame {self._open_rpc.counter + 1}", got=f"life {life} frame {n}",
            )  # fmt: skip
        if records and self._open_bulk is None:
            raise VerificationFailed("bulk records came before open_life", code="no-bulk-keys")
        payload = self._open_rpc.open(ciphertext, self._frame_aad(n, self._in, records))
        plain: list[bytes] = []
        if self._open_bulk is not None:
            for index, record in enumerate(records):
                plain.append(self._open_bulk.open(record, self._bulk_aad(n, index, len(records))))
        return payload, plain

    def erase(self) -> None:
        """Forget every key; any later use raises."""
        self._bulk_keys = {}
        for channel in (self._seal_rpc, self._open_rpc, self._seal_bulk, self._open_bulk):
            if channel is not None:
                channel.erase()

    def _frame_aad(self, n: int, direction: str, records: Sequence[bytes]) -> bytes:
        return cbor_bytes(["gput/rpc", self.life, n, direction, [sha256(record) for record in records]])

    def _bulk_aad(self, n: int, index: int, total: int) -> bytes:
        return cbor_bytes(["gput/bulk", self.life, n, index, total])


def _lce(direction: str) -> str:
    return lce_label(0, "h2d" if direction == "h2d" else "d2h", "kernel")
