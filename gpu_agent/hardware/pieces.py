"""Extents cut into pieces, and the pieces dealt to those who go over memory side by side. Knows lengths; no byte and no thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

T = TypeVar("T")

PIECE: Final = 1 << 20
"""Bytes that one call goes over: with what it writes it stays in a core's cache, and the call itself is nothing beside them."""
LEAST: Final = 2
"""Pieces that are worth another thread; waking one takes as long as going over one."""

Piece = tuple[int, int, int]
"""Which extent, where in it, how many bytes."""


class SideBySide(Protocol):
    """Those who can work at the same time."""

    @property
    def threads(self) -> int:
        """How many, the caller with them."""

    def __call__(self, parts: Sequence[Callable[[], T]]) -> list[T]:
        """Do all parts; what each gives, in order."""


class Alone:
    """The caller does everything."""

    threads: Final = 1

    def __call__(self, parts: Sequence[Callable[[], T]]) -> list[T]:
        """See `SideBySide`."""
        return [part() for part in parts]


def cut(lengths: Sequence[int]) -> list[Piece]:
    """Every byte of every extent, in order, in pieces of PIECE bytes; the last one of an extent may be shorter."""
    return [
        (extent, at, min(PIECE, length - at)) for extent, length in enumerate(lengths) for at in range(0, length, PIECE)
    ]


def dealt(crew: SideBySide, pieces: Sequence[Piece], work: Callable[[Piece], T]) -> list[T]:
    """`work` of every piece, in order. Neighbours go to one thread: memory is faster where one goes on."""
    ways = max(1, min(crew.threads, len(pieces) // LEAST))
    step = -(-len(pieces) // ways) or 1
    shares = [pieces[at : at + step] for at in range(0, len(pieces), step)]
    return [done for share in crew([_all(work, share) for share in shares]) for done in share]


def _all(work: Callable[[Piece], T], share: Sequence[Piece]) -> Callable[[], list[T]]:
    return lambda: [work(piece) for piece in share]
