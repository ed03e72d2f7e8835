"""What every world's end looks for: a window of anybody's canary record on a wire, on disk, in a log or a temporary file. Knows no test."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from shared.service.logging import configure_logging
from tests.world.world import World
from tests.world.world_files import contents_below
from tests.world.world_search import Search, disguises


@dataclass
class Traces:
    """Where a world may leave traces besides its folder: `words` of all services, and a folder of its own for temporary files."""

    temporary: Path
    words: io.StringIO = field(default_factory=io.StringIO)

    def canaries(self, world: World) -> list[bytes]:
        """Windows of canaries in what the platform sees of a world that has ended."""
        search = Search(needle for canary in world.material.canaries.values() for needle in disguises(canary, 8))
        kept = [data for _, data in contents_below(self.temporary)]
        hay = [*world.wire.bodies(), *world.files(), self.words.getvalue().encode(), *kept]
        return search.find(b"\xff\x00\xff".join(hay))


@contextmanager
def watched(temporary: Path) -> Iterator[Traces]:
    """Everything is logged, down to the last detail, and temporary files lie where they can be searched."""
    temporary.mkdir(exist_ok=True)
    traces, before = Traces(temporary), tempfile.tempdir
    configure_logging("debug", "json", traces.words)
    tempfile.tempdir = str(temporary)
    try:
        yield traces
    finally:
        tempfile.tempdir = before
        configure_logging("critical", "json")
