"""A session's visits as spans in time, a lane for each party. Arithmetic on the API's visits; knows no service and no terminal.

A visit's steps are timed one after another by the orchestrator; they are laid out back from when the visit was closed, or on from
its planning where it is not closed, or waited for its tour's training. That training, or the one step of a tour that accumulates, is
of no visit alone, and told by the event at its end. What lies between two spans is neither's: waiting, or another visit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KINDS: dict[str, tuple[str, ...]] = {
    "grant": ("plan", "grant", "offer", "ahead"),
    "provision": ("provision",),
    "return": ("report", "fence", "verify"),
    "train": ("train", "validate", "verdict"),
    "scrub": ("epilogue", "close"),
}
MARKS = {"grant": "·", "provision": "▓", "return": "▒", "train": "█", "scrub": "s"}
HOUSE = "orchestrator"
_KIND = {step: kind for kind, steps in KINDS.items() for step in steps}


@dataclass(frozen=True)
class Span:
    """One step of one visit, or of a whole tour. `begin` in seconds since 1970; `party`: who has the GPU meanwhile.

    `visit`, `holder`: "" of a whole tour.
    """

    party: str
    kind: str
    step: str
    visit: str
    holder: str
    begin: float
    seconds: float


def spans(visits: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]] = ()) -> list[Span]:
    """Every timed step, in the order of its beginning.

    Args:
        events: what the session's events say (`data`), where it has tours; those that end none are passed over.
    """
    found = [span for visit in visits for span in _of(visit)]
    # By its time: each visit of a rejected tour says the same.
    ends = {event["at"]: taken for event in events if (taken := _of_tour(event))}
    found += [span for end, taken in ends.items() for span in _laid(taken, end - sum(taken.values()), "", "")]
    return sorted(found, key=lambda span: span.begin)


def _of_tour(event: Mapping[str, Any]) -> Mapping[str, float] | None:
    told: Mapping[str, float] | None = event.get("tour_durations")
    return event.get("durations") if event.get("fact") == "tour_ended" else told


def _of(visit: Mapping[str, Any]) -> Iterable[Span]:
    durations: Mapping[str, float] = visit["durations"] or {}
    closed = visit["closed_at"]
    straight = closed is not None and "train" in durations
    at = float(closed) - sum(durations.values()) if straight else float(visit["planned_at"] or 0.0)
    return _laid(durations, at, visit["id"], visit["holder"])


def _laid(durations: Mapping[str, float], at: float, visit: str, holder: str) -> Iterable[Span]:
    for step, seconds in durations.items():
        kind = _KIND.get(step, "return")
        yield Span(holder if kind == "provision" else HOUSE, kind, step, visit, holder, at, float(seconds))
        at += seconds


def lanes(found: Sequence[Span], width: int) -> dict[str, list[str]]:
    """A row of `width` kinds for each party, the orchestrator's first; "" where the GPU is elsewhere. Each cell is what took most of it."""
    names = [HOUSE, *dict.fromkeys(span.holder for span in found if span.holder)]
    if not found:
        return {}
    first, last = found[0].begin, max(span.begin + span.seconds for span in found)
    cell = max(last - first, 1e-9) / width
    filled: dict[str, list[dict[str, float]]] = {name: [{} for _ in range(width)] for name in names}
    for span in found:
        begin, end = (span.begin - first) / cell, (span.begin + span.seconds - first) / cell
        for column in range(int(begin), min(int(end), width - 1) + 1):
            part = min(end, column + 1) - max(begin, column)
            here = filled[span.party][column]
            here[span.kind] = here.get(span.kind, 0.0) + part
    return {name: [_most(here) for here in row] for name, row in filled.items()}


def _most(here: Mapping[str, float]) -> str:
    return max(here, key=lambda kind: here[kind]) if here else ""


def totals(found: Iterable[Span]) -> dict[str, float]:
    """Seconds by kind."""
    sums = dict.fromkeys(KINDS, 0.0)
    for span in found:
        sums[span.kind] += span.seconds
    return sums
