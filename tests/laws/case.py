"""What a monitor judges: a witness's account of one session, its traces on disk and in logs, its visits. Knows no law."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.laws.witness import Message, Witness
from tests.world.world_files import contents_below, paths_below
from tests.world.world_search import Search, disguises, windows

OWN_DATA = "ehr.npz"
OVERLAP = 200


@dataclass
class Checks:
    """A monitor's findings: how many comparisons it made, and in words what did not hold."""

    made: int = 0
    breaches: list[str] = field(default_factory=list)

    def __call__(self, holds: object, otherwise: str) -> None:
        self.made += 1
        if not holds:
            self.breaches.append(otherwise)


@dataclass
class Case:
    """One session so far. `words`: what all services logged; `view` and `visits`: what the owner was last told of the session.

    Traces are searched once, as they come: `outside` keeps what was found in earlier ones.
    """

    witness: Witness
    folder: Path
    words: io.StringIO
    records: dict[str, Needles]
    view: dict[str, Any] = field(default_factory=dict)
    visits: list[dict[str, Any]] = field(default_factory=list)
    outside: Checks = field(default_factory=Checks)
    _messages: int = 0
    _words: int = 0
    _files: dict[Path, tuple[int, int]] = field(default_factory=dict)

    @property
    def timeline(self) -> list[Any]:
        return self.witness.timeline

    def new_traffic(self) -> list[Message]:
        """Messages since this was last asked."""
        begin, self._messages = self._messages, len(self.witness.traffic)
        return self.witness.traffic[begin : self._messages]

    def new_words(self) -> bytes:
        """Log since this was last asked, and a little of what came before: a find may lie across."""
        text = self.words.getvalue()
        begin, self._words = max(0, self._words - OVERLAP), len(text)
        return text[begin:].encode()

    def changed_files(self) -> Iterator[tuple[str, bytes]]:
        """(name, bytes) of files that are new or changed since this was last asked; the services may be at work meanwhile."""
        for path in paths_below(self.folder, {OWN_DATA}):
            with suppress(FileNotFoundError):  # deleted since it was listed: an old checkpoint, a database's journal
                stamp = path.stat().st_mtime_ns, path.stat().st_size
                if self._files.get(path) != stamp:
                    data, self._files[path] = path.read_bytes(), stamp
                    yield path.name, data

    def files(self) -> Iterator[tuple[str, bytes]]:
        """(name, bytes) of all that the services keep on disk, but the holders' own data."""
        for path, data in contents_below(self.folder, {OWN_DATA}):
            yield path.name, data


@dataclass(frozen=True)
class Needles:
    """All of one holder's records: `outside` in every disguise, for what the host can see; `inside` raw, for GPU memory."""

    outside: Search
    inside: Search


def needles(folder: Path) -> Needles:
    """Of the records in a holder's folder. A record's features are its secret; its label alone says nothing."""
    features = np.load(folder / OWN_DATA)["features"]
    raw = [window for row in features for window in windows(row.tobytes(), 8)]
    hidden = [piece for row in features for piece in disguises(row.tobytes(), 8)]
    return Needles(Search([*hidden, *_in_words(features)]), Search(raw))


def _in_words(features: Any) -> Iterator[bytes]:
    """Each value as a person or a JSON encoder would print it; short ones could be anybody's."""
    for value in features.ravel():
        for text in (str(value), repr(float(value))):
            if len(text) >= 10:
                yield text.encode()
