"""The demo of handwritten digits over five holders, each of which has hardly more than two kinds of them. Knows no process.

Images: Alpaydin and Kaynak 1998, "Optical Recognition of Handwritten Digits", the 1,797 that scikit-learn carries: 8 × 8 pixels of 0 to 16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from gput.local.demos.plan import HELD_OUT
from gput.local.demos.records import NAME, Records
from gput.tours import Tours
from shared.claims.training import AdamW, TrainingOptions

if TYPE_CHECKING:
    import numpy as np

    from gput.local.demos.records import Arrays

IMAGE, LABEL = "image", "label"
SIDE, HIGHEST, CLASSES = 8, 16, 10
HELD_OUT_SHARE: Final = 0.25
OWN_SHARE: Final = 0.92
"""Of the two digits that are mostly a holder's, so much is its own; the rest is dealt out among the others."""


@dataclass(frozen=True)
class Digits(Records):
    """Holder number i has mostly the digits 2i and 2i + 1. A round is one collected tour: nobody's digits come last."""

    rounds: int = 30
    steps: int = 2
    tours: Tours | None = Tours.COLLECT

    name: ClassVar[str] = "digits"
    title: ClassVar[str] = "demo: one reader of handwritten digits from five holders"
    holders: ClassVar[tuple[str, ...]] = ("ada", "blaise", "carl", "dorothy", "emmy")
    dataset: ClassVar[str] = "images"
    program: ClassVar[str] = "digits.gput"
    loss_unit: ClassVar[str] = "nats"
    target: ClassVar[str] = "gput.local.demos.programs:digits"
    columns: ClassVar[tuple[str, ...]] = ("accuracy", "loss")

    def table(self) -> Arrays:
        import numpy as np
        from sklearn.datasets import load_digits

        found = load_digits()
        return {IMAGE: found.images.astype(np.float32), LABEL: found.target.astype(np.int64)}

    def shares(self, table: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        import numpy as np

        draws = np.random.default_rng(self.seed)
        parts: dict[str, list[Any]] = {name: [] for name in (*self.holders, HELD_OUT)}
        for digit in range(CLASSES):
            rows = draws.permutation(np.flatnonzero(table[LABEL] == digit))
            held = round(len(rows) * HELD_OUT_SHARE)
            own = held + round((len(rows) - held) * OWN_SHARE)
            owner = self.holders[digit // 2]
            parts[HELD_OUT].append(rows[:held])
            parts[owner].append(rows[held:own])
            others = [name for name in self.holders if name != owner]
            for name, share in zip(others, np.array_split(rows[own:], len(others)), strict=True):
                parts[name].append(share)
        return {name: draws.permutation(np.concatenate(share)) for name, share in parts.items()}

    def training(self) -> TrainingOptions:
        return TrainingOptions(optimizer=AdamW(lr=3e-3), batch_size=self.batch, seed=self.seed)

    def remarks(self, rows: Sequence[Mapping[str, Any]]) -> Sequence[str]:
        lines = [f"\n{'Accuracy on each digit':<{NAME + 2}}" + "".join(f"{digit:>5}" for digit in range(CLASSES))]
        for row in rows:
            lines.append(f"  {row['trained on']:<{NAME}}" + "".join(f"{score:>5.2f}" for score in row["per class"]))
        return [*super().remarks(rows), *lines]
