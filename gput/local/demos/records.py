"""Demos on records of one table that holders share out unevenly: who gets which, and how alone compares with together. Knows no process."""

from __future__ import annotations

import importlib.util
import shutil
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gput.local.demos.plan import Plan, Step
from shared.errors import Unavailable, installing

if TYPE_CHECKING:
    import numpy as np

    Arrays = dict[str, np.ndarray[Any, Any]]

NAME = 28
TOGETHER, POOLED = "together, by travelling", "pooled, plain PyTorch"


@dataclass(frozen=True)
class Records(Plan):
    """A demo whose data come with scikit-learn, and which is judged on records that no holder has."""

    validation_records: int = 1_000_000  # all that are held out

    one_step_a_round: ClassVar[Mapping[str, int]] = {"rounds": 60, "steps": 1}
    target: ClassVar[str]
    """module:function of its program."""
    columns: ClassVar[tuple[str, ...]]
    """The judge's scores that its table shows."""

    def ready(self) -> None:
        if importlib.util.find_spec("sklearn") is None:
            raise Unavailable(
                f"the demo {self.name!r} takes its data from scikit-learn, which is not installed",
                code="demo-needs-scikit-learn",
                remedy=f"Install the extra: {installing('demos')}.",
            )

    @abstractmethod
    def table(self) -> Arrays:
        """All records, by field of the program's schema, each array (n, *shape)."""

    @abstractmethod
    def shares(self, table: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        """Whose record is which: row numbers by holder and for `held-out`, no row twice."""

    def places(self, target: Path) -> dict[str, Path]:
        return {name: folder / f"{self.dataset}.npz" for name, folder in super().places(target).items()}

    def split(self, target: Path) -> None:
        marker = target / ".complete"
        if marker.exists():
            return
        import numpy as np

        shutil.rmtree(target, ignore_errors=True)
        table = self.table()
        rows = self.shares(table)
        for name, file in self.places(target).items():
            file.parent.mkdir(parents=True)
            np.savez(file, **{field: values[rows[name]] for field, values in table.items()})
        marker.touch()

    def building(self, program: Path) -> Sequence[Step]:
        return [("gput", ["program", "build", self.target, "-o", str(program)])]

    @property
    def judge(self) -> str:
        return "gput.local.demos.compare"

    def result(self, check: Mapping[str, Any]) -> str:
        rows = check["rows"]
        head = f"On {check['held_out']} held-out records"
        lines = [f"\n{head:<{NAME + 2}} records" + "".join(f"{column:>10}" for column in self.columns)]
        for row in rows:
            cells = "".join(f"{row[column]:>10.4f}" for column in self.columns)
            lines.append(f"  {row['trained on']:<{NAME}}{row['records']:>8}{cells}")
        return "\n".join([*lines, *self.remarks(rows)])

    def remarks(self, rows: Sequence[Mapping[str, Any]]) -> Sequence[str]:
        """Further lines under the table."""
        steps = rows[0]["steps"]
        return [f"  each trained {steps} steps of {self.batch} from the same initial weights"]
