"""What a visit costs, told from visits that were made, and what that means for visits of other lengths. Knows no clock, file or service.

A visit takes `visit_s` whatever it carries, `byte_s` for each byte of records, `step_s` for each training step. *Overhead* is all of it
but the steps. Which part of its time a visit takes anyway shows only where visits had different lengths, or where the step's time is known.
Where the visits of a round are a tour, its end takes its own time once (`gput.planning_tours`).
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from gput.tours import Tours
from shared.errors import BadRequest
from shared.protocol.work import control_s

LEAST_VISITS = 6
LEAST_OF_A_LENGTH = 2
MOST_STEPS = 1_000_000
"""A manifest's `steps_per_visit` is no larger."""
FIRST_LENGTHS = (1, 2, 5, 10)
RECENCY = (
    "Fewer steps per visit end nearer to pooled quality, more favour the holder visited last. Measured once, elsewhere: a "
    "120 704-parameter GPT, three disjoint synthetic corpora, 200 steps for each: held-out loss 1.454 at 40 steps per visit, 1.181 at 20, "
    "1.009 at 10, 0.845 at 5, 0.819 at 1, and 0.743 with pooled data. That says which way, not how far, for another model and data."
)


@dataclass(frozen=True)
class Visit:
    """What one closed visit did, and how long its parts took, in seconds. `data_s`: reading and writing records, by the holder's own
    timers; `check_s`: the held-out check, where there was one."""

    steps: int
    length: int
    control_s: float
    provision_s: float
    data_s: float
    train_s: float
    check_s: float | None = None

    @classmethod
    def of(cls, view: Mapping[str, Any]) -> Self:
        """From a closed visit as the orchestrator's API shows it."""
        spent, timers = view["durations"], view["timers"] or {}
        checked = view["validation_after"] is not None
        return cls(
            steps=view["steps"], length=view["length"], control_s=control_s(view), provision_s=spent.get("provision", 0.0),
            data_s=timers.get("buffer_read", 0.0) + timers.get("gpu_write", 0.0), train_s=spent.get("train", 0.0),
            check_s=spent.get("validate") if checked else None,
        )  # fmt: skip


@dataclass(frozen=True)
class Costs:
    """Seconds: `control_s`, `data_fixed_s`, `train_fixed_s` of each visit; `byte_s` of a byte of records; `step_s` of a training step;
    `check_s` of a held-out check, None where none was seen; `tour_s` of a tour's end but its steps, None where none was seen."""

    control_s: float
    data_fixed_s: float
    byte_s: float
    train_fixed_s: float
    step_s: float
    check_s: float | None = None
    tour_s: float | None = None

    @property
    def visit_s(self) -> float:
        """What a visit takes, whatever it carries."""
        return self.control_s + self.data_fixed_s + self.train_fixed_s

    def fixed(self, tours: Tours | None) -> tuple[float, float]:
        """What each visit takes, and each tour's end, whatever they carry. No tour was measured: see `planning_tours.assumed`."""
        if tours is None:
            return self.visit_s, 0.0
        if tours is Tours.COLLECT:
            return self.visit_s - self.train_fixed_s, self.train_fixed_s if self.tour_s is None else self.tour_s
        return self.visit_s, self.control_s + self.train_fixed_s if self.tour_s is None else self.tour_s

    def named(self) -> dict[str, float]:
        """As figures of `gput bench lengths`."""
        return {
            "control_ms": round(self.control_s * 1e3, 4), "data_fixed_ms": round(self.data_fixed_s * 1e3, 4),
            "data_ns_per_byte": round(self.byte_s * 1e9, 4), "train_fixed_ms": round(self.train_fixed_s * 1e3, 4),
            "train_step_ms": round(self.step_s * 1e3, 4),
        }  # fmt: skip

    @classmethod
    def measured(cls, figures: Mapping[str, float], step_s: float) -> Self:
        """From figures of `gput bench lengths`, whose own steps are no other program's. Raises: KeyError: one is missing."""
        return cls(
            control_s=figures["control_ms"] / 1e3, data_fixed_s=figures["data_fixed_ms"] / 1e3,
            byte_s=figures["data_ns_per_byte"] / 1e9, train_fixed_s=figures["train_fixed_ms"] / 1e3, step_s=step_s,
        )  # fmt: skip


