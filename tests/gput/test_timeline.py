"""A session's spans: of visits that are trained by themselves, and of tours that train once for several."""

from __future__ import annotations

from typing import Any

import pytest

from gput.timeline import Span, lanes, spans, totals
from orchestrator.visit_steps import STEPS, in_order

TOGETHER = {"provision": 0.5, "fence": 0.25}


def visit(name: str, holder: str, planned: float, closed: float | None, durations: dict[str, float]) -> dict[str, Any]:
    return {"id": name, "holder": holder, "planned_at": planned, "closed_at": closed, "durations": durations}


def told(found: list[Span]) -> list[tuple[str, str, str, float, float]]:
    return [(span.visit, span.party, span.kind, span.begin, span.seconds) for span in found]


COLLECTED = [visit("a", "city", 10.0, 16.0, TOGETHER), visit("b", "north", 11.0, 16.0, TOGETHER)]
RECORDS = [
    ("a", "city", "provision", 10.0, 0.5), ("a", "orchestrator", "return", 10.5, 0.25),
    ("b", "north", "provision", 11.0, 0.5), ("b", "orchestrator", "return", 11.5, 0.25),
]  # fmt: skip


def test_a_collected_tour_is_laid_back_from_its_end() -> None:
    taken = {"train": 3.0, "validate": 0.5, "epilogue": 0.25}
    facts = [
        {"fact": "trained", "kind": "training", "visits": ["a", "b"], "at": 15.0, "seconds": 2.5},
        {"fact": "scrubbed", "kind": "training", "visits": ["a", "b"], "at": 16.0, "tour_durations": taken},
    ]
    found = spans(COLLECTED, facts)
    assert told(found) == [
        *RECORDS, ("", "orchestrator", "train", 12.25, 3.0), ("", "orchestrator", "train", 15.25, 0.5),
        ("", "orchestrator", "scrub", 15.75, 0.25),
    ]  # fmt: skip
    assert list(lanes(found, 12)) == ["orchestrator", "city", "north"]
    assert totals(found) == {"grant": 0, "provision": 1.0, "return": 0.5, "train": 3.5, "scrub": 0.25}
    assert told(spans(COLLECTED)) == RECORDS


def test_each_visit_of_a_rejected_tour_says_what_that_took_and_it_counts_once() -> None:
    rejected = {"fact": "rejected", "kind": "training", "at": 16.0, "tour_durations": {"train": 3.0, "epilogue": 0.25}}
    found = spans(COLLECTED, [rejected | {"visit": name} for name in "ab"])
    assert told(found)[len(RECORDS) :] == [
        ("", "orchestrator", "train", 12.75, 3.0), ("", "orchestrator", "scrub", 15.75, 0.25),
    ]  # fmt: skip


def test_the_step_of_a_tour_that_accumulates_follows_its_visits() -> None:
    alone = visit("a", "city", 10.0, 12.0, {"provision": 0.5, "train": 1.0, "close": 0.5})
    end = {"fact": "tour_ended", "kind": "session", "at": 12.5, "durations": {"train": 0.25, "epilogue": 0.125}}
    other = {"fact": "verified", "kind": "visit", "visit": "a", "at": 11.0, "durations": TOGETHER}
    found = spans([alone], [other, end])
    assert [(span.visit, span.step, span.begin) for span in found] == [
        ("a", "provision", 10.0), ("a", "train", 10.5), ("a", "close", 11.5), ("", "train", 12.125), ("", "epilogue", 12.375),
    ]  # fmt: skip


@pytest.mark.parametrize("given", [None, {}])
def test_no_durations_are_none(given: dict[str, float] | None) -> None:
    assert in_order(given) == {}


def test_steps_that_were_read_from_the_journal_are_in_the_order_taken_again() -> None:
    taken = dict.fromkeys(STEPS, 0.5)
    assert list(in_order(dict(sorted(taken.items())))) == list(STEPS)
    assert list(in_order({"train": 2.0, "epilogue": 1.0}).items()) == [("train", 2.0), ("epilogue", 1.0)]
