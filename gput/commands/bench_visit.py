"""`gput bench visit`: what a visit costs step by step, with three holders or with many. Knows the bench by its entrances only."""

from __future__ import annotations

from typing import Annotated

import typer

from gput.commands.keeping import Keeping, RunsOption, SaveOption, Table
from gput.commands.manners import FormatOption
from gput.files import fleeting
from gput.output import Format, say
from gput.stop_signals import run_in_order
from shared.errors import BadRequest

FOLDER = "gput-bench-"
LEAST, MOST = 3, 256


def visit(
    visits: Annotated[int, typer.Option(min=6, help="how many visits")] = 200,
    holders: Annotated[
        str | None,
        typer.Option(
            help="how many holders, a process each; several numbers: one after the other. Default: the demo's three"
        ),
    ] = None,
    runs: RunsOption = 1,
    save: SaveOption = None,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Cost of a visit by step (ms: median, p99), over short visits of a 1.2 M-parameter model; memory of each service; what this machine
    takes for a durable write and for a call, which is what steps are made of.

    With `--holders` the same model travels among so many holders of made-up records, whose first round is not counted; `flatness` is the
    control cost with the most holders ÷ that with the fewest. A holder is a process of some 100 MB.

    Example:  gput bench visit --visits 200 --holders 3,30,100
    """
    from gput.local import visit_bench

    if holders is None:
        _demo(Keeping("visit", {"visits": visits}, save), visits, runs, fmt)
        return
    numbers = _numbers(holders)
    keeping = Keeping("visit", {"visits": visits, "holders": ",".join(map(str, numbers))}, save)

    def once() -> tuple[list[Table], dict[str, float]]:
        found = {}
        for number in numbers:
            with fleeting(FOLDER) as folder:
                found[number] = run_in_order(visit_bench.crowded(folder, visits, number, say))
        tables = [
            Table([{"holders": number, **row} for row in rows], ("holders", *columns))
            for number, (steps, memory) in found.items()
            for rows, columns in ((steps, visit_bench.STEP_COLUMNS), (memory, visit_bench.MEMORY_COLUMNS))
        ]
        return tables, visit_bench.named_by_holders(found)

    keeping.measure(once, runs, fmt)


def _demo(keeping: Keeping, visits: int, runs: int, fmt: Format) -> None:
    from gput.local import visit_bench

    def once() -> tuple[list[Table], dict[str, float]]:
        with fleeting(FOLDER) as folder:
            steps, memory, limits = run_in_order(visit_bench.visits(folder, visits, say))
        tables = [
            Table(steps, visit_bench.STEP_COLUMNS),
            Table(memory, visit_bench.MEMORY_COLUMNS),
            Table(limits.rows(), visit_bench.LIMIT_COLUMNS),
        ]
        return tables, visit_bench.named(steps, memory) | limits.named()

    keeping.measure(once, runs, fmt)


def _numbers(text: str) -> list[int]:
    """Rising, each once."""
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < LEAST or found[-1] > MOST:
        raise BadRequest(
            f"--holders takes numbers from {LEAST} to {MOST}, separated by commas, not {text[:100]!r}",
            code="bad-numbers",
        )
    return found
