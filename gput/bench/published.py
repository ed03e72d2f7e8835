"""What the publication's table says, to be printed beside ours: its hardware's figures, never claimed for this machine. Constants only.

"GPU Travelling" (ACM CCS 2025), slides: llm.c training GPT-2, Intel TDX with one NVIDIA H100. The slides do not say what the rows are;
caps of the link in Mbit/s over a chunk of 512 MiB fit the figures best, and that reading is assumed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

CHUNK_BYTES = 512 * 1024 * 1024
"""The chunk that the abstract speaks of, and that the rows fit."""


@dataclass(frozen=True)
class Row:
    """One row: seconds of training and of transfer, for conventional data sharing and for travelling."""

    conventional_train_s: float
    conventional_s: float
    travelling_train_s: float
    travelling_s: float

    @property
    def ratio(self) -> float:
        """How many times longer the conventional transfer takes."""
        return self.conventional_s / self.travelling_s


ROWS: Mapping[float | None, Row] = MappingProxyType({
    4: Row(1230.00, 1115.88, 1230.26, 1.01),
    20: Row(1231.39, 230.84, 1229.39, 1.03),
    100: Row(1231.17, 60.36, 1230.57, 1.02),
    500: Row(1230.73, 15.86, 1229.67, 0.98),
    None: Row(1229.36, 7.34, 1231.46, 0.98),
})  # fmt: skip
"""By the link's cap in Mbit/s; None: not capped."""
TRAIN_S = 1230.0
"""Training on one such chunk: 2.40 s a MiB, the publication's intensity of compute."""


def share(transfer_s: float, train_s: float = TRAIN_S) -> float:
    """Transfer's share of transfer and training."""
    return transfer_s / (transfer_s + train_s)
