"""Runs the rows of the ablation: the conventional path with and without overlap, visits of each travel mode and of several MAC chains.

Knows their entrances.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gput.bench import ablation as tables
from gput.bench.timeline import Stages
from gput.bench.travelling import Cell, middle
from gput.local.job import Say
from gput.local.lengths_bench import LARGE
from gput.local.travel.bench import made_up
from gput.local.travel.chains import chained
from gput.local.travel.conventional import Sharing, Taken
from gput.local.travel.visits import Tour
from shared.names import TravelMode
from shared.protocol.travel import TRAVEL

MODES = (TravelMode.SCOPED, TravelMode.PAPER, TravelMode.DIRECT)


@dataclass(frozen=True)
class Found:
    """What was measured: the base's stages, records and bytes of a transfer, paths, visits by mode and by MAC chains."""

    stages: Stages
    records: int
    length: int
    paths: Sequence[tables.Path]
    cells: dict[str, Cell]
    chained: Sequence[tables.Chained]

    def tables(self) -> tuple[list[dict[str, object]], list[dict[str, object]], list[dict[str, object]]]:
        """Rows of the paths, of the visits, of the chains."""
        ahead = {mode.value: TRAVEL[mode].ahead for mode in MODES}
        return (
            tables.paths(self.stages, self.records, self.length, self.paths),
            tables.visits(self.cells, ahead),
            tables.chains(self.chained),
        )


async def ablate(folder: Path, steps: int, times: int, say: Say) -> Found:
    """Every row, over one link that is not capped.

    Raises:
        JobFailed: a session did not go on, or the GPU holds other records than were sent. Unavailable: a process did not start.
    """
    cells = {}
    for mode in MODES:
        say(f"visits in mode {mode} …")
        load = replace(LARGE, steps=(steps,), mode=mode)
        (cells[mode.value],) = await Tour(folder / mode.value, load, say).cells([None], times)
    first = folder / MODES[0].value
    length = cells[MODES[0].value].length
    records = folder / "records"
    records.write_bytes(made_up(first / "data" / "h000.npz", length))
    sharing = Sharing(folder / "conventional", first / "program.gput", records, [length], say)
    turns, together = await sharing.ablation(times)
    direct = cells[MODES[0].value]
    base = sorted(turns, key=lambda one: one.seconds)[len(turns) // 2]  # whole: its stages add up to its own time
    paths = [
        _path("re-encrypt", False, turns),
        _path("re-encrypt", True, together),
        # The holder's own timers: sealing ahead, one leg, opened by the GPU before it acknowledges.
        tables.Path("direct", True, direct.holder_s or 0.0, direct.holder_half or (0.0, 0.0), direct.operations),
    ]
    return Found(base.stages, base.records, length, paths, cells, await chained(folder, steps, times, say))


def _path(name: str, overlap: bool, taken: Sequence[Taken]) -> tables.Path:
    seconds = [one.seconds for one in taken]
    return tables.Path(name, overlap, statistics.median(seconds), middle(seconds), taken[0].operations)
