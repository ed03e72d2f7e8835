"""A session's curves are what the API says: whose loss, at which step, whatever was taken back. Knows no tracker's files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import AsyncMock, Mock

from gput.commands import session_files
from gput.tracking import Point, curves


def _visit(number: int, holder: str, **more: Any) -> dict[str, Any]:
    return {
        "id": f"v_{number}", "holder": holder, "first_step": 2 * (number - 1), "steps": 2, "outcome": "closed", "index": number, "round": 1,
        "planned_at": 100.0 * number,
        "closed_at": 100.0 * number + 50, "validation_after": 3.0 - number, "durations": {"train": 1.5, "close": 0.5}, **more,
    }  # fmt: skip


PRIVACY = {"spent": 0.25, "planned": 1.0, "delta": 1e-5}
VIEW = {
    "id": "s_1", "phase": "COMPLETED", "backend": "EMULATED", "manifest_digest": "ab" * 32, "updated_at": 900.0, "step": 4,
    "holders": [{"holder": "north", "privacy": PRIVACY}, {"holder": "city", "privacy": None}],
}  # fmt: skip
VISITS = [
    _visit(1, "north"), _visit(2, "city"),
    _visit(3, "north", outcome="recalled", closed_at=None, validation_after=None, durations={}),
]  # fmt: skip
EVENTS: list[dict[str, Any]] = [
    {"fact": "submitted", "at": 1.0}, {"fact": "last_checked", "position": 2, "validation_after": None, "at": 800.0},
]  # fmt: skip
LOSSES = [
    {"visit": "v_1", "holder": "north", "step": 1, "loss": 2.5}, {"visit": "v_1", "holder": "north", "step": 2, "loss": 2.25},
    {"visit": "v_2", "holder": "city", "step": 3, "loss": 2.0}, {"visit": "v_9", "holder": "", "step": 4, "loss": 1.0},
]  # fmt: skip


def test_curves_are_what_the_views_say() -> None:
    points = curves(VIEW, VISITS, LOSSES, EVENTS)
    assert [point for point in points if point.curve.startswith(("loss", "privacy"))] == [
        Point("loss/city", 3, 2.0, 250.0), Point("loss/held-out", 2, 2.0, 150.0), Point("loss/held-out", 4, 1.0, 250.0),
        Point("loss/north", 1, 2.5, 150.0), Point("loss/north", 2, 2.25, 150.0), Point("loss/tour", 4, 1.0, 900.0),
        Point("privacy/epsilon spent/north", 4, 0.25, 900.0),
    ]  # fmt: skip
    assert [point.value for point in points if point.curve == "visit_seconds/total"] == [2.0, 2.0]


def held_out(visits: list[dict[str, Any]], *events: dict[str, Any]) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in curves(VIEW, visits, (), events) if point.curve == "loss/held-out"]


def test_what_was_measured_after_a_collected_tour_stands_behind_all_its_steps() -> None:
    tours = [
        [
            _visit(3 * turn + n, name, first_step=6 * turn, validation_after=2.0 - turn)
            for n, name in enumerate("abc", 1)
        ]
        for turn in range(2)
    ]
    assert held_out([*tours[0], *tours[1]]) == [(6, 2.0), (12, 1.0)]


def test_accumulated_tours_are_measured_at_their_ends() -> None:
    visits = [_visit(n, "ab"[n % 2], round=(n + 1) // 2, validation_after=None) for n in range(1, 5)]
    judged = [
        {"fact": "tour_judged", "round": n, "stepped": n == 1, "validation_after": 3.0 - n, "at": 200.0 * n + 60}
        for n in (1, 2)
    ]
    last = {"fact": "last_checked", "position": 4, "validation_after": 0.5, "at": 900.0}
    assert held_out(visits, *judged, last) == [(4, 2.0), (8, 0.5)]


def test_of_an_orchestrator_that_does_not_say_whether_a_tour_made_its_step_the_rest_is_shown() -> None:
    visits = [_visit(n, "ab"[n % 2], validation_after=None) for n in (1, 2)]
    judged = {"fact": "tour_judged", "round": 1, "validation_after": 2.0, "at": 300.0}
    last = {"fact": "last_checked", "position": 2, "validation_after": 1.5, "at": 400.0}
    assert held_out(visits, judged) == []
    assert held_out(visits, judged, last) == [(4, 1.5)]


def many_tours(tours: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Visits of two holders in each of so many accumulated tours, and what was measured at each end."""
    visits = [_visit(n, "ab"[n % 2], round=(n + 1) // 2, validation_after=None) for n in range(1, 2 * tours + 1)]
    return visits, [TWICE[0] | {"round": n, "at": 200.0 * n + 60} for n in range(1, tours + 1)]


class Looked(dict[str, Any]):
    """A visit that counts how often it is looked at."""

    times = 0

    def __getitem__(self, name: str) -> Any:
        Looked.times += 1
        return super().__getitem__(name)


def test_each_tour_of_very_many_looks_at_its_own_visits() -> None:
    looked = []
    for tours in (100, 200):
        visits, ends = many_tours(tours)
        Looked.times = 0
        assert len(held_out([Looked(one) for one in visits], *ends)) == tours
        looked.append(Looked.times)
    assert looked[1] <= 2.5 * looked[0], "twice the session takes twice as long, not four times"


LATE = [_visit(n, name, validation_after=None) for n, name in enumerate("abc", 1)]
"""Of one round; the last holder joined late, when the others' tour was over."""
TWICE = [
    {"fact": "tour_judged", "round": 1, "stepped": True, "validation_after": loss, "at": at}
    for loss, at in ((3.0, 260.0), (2.5, 360.0))
]


def test_a_late_joiners_tour_is_measured_beside_the_one_before_it() -> None:
    assert held_out(LATE, *TWICE) == [(4, 3.0), (6, 2.5)]


def test_what_was_measured_after_visits_that_are_not_there_has_no_step() -> None:
    assert held_out(LATE, TWICE[0] | {"round": 2, "at": 400.0}) == []
    last = {"fact": "last_checked", "position": 3, "validation_after": 2.0, "at": 400.0}
    assert held_out([], *TWICE, last) == []


async def test_a_tour_that_ends_while_its_session_is_read_has_its_visits() -> None:
    """The lists grow between the askings: what is told of by an event has been by the time that visits are asked for."""
    client, told = Mock(), Mock(data=TWICE[0])
    grown: list[dict[str, Any]] = []

    async def events(session: str) -> AsyncIterator[Any]:
        grown.extend(LATE[:2])
        told.data = TWICE[0] | {"seq": 1}
        yield told

    async def items(path: str) -> list[Any]:
        return list(grown) if path.endswith("visits") else []

    client.events, client.items = events, items
    client.session = client.get = AsyncMock(return_value={**VIEW, "version": 1})
    found = curves(*await session_files.measured(client, "s_1"))
    assert [(point.step, point.value) for point in found if point.curve == "loss/held-out"] == [(4, 3.0)]


def test_the_seconds_of_each_visit_are_told_also_of_a_tour_that_begins_at_one_step() -> None:
    tour = [_visit(n, name, first_step=0, durations={"train": 1.0 * n}) for n, name in enumerate("abc", 1)]
    vain = _visit(2, "b", id="v_12", first_step=0, outcome="recalled", durations={"train": 9.0}, closed_at=None)
    points = curves(VIEW, [tour[0], vain, *tour[1:]], (), ())
    for name in ("train", "total"):
        told = [(point.step, point.value) for point in points if point.curve == f"visit_seconds/{name}"]
        assert told == [(2, 1.0), (2, 2.0), (2, 3.0)], "of the last attempt of each"


def test_what_was_made_again_after_a_restore_has_one_value() -> None:
    again = [_visit(1, "a", id="v_11", validation_after=7.0), _visit(2, "b", id="v_12", validation_after=6.0)]
    losses = [{"visit": f"v_{n}", "holder": "a", "step": 1, "loss": float(n)} for n in (1, 11)]
    points = curves(VIEW, [*VISITS, *again], losses, ())
    assert [(p.step, p.value) for p in points if p.curve == "loss/held-out"] == [(2, 7.0), (4, 6.0)]
    assert [p.value for p in points if p.curve == "loss/a"] == [11.0]


PASSED_OVER = [
    _visit(1, "a", first_step=0, steps=3), _visit(2, "b", first_step=3, steps=3, validation_after=9.0),
    _visit(3, "c", first_step=3, steps=3, validation_after=0.5, closed_at=600.0),
]  # fmt: skip
"""Stop 2 was taken back by a restore, and passed over when it came again; stop 3 began where it had begun."""
BACK = {"fact": "restored", "position": 1, "at": 500.0}


def test_what_a_restore_took_back_for_good_is_behind_no_measured_loss() -> None:
    assert held_out(PASSED_OVER, BACK) == [(3, 2.0), (6, 0.5)]
    early = {"fact": "last_checked", "position": 2, "validation_after": 7.0, "at": 400.0}
    assert held_out(PASSED_OVER[:2], early, BACK) == [(3, 2.0)]
    assert held_out(PASSED_OVER, BACK, early | {"position": 3, "at": 700.0}) == [(3, 2.0), (6, 7.0)]


def test_a_tour_whose_stop_was_taken_back_before_its_end_stands_behind_the_stops_that_were_left() -> None:
    visits = [_visit(n, "ab"[n % 2], validation_after=None) for n in (1, 2)]
    end = TWICE[0] | {"at": 600.0}
    assert held_out(visits, BACK, end, BACK | {"at": 700.0}) == [(2, 3.0)]


def test_a_visit_without_its_own_close_among_the_events_is_placed_by_its_time() -> None:
    """Of a release that named no visit in a close, or no position in a restore."""
    visits = PASSED_OVER[:2]
    told = {"fact": "granted", "visit": "v_2", "at": 200.0}
    assert held_out(visits, told, BACK | {"at": 225.0}, {"fact": "closed", "at": 250.0}) == [(3, 2.0), (6, 9.0)]
    assert held_out(visits, told, {"fact": "closed", "at": 250.0}, BACK) == [(3, 2.0)]
    assert held_out(visits, {"fact": "restored", "at": 500.0}) == [(3, 2.0), (6, 9.0)]


def test_a_visit_s_time_is_looked_up_in_events_whose_clock_was_put_back() -> None:
    """Visit 2 closed before it was, at 250 by the clock of then, and so before the restore."""
    times = (200.0, 300.0, 100.0, 110.0)
    facts = [BACK | {"at": at} if n == 2 else {"fact": "ticked", "at": at} for n, at in enumerate(times)]
    assert held_out(PASSED_OVER[:2], *facts) == [(3, 2.0)]


def test_a_visit_that_is_under_way_or_was_recalled_is_placed_nowhere() -> None:
    """Its losses are told at the time it was planned for; no restore takes it back, and no step is behind it."""
    losses = [{"visit": "v_3", "holder": "north", "step": 5, "loss": 1.5}]
    points = curves(VIEW, VISITS, losses, [BACK | {"position": 2}])
    assert [one for one in points if one.curve == "loss/north"] == [Point("loss/north", 5, 1.5, 300.0)]
    assert [one.step for one in points if one.curve == "loss/held-out"] == [2, 4]


def test_what_was_measured_before_the_last_visit_is_behind_those_of_its_position_and_takes_none_back() -> None:
    visits = [_visit(n, "a", validation_after=None) for n in (1, 2)]
    early = {"fact": "last_checked", "position": 1, "validation_after": 4.0, "at": 900.0}
    last = early | {"position": 2, "validation_after": 3.0}
    assert held_out(visits, early, last) == [(2, 4.0), (4, 3.0)]


def test_a_loss_of_nothing_is_told_and_one_of_a_fact_that_nobody_knows_is_not() -> None:
    [visit] = visits = [_visit(1, "a", validation_after=0.0)]
    assert held_out(visits) == [(2, 0.0)]
    assert held_out([visit | {"validation_after": None}], TWICE[0] | {"validation_after": 0.0}) == [(2, 0.0)]
    other = TWICE[0] | {"fact": "something new", "validation_after": 5.0}
    assert held_out([visit | {"validation_after": None}], other) == []


def test_a_visit_is_placed_by_its_close_and_by_no_later_word_of_it() -> None:
    facts = [{"fact": fact, "visit": "v_2", "at": 250.0} for fact in ("closed", "receipted")]
    assert held_out(PASSED_OVER[:2], facts[0], BACK | {"at": 250.0}, facts[1]) == [(3, 2.0)]


BACK_LOSSES = [
    {"visit": "v_1", "holder": "a", "step": 1, "loss": 3.0},
    *({"visit": "v_2", "holder": "b", "step": step, "loss": 9.0} for step in (4, 5, 6)),
    *({"visit": "v_3", "holder": "c", "step": step, "loss": 0.5} for step in (4, 5, 6)),
]


def test_losses_of_a_visit_that_a_restore_took_back_for_good_are_gone_with_its_steps() -> None:
    for facts, said in (((), ["a", *"bbb", *"ccc"]), ((BACK,), ["a", *"ccc"])):
        points = curves(VIEW, PASSED_OVER, BACK_LOSSES, facts)
        assert [
            one.curve.removeprefix("loss/") for one in points if one.curve in ("loss/a", "loss/b", "loss/c")
        ] == said


def test_a_tour_that_a_restore_took_back_is_measured_when_it_ends_again() -> None:
    visits = [one | {"validation_after": None, "first_step": 3 * n} for n, one in enumerate(PASSED_OVER)]
    judged = {"fact": "tour_judged", "round": 1, "stepped": True, "validation_after": 4.0, "at": 400.0}
    assert held_out(visits[:2], judged) == [(6, 4.0)]
    assert held_out(visits[:2], judged, BACK) == []
    assert held_out(visits[:2], judged, BACK | {"position": 2}) == [(6, 4.0)]
    visits[2]["first_step"] = 3
    assert held_out(visits, judged, BACK, judged | {"validation_after": 3.0, "at": 700.0}) == [(6, 3.0)]


def put_back() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Visits and all facts, in order: the clock was put back behind a restore, and stop 2 was made again, before its first time."""
    times = {"v_1": (1, 1000.0), "v_2": (2, 1100.0), "v_3": (2, 610.0), "v_4": (3, 620.0), "v_5": (4, 630.0)}
    visits = [
        _visit(stop, "a", id=one, first_step=stop - 1, steps=1, closed_at=at, validation_after=float(stop))
        for one, (stop, at) in times.items()
    ]
    closed = [{"fact": "closed", "visit": one, "at": at} for one, (_, at) in times.items()]
    return visits, [*closed[:2], {"fact": "restored", "position": 1, "at": 1200.0}, *closed[2:]]


def test_what_was_made_again_behind_a_clock_that_was_put_back_stands() -> None:
    visits, facts = put_back()
    losses = [{"visit": one["id"], "holder": "a", "step": one["index"], "loss": 1.0} for one in visits]
    points = curves(VIEW, visits, losses, facts)
    assert [one.step for one in points if one.curve == "loss/a"] == [1, 2, 3, 4]
    assert held_out(visits, *facts) == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
