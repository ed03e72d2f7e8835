"""BLAKE3 over bytes of a card and of others in turn, made by the card itself: what is read back leaves it as 32 bytes. Knows no message.

The tree of BLAKE3 (its specification, section 2.1) is made level by level: chunks to chaining values, each two to their parent's, an odd
one left as it is until there is another. Bytes are taken a window at a time, each a whole tree below the one over all windows.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import partial
from importlib import resources
from typing import Final, Protocol

import torch
from blake3 import blake3
from torch import Tensor

from gpu_agent.compute.arena import Arena, is_out_of_memory
from gpu_agent.compute.cuda_kernels import Kernels
from gpu_agent.compute.fabric_messages import MAX_MESSAGE
from shared.errors import Unavailable

CHUNK: Final = 1024
WINDOW: Final = 128 << 20
"""Bytes; a power of two. Of a level of fewer values than the card has places for the way there and back is most of the time."""
_WORDS: Final = 8  # of a chaining value, int32 each
_ALIGNED: Final = 16  # so much does a thread read at once
_ROOT: Final = 8  # the specification's flag
_WINDOWS: Final = 4096  # 512 GiB: more than a card has

Part = tuple[bytes, int, int]
"""Bytes that are not the card's, and behind them its `length` bytes from `address` on."""


class Tree(Protocol):
    """One level of the tree, for all of it at once. Chaining values are 8 words of int32, one behind the other."""

    def chunks(self, data: Tensor, first: int, values: Tensor) -> None:
        """Of each 1024 bytes of `data` (uint8, at a multiple of 16) the chaining value; `first`: number of the first in the stream."""

    def parents(self, values: Tensor, count: int, root: bool, above: Tensor) -> None:
        """Of each two of `count` values the parent's; `root`: that of a level of two is the whole stream's."""