def calibrate(
    visits: Sequence[Visit], step_s: float | None = None, trained: Sequence[tuple[int, float]] | None = None
) -> Costs:
    """What visits cost, by medians of those of one length and a straight line through the lengths; nothing comes out below 0.

    Args:
        step_s: what a training step takes, where that is known.
        trained: steps and seconds of each training, where it was not the visits' own.

    Raises:
        BadRequest: `too-few-visits`; `one-length`, without `step_s`: what a visit takes anyway cannot be told from what its steps take;
            `no-training`: longer visits did not train longer.
    """
    if len(visits) < LEAST_VISITS:
        raise BadRequest(
            "so few visits do not say what one costs", code="too-few-visits", expected=f"at least {LEAST_VISITS} closed ones",
            got=str(len(visits)), remedy="Let the session go on, or name another as well.",
        )  # fmt: skip
    train_fixed, step = _training(trained or [(visit.steps, visit.train_s) for visit in visits], step_s)
    data_fixed, byte = _data(visits)
    checks = [visit.check_s for visit in visits if visit.check_s is not None]
    return Costs(
        control_s=statistics.median(visit.control_s for visit in visits), data_fixed_s=data_fixed, byte_s=byte,
        train_fixed_s=train_fixed, step_s=step, check_s=statistics.median(checks) if checks else None,
    )  # fmt: skip


def _training(trained: Sequence[tuple[int, float]], step_s: float | None) -> tuple[float, float]:
    if step_s is not None:
        return max(0.0, statistics.median(seconds - steps * step_s for steps, seconds in trained)), step_s
    often = [steps for steps, count in Counter(steps for steps, _ in trained).items() if count >= LEAST_OF_A_LENGTH]
    if len(often) < 2:
        raise BadRequest(
            f"there are not {LEAST_OF_A_LENGTH} visits (or tours) each of two lengths, so what one takes anyway and what its steps "
            "take cannot be told apart", code="one-length",
            remedy="Say --step-ms or --program FILE, or name a session with another steps_per_visit, too.",
        )  # fmt: skip
    fixed, step = _line([(steps, seconds) for steps, seconds in trained if steps in often])
    if step <= 0:
        raise BadRequest(
            "visits of more steps did not train longer: nothing can be said of a step", code="no-training",
            remedy="Say --step-ms, or measure on a quieter machine.",
        )  # fmt: skip
    return fixed, step


def _data(visits: Sequence[Visit]) -> tuple[float, float]:
    if len({visit.length for visit in visits}) > 1:
        return _line([(visit.length, visit.provision_s) for visit in visits])
    data = min(statistics.median(visit.data_s for visit in visits), whole := _provision(visits))
    return whole - data, data / max(1, visits[0].length)


def _provision(visits: Sequence[Visit]) -> float:
    return statistics.median(visit.provision_s for visit in visits)


def _line(points: Iterable[tuple[int, float]]) -> tuple[float, float]:
    """Where the line through the medians begins, and how it rises; neither below 0."""
    found: dict[int, list[float]] = {}
    for x, y in points:
        found.setdefault(x, []).append(y)
    xs, ys = list(found), [statistics.median(values) for values in found.values()]
    slope, start = statistics.linear_regression(xs, ys)
    if slope <= 0:
        return statistics.fmean(ys), 0.0
    if start < 0:
        return 0.0, max(0.0, statistics.linear_regression(xs, ys, proportional=True).slope)
    return start, slope


