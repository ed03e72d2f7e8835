"""What the commands of `gput bench` have in common: several runs, the file that keeps what they found, and how either is shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gput.bench.figures import BENCHES, figures
from gput.bench.machine import machine, program
from gput.bench.result import Result, moment, write
from gput.files import distinct, place_for
from gput.output import Format, emit, emit_tables, say

if TYPE_CHECKING:
    from gput.bench.result import Figure

RunsOption = Annotated[
    int, typer.Option(min=1, max=1000, help="do it so often; prints each figure's median, least and most")
]
SaveOption = Annotated[
    Path | None, typer.Option("--save", help="also write the result to this file (JSON), for `gput bench compare`")
]


@dataclass(frozen=True)
class Table:
    """Rows as a bench prints them, and the columns that people see."""

    rows: Iterable[Mapping[str, Any]]
    columns: Sequence[str]


class Keeping:
    """One bench under way. Made before it begins: an unwritable file is refused then, and the machine is described as it was then.

    Args:
        reads: what the bench itself reads, which is not to be written over.

    Raises:
        BadRequest `cannot-write`; `same-file`.
    """

    def __init__(
        self, bench: str, parameters: Mapping[str, int | float | str | None], save: Path | None,
        reads: Sequence[Path | None] = (),
    ) -> None:  # fmt: skip
        self._bench, self._parameters, self._save = bench, dict(parameters), save
        if save is not None:
            distinct([save], reads)
            place_for(save)
            self._machine, self._program = machine(BENCHES[bench].pytorch), program()
            self._at = moment(time.time())

    def measure(
        self, once: Callable[[], tuple[Sequence[Table], Mapping[str, float]]], runs: int, fmt: Format,
        outcome: Mapping[str, int | float | str | None] | None = None,
    ) -> None:  # fmt: skip
        """Run a bench so often, print what it found, keep it (`outcome` as `keep`). One run prints its own tables, several each figure's
        median and spread."""
        found = []
        for number in range(1, runs + 1):
            if runs > 1:
                say(f"run {number} of {runs} …")
            tables, values = once()
            found.append(values)
        if runs == 1:
            emit_tables([(table.rows, table.columns) for table in tables], fmt)
        else:
            emit(_spread(figures(self._bench, found)), ("figure", "unit", "median", "least", "most"), fmt)
        self.keep(found, outcome)

    def keep(
        self, runs: Sequence[Mapping[str, float]], outcome: Mapping[str, int | float | str | None] | None = None
    ) -> None:
        """Write the file, if one was asked for. `outcome`: further parameters, which only the bench itself could tell."""
        if self._save is None:
            return
        found, parameters = figures(self._bench, runs), self._parameters | dict(outcome or {})
        write(self._save, Result(
            bench=self._bench, parameters=parameters, at=self._at, program=self._program, machine=self._machine, figures=found,
        ))  # fmt: skip
        say(f"wrote {self._save}")


def _spread(found: Mapping[str, Figure]) -> list[dict[str, Any]]:
    return [
        {"figure": name, "unit": one.unit, "median": one.median, "least": one.least, "most": one.most, "runs": one.runs}
        for name, one in found.items()
    ]
