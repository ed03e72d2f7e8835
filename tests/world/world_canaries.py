"""What every world's end looks for: any 8-byte window of anybody's canary record on a wire (so in staging, too), on disk, in a log, a
temporary file or GPU memory. Knows no test."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from gpu_agent.unit import GpuUnit
from shared.names import RegionKind, RegionPhase
from shared.service.logging import configure_logging
from tests.world.world import World
from tests.world.world_files import contents_below
from tests.world.world_memory import image
from tests.world.world_search import Search, disguises, windows


@dataclass
class Traces:
    """Where a world may leave traces besides its folder: `words` of all services, and a folder of its own for temporary files."""

    temporary: Path
    words: io.StringIO = field(default_factory=io.StringIO)

    def canaries(self, world: World) -> list[bytes]:
        """Windows of canaries in what the platform sees of a world that has ended, and in a GPU that no holder's visit is on."""
        secrets = world.canaries
        kept = [data for _, data in contents_below(self.temporary)]
        hay = [*world.wire.bodies(), *world.files(), self.words.getvalue().encode(), *kept]
        return _disguised(secrets).find(b"\xff\x00\xff".join(hay)) + _raw(secrets).find(_gpu_memory(world.unit))


@lru_cache(maxsize=4)
def _disguised(secrets: tuple[bytes, ...]) -> Search:
    """Every 8-byte window in every disguise: made once for all worlds of the same material."""
    return Search(needle for secret in secrets for needle in disguises(secret))


@lru_cache(maxsize=4)
def _raw(secrets: tuple[bytes, ...]) -> Search:
    return Search(needle for secret in secrets for needle in windows(secret))


def _gpu_memory(unit: GpuUnit | None) -> bytes:
    """All of the lent GPU's memory, if no buffer is in use: after every scrub nothing of a record may be there (law L7)."""
    if unit is None:
        return b""  # a GPU of the world's own: it lost its power, and its memory, with it
    device = unit.device
    if any(region.phase is not RegionPhase.CLEAN for region in device._state.regions.all(RegionKind.DATASET)):
        return b""
    pages = image(device._hbm, {})
    return b"".join(pages[address] for address in sorted(pages))


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