@dataclass(frozen=True)
class Work:
    """What is to be trained. `steps`: of all visits together; `every_visits`: from one held-out check to the next, None: there are none;
    `tours`: how a round's visits belong together, None: they do not."""

    steps: int
    holders: int
    records_per_step: int
    record_bytes: int
    every_visits: int | None = None
    tours: Tours | None = None

    @property
    def longest(self) -> int:
        """Steps per visit with which each holder is visited once."""
        return min(MOST_STEPS, -(-self.steps // self.holders))

    @property
    def step_bytes(self) -> int:
        """Bytes of the records of one step."""
        return self.records_per_step * self.record_bytes

    @property
    def check_after(self) -> int:
        """Visits from one held-out check to the next; in a tour none is made before its end."""
        return max(self.every_visits or 1, 1 if self.tours is None else self.holders)


@dataclass(frozen=True)
class Prediction:
    """Visits of one length. `rounds`: what the manifest says for at least as many steps; `overhead`: the share of a visit that is none of
    its steps; `wall_s`: all visits; `buffer_bytes`: what a visit's records take."""

    steps_per_visit: int
    rounds: int
    visits: int
    overhead: float
    wall_s: float
    buffer_bytes: int


def predict(costs: Costs, work: Work, steps_per_visit: int) -> Prediction:
    """Of the planned steps in visits of so many; the last one may be shorter."""
    per_step = costs.step_s + work.step_bytes * costs.byte_s
    check = (costs.check_s or 0.0) if work.every_visits else 0.0
    visit_s, tour_s = costs.fixed(work.tours)
    anyway = visit_s + tour_s / work.holders + check / work.check_after
    visits, rounds = -(-work.steps // steps_per_visit), -(-work.steps // (steps_per_visit * work.holders))
    return Prediction(
        steps_per_visit=steps_per_visit, rounds=rounds, visits=visits,
        overhead=1 - steps_per_visit * costs.step_s / (anyway + steps_per_visit * per_step),
        wall_s=visits * visit_s + rounds * tour_s + -(-visits // work.check_after) * check + work.steps * per_step,
        buffer_bytes=steps_per_visit * work.step_bytes,
    )  # fmt: skip


def fewest(costs: Costs, work: Work, overhead: float) -> int | None:
    """The fewest steps per visit whose overhead is no larger share; None where not even one visit to each holder keeps it."""
    low, high = 1, work.longest
    if predict(costs, work, high).overhead > overhead:
        return None
    while low < high:  # overhead falls with the length
        middle = (low + high) // 2
        low, high = (low, middle) if predict(costs, work, middle).overhead <= overhead else (middle + 1, high)
    return low


def lengths(work: Work, *others: int | None) -> list[int]:
    """Steps per visit that are worth a line: 1, 2, 5, 10, doubled from there, and `others`; no longer than one visit to each holder."""

    def usual() -> Iterator[int]:
        yield from FIRST_LENGTHS
        length = FIRST_LENGTHS[-1]
        while length < work.longest:
            length *= 2
            yield length

    return sorted({min(length, work.longest) for length in (*usual(), *others) if length})


def reason(costs: Costs, work: Work, overhead: float, chosen: int | None) -> str:
    """Why so many, in one line."""
    records_s = work.step_bytes * costs.byte_s
    visit_s, tour_s = costs.fixed(work.tours)
    ends = "" if work.tours is None else f", a tour's end {_seconds(tour_s)} besides its steps"
    anyway = (
        f"a visit takes {_seconds(visit_s)} whatever it carries{ends}, a step {_seconds(costs.step_s)} and its records "
        f"{_seconds(records_s)}"
    )
    if chosen is None:
        left = predict(costs, work, work.longest).overhead
        alone = records_s > overhead * (costs.step_s + records_s)
        why = "the records alone take more" if alone else "there are too few steps for longer visits"
        return f"{anyway}: even one visit to each holder ({work.longest} steps) leaves {left:.1%} overhead, over {overhead:.1%}; {why}"
    at = predict(costs, work, chosen).overhead
    before = f", {chosen - 1} would have {predict(costs, work, chosen - 1).overhead:.1%}" if chosen > 1 else ""
    return f"{anyway}: {chosen} steps are the fewest with at most {overhead:.1%} overhead ({at:.1%}{before})"


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"
