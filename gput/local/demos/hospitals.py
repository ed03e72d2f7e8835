"""The demo of three hospitals: who has which of the Wisconsin breast-cancer records, and in what ranges they lie. Knows no process.

Records: Wolberg, Mangasarian, Street and Street 1995, "Breast Cancer Wisconsin (Diagnostic)", as scikit-learn carries them: 569 fine-needle
aspirates, 30 figures each, 212 malignant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from gput.local.demos.plan import HELD_OUT
from gput.local.demos.records import Records
from shared.claims.training import AdamW, TrainingOptions

if TYPE_CHECKING:
    import numpy as np

    from gput.local.demos.records import Arrays

Triple = tuple[float, float, float]
"""Of the cells of one image: mean, standard error, mean of the three worst."""


@dataclass(frozen=True)
class Measure:
    """One quantity of a cell nucleus: its valid range, and what standardises it. All is declared, nothing computed from records."""

    name: str
    high: float
    centre: Triple
    spread: Triple


MEASURES: Final = (
    Measure("radius", 60, (15, 0.5, 17), (4, 0.4, 6)),
    Measure("texture", 80, (20, 1.2, 26), (5, 0.6, 6)),
    Measure("perimeter", 400, (95, 3, 110), (25, 2, 35)),
    Measure("area", 8000, (650, 40, 900), (350, 45, 600)),
    Measure("smoothness", 0.5, (0.1, 0.007, 0.13), (0.015, 0.003, 0.025)),
    Measure("compactness", 2.5, (0.1, 0.025, 0.25), (0.05, 0.02, 0.15)),
    Measure("concavity", 3, (0.1, 0.03, 0.3), (0.08, 0.03, 0.2)),
    Measure("concave_points", 0.6, (0.05, 0.012, 0.12), (0.04, 0.006, 0.065)),
    Measure("symmetry", 1.5, (0.18, 0.02, 0.3), (0.03, 0.008, 0.06)),
    Measure("fractal_dimension", 0.5, (0.06, 0.004, 0.08), (0.007, 0.003, 0.02)),
)
"""Rounded from the table of ranges in the records' own public description; hospitals would take them from their common protocol."""
STATISTICS: Final = ("mean", "error", "worst")
LABEL: Final = "malignant"
HELD_OUT_SHARE: Final = 0.3
BENIGN: Final = {"screening": 0.60, "county": 0.25, "oncology": 0.15}
MALIGNANT: Final = {"screening": 0.04, "county": 0.36, "oncology": 0.60}
"""Each hospital's share of what is not held out."""
SIZE_NOISE: Final = 2.0
"""How far from the order of their size malignant cases are dealt out, in units of the radius."""


@dataclass(frozen=True)
class Hospitals(Records):
    """A screening centre sees many and hardly one ill, an oncology clinic mostly large tumours, the county hospital some of both."""

    rounds: int = 10
    steps: int = 4

    name: ClassVar[str] = "hospitals"
    title: ClassVar[str] = "demo: one breast-cancer classifier from three hospitals"
    holders: ClassVar[tuple[str, ...]] = ("screening", "county", "oncology")
    dataset: ClassVar[str] = "records"
    program: ClassVar[str] = "hospitals.gput"
    loss_unit: ClassVar[str] = "nats"
    target: ClassVar[str] = "gput.local.demos.programs:hospitals"
    columns: ClassVar[tuple[str, ...]] = ("AUC", "accuracy", "found", "loss")

    def table(self) -> Arrays:
        import numpy as np
        from sklearn.datasets import load_breast_cancer

        found = load_breast_cancer()
        # 30 columns: the ten means, the ten errors, the ten worst.
        values = found.data.astype(np.float32).reshape(-1, len(STATISTICS), len(MEASURES))
        table = {measure.name: values[:, :, place] for place, measure in enumerate(MEASURES)}
        return {**table, LABEL: (found.target == list(found.target_names).index(LABEL)).astype(np.int64)}

    def shares(self, table: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        import numpy as np

        draws = np.random.default_rng(self.seed)
        ill = draws.permutation(np.flatnonzero(table[LABEL] == 1))
        well = draws.permutation(np.flatnonzero(table[LABEL] == 0))
        held_ill, held_well = round(len(ill) * HELD_OUT_SHARE), round(len(well) * HELD_OUT_SHARE)
        held, ill, well = np.concatenate([ill[:held_ill], well[:held_well]]), ill[held_ill:], well[held_well:]
        size = table["radius"][ill, 0] + draws.normal(0.0, SIZE_NOISE, len(ill))
        dealt = _deal(ill[np.argsort(size)], MALIGNANT), _deal(well, BENIGN)
        mine = {name: draws.permutation(np.concatenate([part[name] for part in dealt])) for name in self.holders}
        return {**mine, HELD_OUT: held}

    def remarks(self, rows: Sequence[Mapping[str, Any]]) -> Sequence[str]:
        return ["  found: of the malignant ones, the share that is called so", *super().remarks(rows)]

    def training(self) -> TrainingOptions:
        return TrainingOptions(optimizer=AdamW(lr=5e-3), batch_size=self.batch, seed=self.seed)


def _deal(rows: np.ndarray[Any, Any], shares: dict[str, float]) -> dict[str, np.ndarray[Any, Any]]:
    """Rows in their order, dealt out by shares that add up to one."""
    import numpy as np

    ends = [round(float(end) * len(rows)) for end in np.cumsum(list(shares.values()))]
    return dict(zip(shares, np.split(rows, ends[:-1]), strict=True))