class CardTree:
    """The tree's levels on a CUDA device. Raises: Unavailable `cuda-failed`: its kernels are not to be had."""

    def __init__(self, device: str) -> None:
        source = resources.files("gpu_agent.compute").joinpath("blake3.c").read_text()
        self._kernels = Kernels(source, ("chunks", "parents"), device)

    def chunks(self, data: Tensor, first: int, values: Tensor) -> None:
        """See `Tree.chunks`."""
        length, start, to = _u64(data.numel()), _u64(data.data_ptr()), _u64(values.data_ptr())
        self._kernels.start("chunks", _chunks_of(data), start, length, _u64(first), to)

    def parents(self, values: Tensor, count: int, root: bool, above: Tensor) -> None:
        """See `Tree.parents`."""
        flag, start, to = ctypes.c_uint32(_ROOT if root else 0), _u64(values.data_ptr()), _u64(above.data_ptr())
        self._kernels.start("parents", -(-count // 2), start, _u64(count), flag, to)


class Scratch:
    """Memory beside HBM in which digests are made, one at a time: zero between two.

    Args:
        heads: most bytes of the heads of one call.
    """

    def __init__(self, device: torch.device, window: int, heads: int) -> None:
        words = window // CHUNK * _WORDS
        self.window = torch.zeros(window, dtype=torch.uint8, device=device)
        self.heads = torch.zeros(heads, dtype=torch.uint8, device=device)
        self.values = torch.zeros(max(words, _WINDOWS * _WORDS), dtype=torch.int32, device=device)
        self.above = torch.zeros_like(self.values[: self.values.numel() // 2])
        self.roots = torch.zeros(_WINDOWS * _WORDS, dtype=torch.int32, device=device)

    def clear(self) -> None:
        """Zero it: parts of the model were there, and what tells of its chunks."""
        for one in (self.window, self.heads, self.values, self.above, self.roots):
            one.zero_()


class CardHasher:
    """One digest, of more than a chunk.

    Args:
        scratch: zero; it is so again when the digest is made.
    """

    def __init__(self, arena: Arena, tree: Tree, scratch: Scratch) -> None:
        self._arena, self._tree, self._scratch = arena, tree, scratch
        self._at = 0  # bytes of the window
        self._chunks = self._windows = 0  # of the stream, that are done

    def add(self, parts: Sequence[Part]) -> None:
        """What comes next."""
        joined = b"".join(head for head, _, _ in parts)
        with self._arena.work():
            heads = self._scratch.heads[: len(joined)]
            if joined:
                heads.copy_(torch.frombuffer(bytearray(joined), dtype=torch.uint8))
            for head, address, length in parts:
                self._take(heads[: len(head)])
                self._take(self._arena.part(address, length))
                heads = heads[len(head) :]

    def digest(self) -> bytes:
        """BLAKE3 (32 bytes) of all that came. Raises: ValueError: that was no more than a chunk."""
        if not self._windows and self._at <= CHUNK:
            raise ValueError("a chunk is a tree's root by other rules")
        with self._arena.work():
            last = self._scratch.window[: self._at]
            found = self._value_of(last, root=not self._windows)
            if self._windows:
                self._keep(found)
                self._scratch.values[: self._windows * _WORDS] = self._scratch.roots[: self._windows * _WORDS]
                found = self._reduced(self._windows, root=True)
            digest = found.cpu().numpy().astype("<i4").tobytes()
            self._scratch.clear()
        return digest

    def _take(self, source: Tensor) -> None:
        window = self._scratch.window
        while length := source.numel():
            if self._at == window.numel():
                self._keep(self._value_of(window, root=False))
                self._at = 0
            if not self._at and length > window.numel() and not source.data_ptr() % _ALIGNED:  # it need not be moved
                taken = window.numel()
                self._keep(self._value_of(source[:taken], root=False))
            else:
                taken = min(length, window.numel() - self._at)
                window[self._at : self._at + taken].copy_(source[:taken])
                self._at += taken
            source = source[taken:]

    def _keep(self, value: Tensor) -> None:
        at = self._windows * _WORDS
        self._scratch.roots[at : at + _WORDS] = value
        self._windows += 1

    def _value_of(self, data: Tensor, *, root: bool) -> Tensor:
        """The chaining value at the top of a window's tree."""
        self._tree.chunks(data, self._chunks, self._scratch.values)
        self._chunks += _chunks_of(data)
        return self._reduced(_chunks_of(data), root=root)

    def _reduced(self, count: int, *, root: bool) -> Tensor:
        values, above = self._scratch.values, self._scratch.above
        while count > 1:
            self._tree.parents(values, count, root, above)
            values, above, count = above, values, -(-count // 2)
        return values[:_WORDS]


def card_hashing(arena: Arena) -> Callable[[], CardHasher] | None:
    """What begins a digest on the arena's card; None where its kernels or memory for them are not to be had, or where it does not make the
    digests that it should.

    To be called while all of the arena is zero; keeps some memory of the card beside it.
    """
    try:
        tree, scratch = CardTree(str(arena.flat.device)), Scratch(arena.flat.device, WINDOW, MAX_MESSAGE)
        begin = partial(CardHasher, arena, tree, scratch)
        return begin if _makes_the_librarys(begin(), arena.flat.numel()) else None
    except Unavailable:
        return None
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return None


def _makes_the_librarys(hasher: CardHasher, zeros: int) -> bool:
    """Whether it gives the digest that the BLAKE3 library gives, of so many zeros at most and heads that nobody knew."""
    known, room = blake3(max_threads=blake3.AUTO), min(zeros, WINDOW)
    for length in (room, 1, room // 3 + 5):  # heads between them, so that no block is like another of its kind
        head = os.urandom(CHUNK + length % 7)
        hasher.add([(head, 0, length)])
        known.update(head).update(bytes(length))
    return hasher.digest() == known.digest()


def _chunks_of(data: Tensor) -> int:
    return -(-data.numel() // CHUNK)


_u64 = ctypes.c_uint64
