"""Both ways over the same records and program, one after the other, for `gput bench travel`. Knows their entrances only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gput.bench.travelling import Study
from gput.local.job import Say
from gput.local.lengths_bench import LARGE
from gput.local.travel.conventional import Sharing
from gput.local.travel.sharing import CHUNK_BYTES
from gput.local.travel.visits import Tour
from shared.names import TravelMode


async def study(
    folder: Path, rates: Sequence[float | None], steps: Sequence[int], mode: TravelMode, times: int, say: Say
) -> Study:
    """All cells of both ways. The conventional one carries exactly as many bytes as visits of so many steps.

    Raises:
        JobFailed: a session did not go on, or the GPU holds other records than were sent. Unavailable: a process did not start.
    """
    load = replace(LARGE, steps=tuple(sorted(set(steps))), mode=mode)
    travelled = await Tour(folder / "travelling", load, say).cells(rates, times)
    lengths = sorted({one.length for one in travelled})
    records = folder / "records"
    records.write_bytes(made_up(folder / "travelling" / "data" / "h000.npz", lengths[-1]))
    shared = Sharing(folder / "conventional", folder / "travelling" / "program.gput", records, lengths, say)
    return Study.of([*await shared.cells(rates, times), *travelled], CHUNK_BYTES)


def made_up(file: Path, length: int) -> bytes:
    """So many bytes of what a travelling holder has: records, field after field."""
    import numpy as np  # here: every command would pay for it

    with np.load(file) as arrays:
        found = b"".join(arrays[name].tobytes() for name in arrays.files)
    return found[:length].ljust(length, b"\0")
