"""Conventional data sharing against travelling: cells of rate and buffer, a model fitted on two of them that predicts the others, tables.

Arithmetic over what was counted and measured elsewhere; knows no process, no clock and no file.

    T(rate, bytes) = fixed + work(first chunk) + max(work(the rest), wire bytes / rate)

Work grows with the bytes. Where records follow one another, the next travels while the last is worked on: all but one chunk's work hides
behind the wire, or the wire behind the work. Where what crosses the link comes in turns of question and answer (travelling), nothing hides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gput.bench.bucket import bytes_per_s
from gput.bench.published import CHUNK_BYTES, ROWS, share
from shared.errors import BadRequest

RATES: tuple[float | None, ...] = (None, 500, 100, 20, 4)
"""The publication's rows, Mbit/s; None: not capped."""


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
    """One way, one rate, one buffer: what a transfer of `length` bytes of records into GPU memory takes; means over `count` of them.

    Attributes:
        rate: of the link between the virtual machines, Mbit/s; None: not capped.
        seconds: from the first act to records that the GPU may train on; for travelling all of a visit but its training.
        between: what crossed the link between the virtual machines. holder_gpu, orchestrator_gpu: the links to the GPU.
        operations: sealings and openings of record data.
        train_s: seconds of training on these records, where they were trained on.
        holder_s: what the holder's five timers say, where there are such.
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

    @property
    def name(self) -> str:
        """For figures."""
        return f"{self.way}.{label(self.rate)}.{self.length}"


def label(rate: float | None) -> str:
    """A rate as the publication's rows are called."""
    return "uncapped" if rate is None else f"{rate:g}M"


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


# ---------------------------------------------------------------- tables

COUNTER_COLUMNS = (
    "way", "link", "buffer", "between_vms", "× buffer", "trips_between", "holder_gpu", "orchestrator_gpu", "trips_gpu", "seal+open",
)  # fmt: skip
SECONDS_COLUMNS = (
    "link", "buffer", "conventional_s", "predicted_s", "error", "travelling_s", "predicted_there_s", "error_there", "ratio",
)  # fmt: skip
SHARE_COLUMNS = ("link", "buffer", "train_s", "conventional_share", "travelling_share")
BUFFER_COLUMNS = ("link", "records", "buffer", "visits", "conventional_s", "travelling_s", "ratio")
PAPER_COLUMNS = (
    "link", "paper_conventional_s", "paper_travelling_s", "paper_ratio", "paper_shares", "here_conventional_s", "here_travelling_s",
    "here_ratio", "here_shares",
)  # fmt: skip


def counters(study: Study) -> list[dict[str, Any]]:
    """Bytes, round trips and operations of one transfer, for each way, rate and buffer: these do not depend on the machine."""
    return [
        {
            "way": one.way.value, "link": label(one.rate), "buffer": one.length, "between_vms": round(one.between.bytes),
            "× buffer": _digits(one.between.bytes / one.length), "trips_between": _digits(one.between.turns),
            "holder_gpu": round(one.holder_gpu.bytes), "orchestrator_gpu": round(one.orchestrator_gpu.bytes),
            "trips_gpu": _digits(one.holder_gpu.turns + one.orchestrator_gpu.turns), "seal+open": _digits(one.operations),
            "transfers": one.count, "holder_timers_s": one.holder_s,
        }
        for one in study.cells
    ]  # fmt: skip


def seconds(study: Study) -> list[dict[str, Any]]:
    """What was measured, what the model predicts of it, and by how much it misses (`calibrated`: it was told that cell)."""
    rows = []
    for length in study.lengths:
        for rate in study.rates:
            shared, travelled = (study.cell(way, rate, length) for way in Way)
            predicted = {way: study.models[way].predict(rate, length) for way in Way}
            rows.append({
                "link": label(rate), "buffer": length, "conventional_s": _digits(shared.seconds),
                "predicted_s": _digits(predicted[Way.CONVENTIONAL]), "error": _percent(study.error(shared)),
                "travelling_s": _digits(travelled.seconds), "predicted_there_s": _digits(predicted[Way.TRAVELLING]),
                "error_there": _percent(study.error(travelled)), "ratio": _digits(shared.seconds / travelled.seconds),
            })  # fmt: skip
    return rows


def shares(study: Study) -> list[dict[str, Any]]:
    """Transfer's share of transfer and training, with the training that was measured here: a tiny model, so a large share."""
    rows = []
    for rate in study.rates:
        length = study.lengths[-1]
        shared, travelled = (study.cell(way, rate, length) for way in Way)
        train_s = travelled.train_s or 0.0
        rows.append({
            "link": label(rate), "buffer": length, "train_s": _digits(train_s),
            "conventional_share": _percent(share(shared.seconds, train_s)), "travelling_share": _percent(share(travelled.seconds, train_s)),
        })  # fmt: skip
    return rows


def buffers(study: Study) -> list[dict[str, Any]]:
    """The same records through buffers of different size: visits × what a transfer took, over the uncapped link."""
    records = study.lengths[-1]
    rows = []
    for length in study.lengths:
        visits = -(-records // length)
        shared, travelled = (visits * study.cell(way, None, length).seconds for way in Way)
        rows.append({
            "link": label(None), "records": records, "buffer": length, "visits": visits, "conventional_s": _digits(shared),
            "travelling_s": _digits(travelled), "ratio": _digits(shared / travelled),
        })  # fmt: skip
    return rows


def beside(study: Study) -> list[dict[str, Any]]:
    """The publication's rows, and what our model says of a chunk of that size here: extrapolated, never measured, other hardware.

    Shares are conventional and travelling, in per cent; ours are at the publication's intensity of compute, which this machine has not.
    """
    rows = []
    for rate, row in ROWS.items():
        shared, travelled = (study.models[way].predict(rate, CHUNK_BYTES) for way in Way)
        theirs = share(row.conventional_s, row.conventional_train_s), share(row.travelling_s, row.travelling_train_s)
        rows.append({
            "link": label(rate), "paper_conventional_s": row.conventional_s, "paper_travelling_s": row.travelling_s,
            "paper_ratio": _digits(row.ratio), "paper_shares": _pair(*theirs), "here_conventional_s": _digits(shared),
            "here_travelling_s": _digits(travelled), "here_ratio": _digits(shared / travelled),
            "here_shares": _pair(share(shared), share(travelled)), "here": "predicted",
        })  # fmt: skip
    return rows


def named(study: Study) -> dict[str, float]:
    """The same as figures by name."""
    found: dict[str, float] = {}
    for one in study.cells:
        found |= {f"{one.name}.s": one.seconds, f"{one.name}.between_bytes": one.between.bytes}
        error = study.error(one)
        if error is not None:
            found[f"{one.name}.miss"] = abs(error)
    for rate in study.rates:
        for length in study.lengths:
            shared, travelled = (study.cell(way, rate, length).seconds for way in Way)
            found[f"ratio.{label(rate)}.{length}"] = shared / travelled
    return found


def _digits(value: float) -> float:
    """Four digits that count."""
    return float(f"{value:.4g}")


def _percent(value: float | None) -> str:
    return "calibrated" if value is None else f"{value * 100:+.1f} %" if value < 0 else f"{value * 100:.3g} %"


def _pair(first: float, second: float) -> str:
    return f"{first * 100:.3g} / {second * 100:.3g} %"
