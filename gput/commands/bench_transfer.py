"""`gput bench transfer`: how fast records get into GPU memory, beside what cipher and server allow. Knows the bench by its entrances."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from gput.commands.keeping import Keeping, RunsOption, SaveOption, Table
from gput.commands.manners import FormatOption
from gput.files import fleeting
from gput.output import Format, say

FOLDER = "gput-bench-"


def transfer(
    mebibytes: Annotated[int, typer.Option(min=4, max=4096, help="how much a visit brings")] = 256,
    times: Annotated[int, typer.Option(min=1, max=1000, help="transfers over each link")] = 7,
    runs: RunsOption = 1,
    save: SaveOption = None,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """A dataset's file into GPU memory, over the bounce buffer and over HTTP; the limits of either, measured in the same run.

    `ratio`: to publication, everything counted; `moved_ratio`: until the last record is in GPU memory, its tag verified. The same with
    `memory`: of what two cores' cipher moves from memory to memory, where `limit` is a cipher in its cache. Second table: what each
    stage takes for a byte, alone on one core.

    Example:  gput bench transfer --runs 5 --save transfer.json
    """
    keeping = Keeping("transfer", {"mebibytes": mebibytes, "times": times}, save)
    import uvloop

    from gput.bench import transfer_tables as tables
    from gput.local.transfer.bench import measure

    def once() -> tuple[list[Table], dict[str, float]]:
        loop = asyncio.Runner(loop_factory=uvloop.new_event_loop)  # as every service has it
        with fleeting(FOLDER) as folder, loop as runner:
            found = runner.run(measure(folder, mebibytes, times, say))
        shown = [Table(tables.links(found), tables.LINK_COLUMNS), Table(tables.stages(found), tables.STAGE_COLUMNS)]
        return shown, tables.named(found)

    keeping.measure(once, runs, fmt)
