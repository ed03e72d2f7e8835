"""A tour as spans on lanes, laid out in the browser that will draw it: setups, visits, tours that train together. Pure parts only."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import httpx2
import pytest

from tests.ui.conftest import NewTab
from tests.ui.stage import READER, UiStage

TOUR = """async ([visits, at, now, facts]) => {
  const view = { holders: [{ holder: "city" }, { holder: "north" }], created_at: 0 };
  const { spans } = (await import("/ui/tour.js")).tourOf({ view, visits, facts: facts ?? [], at: new Map(Object.entries(at)), now });
  return spans.map(one => [one.visit, one.kind, one.lane, one.start, one.end]);
}"""
# As in mode `scoped`: the second visit is planned, and its key drawn, while the first one is away; it waits through that one's training.
STEPS = {"provision": 0.25, "fence": 0.25, "train": 4.0, "epilogue": 0.25, "close": 0.25}
FIRST = {"planned": 0.0, "granted": 0.5, "offered": 0.5, "reported": 1.0, "fenced": 1.0, "verified": 1.0}
SECOND = {"planned": 0.75, "granted": 1.0, "offered": 1.0}
CLOSED = {"trained": 5.0, "scrubbed": 5.5, "closed": 5.5}


def of_tour(name: str, holder: str, planned: float, closed: float | None = None, **more: Any) -> dict[str, Any]:
    durations = STEPS if closed is not None else {}
    return {
        "id": name, "holder": holder, "planned_at": 1000 + planned, "closed_at": closed and 1000 + closed, "durations": durations,
        "outcome": "closed" if closed else None, **more,
    }  # fmt: skip


def told(facts: dict[str, float]) -> dict[str, float]:
    return {fact: 1000 + at for fact, at in facts.items()}


def test_a_visit_that_sealed_ahead_is_drawn_where_it_had_the_gpu(tab: NewTab) -> None:
    visits = [of_tour("a", "city", 0.0, 5.5), of_tour("b", "north", 0.75, 10.5)]
    at = {"a": told(FIRST | CLOSED), "b": told(SECOND | {"reported": 5.75})}
    spans = tab().open().evaluate(TOUR, [visits, at, 1020])
    assert [(of, kind, start - 1000, end - 1000) for of, kind, _, start, end in spans] == [
        ("a", "provision", 0.5, 0.75), ("a", "verify", 0.75, 1.0), ("a", "train", 1.0, 5.0), ("a", "scrub", 5.0, 5.5),
        ("b", "provision", 5.5, 5.75), ("b", "verify", 5.75, 6.0), ("b", "train", 6.0, 10.0), ("b", "scrub", 10.0, 10.5),
    ]  # fmt: skip


def test_a_visit_under_way_has_the_gpu_once_the_one_before_is_closed(tab: NewTab) -> None:
    page = tab().open()
    visits = [of_tour("a", "city", 0.0), of_tour("b", "north", 0.75)]
    training = page.evaluate(TOUR, [visits, {"a": told(FIRST), "b": told(SECOND)}, 1003])
    assert [one for one in training if one[0] == "b"] == []
    assert training[-1] == ["a", "train", "orchestrator", 1001, 1003]
    its_turn = page.evaluate(TOUR, [visits, {"a": told(FIRST | CLOSED), "b": told(SECOND)}, 1006])
    assert [one for one in its_turn if one[0] == "b"] == [["b", "provision", "north", 1005.5, 1006]]


def test_a_visit_that_loads_ahead_has_the_gpu_while_it_trains(tab: NewTab) -> None:
    """As in mode `direct`: its key is drawn after the fence of the visit before, and it writes at once."""
    visits = [of_tour("a", "city", 0.0), of_tour("b", "north", 1.0)]
    at = {"a": told(FIRST), "b": told({"planned": 1.0, "granted": 1.5, "offered": 1.5})}
    spans = tab().open().evaluate(TOUR, [visits, at, 1003])
    assert ["b", "provision", "north", 1001.5, 1003] in spans


def test_a_visit_that_waits_for_its_tours_training_is_drawn_from_its_beginning(tab: NewTab) -> None:
    waits = of_tour("a", "city", 0.0, 8.0, durations={"provision": 0.5, "fence": 0.5})
    spans = tab().open().evaluate(TOUR, [[waits], {"a": told(FIRST)}, 1020])
    assert [(kind, start - 1000, end - 1000) for _, kind, _, start, end in spans] == [
        ("provision", 0.0, 0.5), ("verify", 0.5, 1.0), ("waiting", 1.0, 8.0),
    ]  # fmt: skip


TOGETHER = {"provision": 0.5, "fence": 0.5}
GATHERED = {"a": told(FIRST), "b": told({name: at + 1.0 for name, at in FIRST.items()})}


def test_a_collected_tours_training_is_drawn_where_it_ended_and_its_visits_do_not_wait(tab: NewTab) -> None:
    visits = [
        of_tour("a", "city", 0.0, 6.75, durations=TOGETHER),
        of_tour("b", "north", 1.0, 6.75, durations=TOGETHER),
    ]
    took = {"train": 4.0, "validate": 0.25, "epilogue": 0.25}
    end = {"kind": "training", "fact": "scrubbed", "visits": ["a", "b"], "at": 1006.75, "tour_durations": took}
    spans = tab().open().evaluate(TOUR, [visits, GATHERED, 1020, [end]])
    assert [(of, kind, start - 1000, end - 1000) for of, kind, _, start, end in spans] == [
        ("a", "provision", 0.0, 0.5), ("a", "verify", 0.5, 1.0), ("b", "provision", 1.0, 1.5), ("b", "verify", 1.5, 2.0),
        (None, "train", 2.25, 6.25), (None, "validate", 6.25, 6.5), (None, "scrub", 6.5, 6.75),
    ]  # fmt: skip


def test_a_rejected_tour_is_drawn_once(tab: NewTab) -> None:
    visits = [of_tour(name, holder, at, 4.5, durations=TOGETHER, outcome="rejected")
              for name, holder, at in (("a", "city", 0.0), ("b", "north", 1.0))]  # fmt: skip
    took = {"train": 2.0, "epilogue": 0.25}
    ends = [
        {"kind": "training", "fact": "rejected", "visit": one, "at": 1004.5, "tour_durations": took} for one in "ab"
    ]
    spans = tab().open().evaluate(TOUR, [visits, GATHERED, 1020, ends])
    assert [(kind, start - 1000, end - 1000) for of, kind, _, start, end in spans if of is None] == [
        ("train", 2.25, 4.25), ("broken", 4.25, 4.5),
    ]  # fmt: skip
    assert [(of, kind) for of, kind, *_ in spans if of and kind != "provision"] == [("a", "broken"), ("b", "broken")]


def test_a_tour_that_accumulates_shows_its_step(tab: NewTab) -> None:
    end = {"kind": "session", "fact": "tour_ended", "at": 1006.0, "durations": {"train": 0.25, "epilogue": 0.25}}
    spans = tab().open().evaluate(TOUR, [[of_tour("a", "city", 0.0, 5.5)], {}, 1020, [end]])
    assert [(kind, start - 1000) for of, kind, _, start, _ in spans if of is None] == [("train", 5.5), ("scrub", 5.75)]


def test_a_tour_that_trains_now_is_drawn_once_all_have_brought_their_records(tab: NewTab) -> None:
    page = tab().open()
    first, second = (of_tour(name, holder, at, durations=TOGETHER)
                     for name, holder, at in (("a", "city", 0.0), ("b", "north", 1.0)))  # fmt: skip
    alone = page.evaluate(TOUR, [[first], GATHERED, 1003])
    both = page.evaluate(TOUR, [[first, second], GATHERED, 1003])
    assert [one for one in alone if one[1] == "train"] == []
    assert [one for one in both if one[1] == "train"] == [[None, "train", "orchestrator", 1002, 1003]]


def of_session(fact: str, at: float, kind: str = "session", **more: Any) -> dict[str, Any]:
    return {"kind": kind, "fact": fact, "at": 1000 + at, **more}


FIRST_LIFE = [
    of_session("started", 0), of_session("claimed", 0.5, "gpu", life=1, boot_counter=1),
    of_session("life_opened", 1, life=1, boot_counter=1),
    of_session("placed", 3),
]  # fmt: skip
RESTARTED = [
    of_session("claimed", 10, "gpu", life=2, boot_counter=1),
    of_session("life_opened", 10.5, life=2, boot_counter=1),
]
RESTORED = [
    of_session("claimed", 20, "gpu", life=1, boot_counter=2), of_session("life_opened", 21, life=1, boot_counter=2),
    of_session("placed", 24), of_session("restored", 24.5),
]  # fmt: skip
RESUMED = [of_session("paused", 30), of_session("resumed", 40)]
SETUPS: dict[str, tuple[list[dict[str, Any]], list[list[float]]]] = {
    "placed": (FIRST_LIFE, [[0, 1], [1, 3]]),
    "restarted": ([*FIRST_LIFE, *RESTARTED], [[0, 1], [1, 3], [10, 10.5]]),
    "restored": ([*FIRST_LIFE, *RESTORED], [[0, 1], [1, 3], [20, 21], [21, 24]]),
    "resumed": ([*FIRST_LIFE, *RESTORED, *RESUMED], [[0, 1], [1, 3], [20, 21], [21, 24]]),
    "claimed": ([*FIRST_LIFE, *RESTORED[:1]], [[0, 1], [1, 3], [20, 50]]),
    "opened after a reset": ([*FIRST_LIFE, *RESTORED[:2]], [[0, 1], [1, 3], [20, 21], [21, 50]]),
    "failed": ([*FIRST_LIFE[:2], of_session("failed", 2)], [[0, 2]]),
}


@pytest.mark.parametrize("case", SETUPS)
def test_setup_is_where_a_life_was_claimed_opened_and_placed(tab: NewTab, case: str) -> None:
    facts, expected = SETUPS[case]
    spans = tab().open().evaluate(TOUR, [[], {}, 1050, facts])
    assert [[start - 1000, end - 1000] for _, kind, _, start, end in spans if kind == "setup"] == expected


def test_trainings_of_one_gpu_do_not_overlap(tab: NewTab, stage: UiStage) -> None:
    page = tab().open()
    path = f"/v1/sessions/{stage.sessions['done']}/visits"
    visits = httpx2.get(stage.orchestrator.url + path, headers={"authorization": f"Bearer {READER}"}).json()["items"]
    spans = page.evaluate(TOUR, [visits, {}, visits[-1]["closed_at"] + 1])
    trained = [(start, end) for _, kind, _, start, end in spans if kind == "train"]
    assert len(trained) == 6
    assert all(before[1] <= after[0] for before, after in pairwise(trained))
