"""Searching for secrets: many needles, in their common disguises, in much hay at once. Knows no protocol and no secret."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

WINDOW = 8
PIECE = 12  # characters of base64: nine bytes of the secret


def windows(secret: bytes, step: int = 1) -> Iterator[bytes]:
    """8-byte windows of a secret. With `step` 8, whatever holds 15 bytes of it in a row holds one of them whole."""
    for at in range(0, len(secret) - WINDOW + 1, step):
        yield secret[at : at + WINDOW]


def disguises(secret: bytes, step: int = 1) -> set[bytes]:
    """A secret's windows as they would look raw, in hex, and in base64 (both alphabets) at each alignment."""
    raw = list(windows(secret, step))
    found = {*raw, *(window.hex().encode() for window in raw), *(window.hex().upper().encode() for window in raw)}
    for shift in range(3):
        text = base64.b64encode(secret[shift:]).rstrip(b"=")
        pieces = [text[at : at + PIECE] for at in range(0, len(text) - PIECE + 1, min(4 * step, PIECE))]
        found |= {*pieces, *(piece.translate(_URL_SAFE) for piece in pieces)}
    return found


_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class Search:
    """Finds any of many needles (at least 8 bytes each) in one pass: by their first two bytes, then eight, then whole."""

    def __init__(self, needles: Iterable[bytes]) -> None:
        by_start: defaultdict[int, list[bytes]] = defaultdict(list)
        for needle in set(needles):
            assert len(needle) >= WINDOW, "too short to tell a find from chance"
            by_start[int.from_bytes(needle[:WINDOW], "little")].append(needle)
        self._needles = dict(by_start)
        self._starts = np.array(sorted(by_start), np.uint64)
        self._begins = np.zeros(1 << 16, bool)
        self._begins[(self._starts & np.uint64(0xFFFF)).astype(int)] = True

    def __len__(self) -> int:
        return sum(map(len, self._needles.values()))

    def find(self, hay: bytes) -> list[bytes]:
        """The needles that occur in `hay`, each once."""
        size = len(hay) - WINDOW + 1
        if size < 1 or not self._needles:
            return []
        pairs, starts = np.ndarray(size, "<u2", hay, 0, (1,)), np.ndarray(size, "<u8", hay, 0, (1,))
        places = np.flatnonzero(self._begins[pairs])
        values = starts[places]
        near = np.minimum(np.searchsorted(self._starts, values), len(self._starts) - 1)
        hits = self._starts[near] == values
        found: dict[bytes, None] = {}
        for at, value in zip(places[hits].tolist(), values[hits].tolist(), strict=True):
            found |= dict.fromkeys(n for n in self._needles[value] if hay.startswith(n, at))
        return list(found)


def leaks(haystacks: Iterable[bytes], needles: Iterable[bytes]) -> list[bytes]:
    """Needles that occur in any haystack."""
    return Search(needles).find(b"\xff\x00\xff".join(haystacks))
