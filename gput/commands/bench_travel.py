"""`gput bench travel` and `gput bench ablation`: the publications' tables on this machine. Knows the benches by their entrances only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gput.commands.keeping import Keeping, RunsOption, SaveOption, Table
from gput.commands.manners import FormatOption
from gput.files import fleeting
from gput.output import Format, say
from gput.stop_signals import run_in_order
from shared.errors import BadRequest
from shared.names import TravelMode

if TYPE_CHECKING:
    from gput.bench.travelling import Study

FOLDER = "gput-bench-"


def travel(
    visits: Annotated[int, typer.Option(min=1, help="transfers of each way, for each rate and buffer")] = 5,
    steps: Annotated[
        str, typer.Option(help="sizes of the buffer, at least two: training steps of a visit, 256 KiB of records each")
    ] = "1,8,64",
    rates: Annotated[str, typer.Option(help="Mbit/s of the link between the virtual machines")] = "500,100,20,4",
    mode: Annotated[TravelMode, typer.Option(help="how it travels")] = TravelMode.SCOPED,
    runs: RunsOption = 1,
    save: SaveOption = None,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Conventional data sharing against travelling, by link rate and buffer size; the publication's figures beside ours.

    Real processes and real encryption; every byte over a link is paced and counted. Tables: counters, seconds with what a model predicts
    that was told two cells of each way (and its error), shares of training, one set of records by buffers of different size, and the
    publication's rows beside that model's at 512 MiB, which is not measured here.

    Example:  gput bench travel --rates 100,20 --steps 1,4
    """
    capped, lengths = _numbers(rates, "--rates"), [int(one) for one in _numbers(steps, "--steps")]
    if len(set(lengths)) < 2 or min(lengths) < 1:
        raise BadRequest("--steps needs two different sizes or more", code="bad-sizes", remedy="For example 1,8,64.")
    keeping = Keeping("travel", {"visits": visits, "steps": steps, "rates": rates, "mode": mode.value}, save)
    from gput.bench.travel_tables import named
    from gput.local.travel.bench import study

    def once() -> tuple[list[Table], dict[str, float]]:
        with fleeting(FOLDER) as folder:
            found = run_in_order(study(folder, [None, *capped], lengths, mode, visits, say))
        return _tables(found), named(found)

    keeping.measure(once, runs, fmt)


def ablation(
    steps: Annotated[int, typer.Option(min=2, help="training steps of a visit, 256 KiB of records each")] = 64,
    times: Annotated[int, typer.Option(min=1, help="transfers and visits of each kind")] = 7,
    runs: RunsOption = 1,
    save: SaveOption = None,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """What each switch of the data path is worth: re-encrypt or direct, overlap on or off, MAC chains; beside a timeline's prediction.

    First table: records into GPU memory. `timeline_s` is predicted from the stages of the first row alone. Second table: whole visits
    without their training, by travel mode; `direct` loads the next holder's records while the GPU trains. Third table: a visit's records
    sealed as 1, 2 and 4 independent chains.

    Example:  gput bench ablation --times 5
    """
    keeping = Keeping("ablation", {"steps": steps, "times": times}, save)
    from gput.bench import ablation as tables
    from gput.local.travel.ablation import ablate

    def once() -> tuple[list[Table], dict[str, float]]:
        with fleeting(FOLDER) as folder:
            paths, visits, chains = run_in_order(ablate(folder, steps, times, say)).tables()
        shown = [
            Table(paths, tables.PATH_COLUMNS), Table(visits, tables.VISIT_COLUMNS), Table(chains, tables.CHAIN_COLUMNS),
        ]  # fmt: skip
        return shown, tables.named(paths, visits, chains)

    keeping.measure(once, runs, fmt)


def _tables(found: Study) -> list[Table]:
    from gput.bench import travel_tables as tables

    return [
        Table(tables.counters(found), tables.COUNTER_COLUMNS),
        Table(tables.seconds(found), tables.SECONDS_COLUMNS),
        Table(tables.shares(found), tables.SHARE_COLUMNS),
        Table(tables.buffers(found), tables.BUFFER_COLUMNS),
        Table(tables.beside(found), tables.PAPER_COLUMNS),
    ]


def _numbers(text: str, option: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < one < float("inf") for one in found):
        raise BadRequest(
            f"{option} takes numbers above zero, separated by commas, not {text[:100]!r}", code="bad-numbers"
        )
    return found
