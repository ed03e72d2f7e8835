"""Conventional data sharing against travelling: cells of rate and buffer, a model fitted on two of them that predicts the others.

Arithmetic over what was counted and measured elsewhere; knows no process, no clock and no file.

    T(rate, bytes) = fixed + work(first chunk) + max(work(the rest), wire bytes / rate)

Work grows with the bytes. Where records follow one another, the next travels while the last is worked on: all but one chunk's work hides
behind the wire, or the wire behind the work. Where what crosses the link comes in turns of question and answer (travelling), nothing hides.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gput.bench.bucket import bytes_per_s
from shared.errors import BadRequest

Half = tuple[float, float]


def middle(values: Sequence[float]) -> Half:
    """Between what the middle half of the values lies; of one value that value twice."""
    if len(values) < 2:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


class Way(StrEnum):
    """How records reach the GPU."""

    CONVENTIONAL = "conventional"
    TRAVELLING = "travelling"


@dataclass(frozen=True)
class Traffic:
    """What crossed a link: bytes to the server and back, round trips (a question and the first byte of its answer)."""

    up: float = 0
    down: float = 0
    turns: float = 0

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(self.up - other.up, self.down - other.down, self.turns - other.turns)

    def __truediv__(self, count: float) -> Traffic:
        return Traffic(self.up / count, self.down / count, self.turns / count)

    @property
    def bytes(self) -> float:
        """Both directions."""
        return self.up + self.down


@dataclass(frozen=True)
class Cell:
    """One way, one rate, one buffer: what `length` bytes of records into GPU memory take. Over `count` transfers: seconds are medians, the
    rest means.

    Attributes:
        rate: of the link between the virtual machines, Mbit/s; None: not capped.
        seconds: from the first act to records that the GPU may train on; for travelling all of a visit but its training.
        between: what crossed the link between the virtual machines. holder_gpu, orchestrator_gpu: the links to the GPU.
        operations: sealings and openings of record data.
        train_s: seconds of training on these records, where they were trained on.
        holder_s: what the holder's five timers say, where there are such.
        half, holder_half: between which seconds the middle half of the transfers lay, and of the timers; None: unknown.
    """

    way: Way
    rate: float | None
    length: int
    count: int
    seconds: float
    between: Traffic
    holder_gpu: Traffic
    orchestrator_gpu: Traffic
    operations: float
    train_s: float | None = None
    holder_s: float | None = None
    half: Half | None = None
    holder_half: Half | None = None

    @property
    def name(self) -> str:
        """For figures."""
        return f"{self.way}.{place(self.rate, self.length)}"


def label(rate: float | None) -> str:
    """A rate as the publication's rows are called."""
    return "uncapped" if rate is None else f"{rate:g}M"


def place(rate: float | None, length: int) -> str:
    """A rate and a length as part of a figure's name."""
    return f"{'uncapped' if rate is None else f'{rate:g}mbit'}.{length}"


@dataclass(frozen=True)
class Line:
    """y = at_zero + slope · x."""

    at_zero: float
    slope: float

    def at(self, x: float) -> float:
        """y."""
        return self.at_zero + self.slope * x

    @classmethod
    def through(cls, x1: float, y1: float, x2: float, y2: float) -> Line:
        """The straight line through two points, neither falling nor below zero at 0: no time and no byte count is."""
        slope = max(0.0, (y2 - y1) / (x2 - x1))
        return cls(max(0.0, y1 - slope * x1), slope)


@dataclass(frozen=True)
class Model:
    """How one way's seconds come about. `chunk`: bytes of a record where records follow one another, None where nothing overlaps."""

    seconds: Line
    wire: Line
    chunk: int | None

    def predict(self, rate: float | None, length: int) -> float:
        """Seconds of a transfer of `length` bytes, the link between the virtual machines capped at `rate` Mbit/s."""
        per_s = bytes_per_s(rate)
        wire_s = 0.0 if per_s is None else self.wire.at(length) / per_s
        work_s = self.seconds.slope * length
        hides = 0.0 if self.chunk is None else max(0.0, work_s - self.seconds.slope * self.chunk)
        return self.seconds.at_zero + (work_s - hides) + max(hides, wire_s)

    @classmethod
    def calibrated(cls, few: Cell, many: Cell, chunk: int | None) -> Model:
        """From the shortest and the longest transfer over the uncapped link: two points for two unknowns, and no other is looked at.

        Raises:
            BadRequest: they say nothing about how time grows with bytes.
        """
        if few.rate is not None or many.rate is not None or few.length >= many.length:
            raise BadRequest(
                "calibration needs two uncapped transfers, of different lengths", code="nothing-to-calibrate"
            )
        seconds = Line.through(few.length, few.seconds, many.length, many.seconds)
        return cls(seconds, Line.through(few.length, few.between.bytes, many.length, many.between.bytes), chunk)


@dataclass(frozen=True)
class Study:
    """All cells of both ways, each way's model, and which cells it was calibrated on."""

    cells: tuple[Cell, ...]
    models: dict[Way, Model]

    @classmethod
    def of(cls, cells: Iterable[Cell], chunk: int) -> Study:
        """Raises: BadRequest: a way lacks the cells that calibrate it."""
        found = tuple(cells)
        models = {way: _model(way, found, chunk) for way in Way}
        return cls(found, models)

    def cell(self, way: Way, rate: float | None, length: int) -> Cell:
        """The measured cell. Raises: BadRequest: it was not measured."""
        for one in self.cells:
            if (one.way, one.rate, one.length) == (way, rate, length):
                return one
        raise BadRequest(f"{way} at {label(rate)} with {length} bytes was not measured", code="not-measured")

    @property
    def rates(self) -> list[float | None]:
        """As they were measured."""
        return list(dict.fromkeys(one.rate for one in self.cells))

    @property
    def lengths(self) -> list[int]:
        """Rising."""
        return sorted({one.length for one in self.cells})

    def calibrates(self, cell: Cell) -> bool:
        """Whether the model knows this cell, so that it proves nothing of it."""
        return cell.rate is None and cell.length in (self.lengths[0], self.lengths[-1])

    def error(self, cell: Cell) -> float | None:
        """By how much the prediction misses, as a share of what was measured; None where the model was calibrated on the cell."""
        if self.calibrates(cell):
            return None
        return self.models[cell.way].predict(cell.rate, cell.length) / cell.seconds - 1


def _model(way: Way, cells: Sequence[Cell], chunk: int) -> Model:
    free = sorted((one for one in cells if one.way is way and one.rate is None), key=lambda one: one.length)
    if len(free) < 2:
        raise BadRequest(f"{way}: two uncapped transfers are needed to calibrate on", code="nothing-to-calibrate")
    return Model.calibrated(free[0], free[-1], chunk if way is Way.CONVENTIONAL else None)
