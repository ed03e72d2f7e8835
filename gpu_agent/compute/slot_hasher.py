"""BLAKE3 over bytes of a device and of others in turn, through two staging slots: one is hashed while the device fills the other.

Slots are filled to their end whatever the pieces' lengths, so whole blocks only reach the hash, which keeps its speed
(`shared.canonical.block_hasher`). Knows no region and no message.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from blake3 import blake3
from torch import Tensor

from gpu_agent.compute.arena import Arena


class SlotHasher:
    """One digest.

    Args:
        slots: uint8, pinned where the device can pin; the first two are used, and keep what passed through them.
    """

    def __init__(self, arena: Arena, slots: Sequence[Tensor]) -> None:
        self._arena, self._slots = arena, slots[:2]
        self._hasher = blake3(max_threads=blake3.AUTO)
        self._number = self._at = 0  # the slot that is being filled, and how far it is
        self._full: Tensor | None = None  # the other one, while it waits to be hashed

    def add(self, parts: Sequence[tuple[bytes, int, int]]) -> None:
        """What comes next: bytes that are not the device's, and behind them `length` of its from `address` on, and so on."""
        for head, address, length in parts:
            self._head(head)
            self._extent(address, length)

    def _head(self, data: bytes) -> None:
        source = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
        at = 0
        while at < len(data):
            room = self._room(len(data) - at)
            room.copy_(source[at : at + room.numel()])
            at += room.numel()

    def _extent(self, address: int, length: int) -> None:
        end = address + length
        while address < end:
            room = self._room(end - address)
            self._arena.fetch(room, address)
            address += room.numel()

    def _room(self, wanted: int) -> Tensor:
        """Where the next bytes go, as many as still fit."""
        if self._at == self._slots[self._number].numel():
            self._turn()
        slot = self._slots[self._number]
        start, self._at = self._at, min(self._at + wanted, slot.numel())
        return slot[start : self._at]

    def _turn(self) -> None:
        if self._full is not None:
            self._hasher.update(self._full.numpy().data)
        self._arena.fetched()
        self._full, self._number, self._at = self._slots[self._number], 1 - self._number, 0

    def digest(self) -> bytes:
        """BLAKE3 (32 bytes) of all that came."""
        filled = self._slots[self._number][: self._at]
        self._arena.fetched()
        if self._full is not None:
            self._hasher.update(self._full.numpy().data)
        self._hasher.update(filled.numpy().data)
        found = self._hasher.digest()
        self._hasher.reset()  # it buffers up to a block of its own
        return found
