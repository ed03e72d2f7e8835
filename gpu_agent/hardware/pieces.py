"""Extents cut into pieces, and the pieces dealt to those who go over memory side by side. Knows lengths; no byte and no thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

S = TypeVar("S")
T = TypeVar("T")

PIECE: Final = 4 << 20
"""Bytes that one call goes over: a processor's cache still has it when it is read back, and to come back from a call, for which a thread of
the interpreter stands in a queue where all cores are busy, is nothing beside it."""
LEAST: Final = 2
"""Of PIECE bytes, that are worth another thread: of less the caller does all while the other one wakes and finds a core."""

Piece = tuple[int, int, int]
"""Which extent, where in it, how many bytes."""


class SideBySide(Protocol):
    """Those who can work at the same time."""

    @property
    def threads(self) -> int:
        """How many, the caller with them."""

    def __call__(self, work: Callable[[], None], others: int) -> None:
        """Do `work`, and have at most so many others do it too who come before the caller is through; none is at it when this returns."""


class Alone:
    """The caller does everything."""

    threads: Final = 1

    def __call__(self, work: Callable[[], None], others: int) -> None:
        """See `SideBySide`."""
        work()


def cut(lengths: Sequence[int]) -> list[Piece]:
    """Every byte of every extent, in order, in pieces of PIECE bytes; the last one of an extent may be shorter."""
    return [
        (extent, at, min(PIECE, length - at)) for extent, length in enumerate(lengths) for at in range(0, length, PIECE)
    ]


def joined(extents: int, pieces: Sequence[Piece], found: Sequence[bytes]) -> list[bytes]:
    """What was found of each extent's pieces, end to end."""
    parts: list[list[bytes]] = [[] for _ in range(extents)]
    for (extent, _, _), one in zip(pieces, found, strict=True):
        parts[extent].append(one)
    return [b"".join(part) for part in parts]


class Once(Generic[T]):
    """Work that one of several does, whoever comes first."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work, self._chances, self._made = work, [True], list[T]()

    def begin(self) -> None:
        """Do it, unless somebody does already."""
        try:
            self._chances.pop()  # one step of the interpreter: one only has it
        except IndexError:
            return
        self._made.append(self._work())

    def made(self) -> T:
        """What came of it, once nobody is at it any more."""
        self.begin()
        return self._made[0]


def dealt(crew: SideBySide, pieces: Sequence[S], work: Callable[[S], T], least: int = LEAST) -> list[T]:
    """`work` of every piece, in order. Whoever is free takes the next one: one who has to wait for a core holds up no other.

    Args:
        least: pieces that are worth another thread.
    """
    done: dict[int, T] = {}
    left = iter(enumerate(pieces))  # shared: a step of it is one step of the interpreter

    def share() -> None:
        for number, piece in left:
            done[number] = work(piece)

    crew(share, len(pieces) // least - 1)
    return [done[number] for number in range(len(pieces))]
