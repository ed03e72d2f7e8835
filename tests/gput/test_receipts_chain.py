"""The chain of models in a saved log: an accepted visit's update cannot vanish unsaid; what goes back has a leaf that says so."""

from __future__ import annotations

from typing import Any

import pytest

from gput.receipt_chain import check_models
from gput.receipt_folder import LEAVES
from gput.receipt_leaves import HeldReceipt
from gput.receipt_mixtures import Place
from shared.errors import VerificationFailed

Held = dict[int, HeldReceipt]


def visit(stop: int, before: str, after: str, **changes: Any) -> HeldReceipt:
    models = before * 64, after * 64
    usual = HeldReceipt(
        f"v_{stop}", stop, 1, "city", "closed", "EMULATED", 16, 0, 0, *models, None, None, None, 2 * stop
    )
    return usual._replace(**changes)


def event(kind: str, **details: Any) -> list[Any]:
    return ["gput/log-event/1", "s_aaaaaaaaaaaaaaaa", kind, details]


def ends_with(receipts: Held, events: dict[int, Any] | None = None) -> str:
    """The first letters of the models that the log may end with."""
    return "".join(model[0] for model in check_models(receipts, {}, events or {}, LEAVES))


def gone_back(first: int = 3) -> Held:
    """Two visits, and one that starts where the second did: what that one learnt is in no later model."""
    return {0: visit(1, "a", "b"), 1: visit(2, "b", "c"), first: visit(3, "b", "d")}


def test_a_whole_chain_holds() -> None:
    rejected = visit(3, "c", "c", outcome="rejected")
    assert ends_with({0: visit(1, "a", "b"), 1: visit(2, "b", "c"), 2: rejected, 5: visit(4, "c", "d")}) == "d"


@pytest.mark.parametrize("events", [{}, {2: event("recalled", visit="v_3")}, {4: event("restored", position=1)}])
def test_an_update_that_vanishes_unsaid_is_named(events: dict[int, Any]) -> None:
    with pytest.raises(
        VerificationFailed, match=r"leaf 3: visit v_3 starts from an earlier model, and no leaf"
    ) as caught:
        check_models(gone_back(), {}, events, LEAVES)
    assert caught.value.code == "model-gap"


def restored(position: Any) -> list[Any]:
    return event("restored", checkpoint="c", position=position)


def test_the_leaf_of_a_restore_tells_to_which_model() -> None:
    assert ends_with(gone_back(), {2: restored(1)}) == "d"
    whole = {0: visit(1, "a", "b"), 1: visit(2, "b", "c"), 2: visit(3, "c", "d")}
    assert [ends_with(whole, {3: restored(position)}) for position in range(5)] == ["a", "b", "c", "d", "d"]
    for position in (0, 2, 3):
        with pytest.raises(VerificationFailed, match="leaf 3: visit v_3 starts from an earlier model") as caught:
            check_models(gone_back(), {}, {2: restored(position)}, LEAVES)
        assert caught.value.code == "model-gap"


def test_what_a_restore_took_back_is_gone_back_to_by_no_later_one() -> None:
    """Two histories: a-b-c, and from b on, d. Where three stops lie behind, the second one stands."""
    both = {**gone_back(), 4: visit(4, "d", "e")}
    assert ends_with(both, {2: restored(1), 5: restored(3)}) == "d"
    assert ends_with(both, {2: restored(1), 5: restored(2)}) == "b"
    assert ends_with(both, {2: restored(1), 5: restored(3), 6: restored(0)}) == "a"


def test_stops_that_were_passed_over_lie_behind_as_well() -> None:
    gaps = {0: visit(2, "a", "b"), 1: visit(6, "b", "c")}
    assert [ends_with(gaps, {2: restored(position)}) for position in (0, 1, 2, 5, 6, 9)] == list("aabbcc")
    assert ends_with({1: visit(2, "a", "b")}, {0: restored(0)}) == "b"


def test_a_rejected_visit_is_behind_where_it_left_the_model() -> None:
    log = {0: visit(1, "a", "b"), 1: visit(2, "b", "c", outcome="rejected"), 2: visit(3, "b", "d")}
    assert [ends_with(log, {3: restored(position)}) for position in (1, 2, 3)] == list("bbd")


@pytest.mark.parametrize("position", [None, -1, "1", [1]])
def test_a_restore_to_nowhere_is_named(position: Any) -> None:
    with pytest.raises(VerificationFailed, match=f"{LEAVES}: leaf 2: ") as caught:
        check_models(gone_back(), {}, {2: restored(position)}, LEAVES)
    assert caught.value.code == "malformed"


def test_a_restore_counts_for_one_visit_only() -> None:
    with pytest.raises(VerificationFailed, match="leaf 4: visit v_4"):
        check_models(gone_back() | {4: visit(4, "b", "e")}, {}, {2: restored(1)}, LEAVES)


def ends_best(receipts: Held, events: dict[int, Any]) -> str:
    return "".join(model[0] for model in check_models(receipts, {}, events, LEAVES, releases_best=True))


def test_the_choice_of_the_best_goes_back_to_that_model_only() -> None:
    chosen = event("best_chosen", model="b" * 64)
    assert ends_best(gone_back(), {2: chosen}) == "d"
    assert ends_best({0: visit(1, "a", "b"), 1: visit(2, "b", "c")}, {2: chosen}) == "b"
    with pytest.raises(VerificationFailed, match="leaf 3: visit v_3"):
        ends_best(gone_back(), {2: event("best_chosen", model="a" * 64)})
    with pytest.raises(VerificationFailed, match="leaf 4: the chosen model is one that no earlier receipt left"):
        ends_best(gone_back(), {2: restored(1), 4: event("best_chosen", model="c" * 64)})


def test_a_late_approval_may_come_before_the_gpu_has_gone_back_to_the_best() -> None:
    """What was chosen is written down first; a process that dies then finds a visit to make, from the last model."""
    log = {0: visit(1, "a", "b"), 1: visit(2, "b", "c"), 3: visit(3, "c", "d")}
    chosen = event("best_chosen", model="b" * 64)
    assert ends_best(log, {2: chosen}) == "d"
    assert ends_best(log, {2: chosen, 4: event("best_chosen", model="b" * 64)}) == "b"


def test_nothing_is_chosen_where_the_last_model_is_released() -> None:
    with pytest.raises(
        VerificationFailed, match=f"{LEAVES}: leaf 2: the choice of a best model in a session"
    ) as caught:
        check_models(gone_back(), {}, {2: event("best_chosen", model="b" * 64)}, LEAVES)
    assert caught.value.code == "mismatch"
    for details in ({}, {"model": ["b" * 64]}):
        with pytest.raises(VerificationFailed, match=f"{LEAVES}: leaf 2: the choice of a model that names none"):
            ends_best(gone_back(), {2: event("best_chosen", **details)})


def tour(at: int, before: str, after: str, number: int = 1) -> Held:
    """Three visits whose records were trained on as one, from leaf `at` on."""
    places = (Place(round=number, seed=7, visits=3, records=48, first=first) for first in (0, 16, 32))
    return {at + n: visit(at + n, before, after, place=tuple(place)) for n, place in enumerate(places)}


def test_visits_of_a_collected_tour_start_from_one_model() -> None:
    assert ends_with(tour(0, "a", "b") | tour(3, "b", "c", 2)) == "c"


@pytest.mark.parametrize("number", [1, 2])
def test_a_tour_that_undoes_the_one_before_is_named(number: int) -> None:
    with pytest.raises(VerificationFailed, match="leaf 3: visit v_3 starts from an earlier model"):
        check_models(tour(0, "a", "b") | tour(3, "a", "c", number), {}, {}, LEAVES)


def test_a_visit_within_a_tour_starts_where_that_began() -> None:
    changed = tour(3, "b", "c", 2)
    changed[4] = changed[4]._replace(model_before="a" * 64)
    with pytest.raises(VerificationFailed, match="leaf 4: visit v_4 starts from an earlier model"):
        check_models(tour(0, "a", "b") | changed, {}, {}, LEAVES)


def step(stop: int, before: str, after: str, first: int, **changes: Any) -> HeldReceipt:
    """A visit of three steps."""
    return visit(stop, before, after, first_step=first, steps=3, **changes)


def test_steps_are_counted_on_from_visit_to_visit() -> None:
    rejected = step(2, "b", "b", 3, outcome="rejected")
    assert ends_with({0: step(1, "a", "b", 0), 1: rejected, 2: step(3, "b", "c", 3), 3: step(4, "c", "d", 6)}) == "d"
    again = {0: step(1, "a", "b", 0), 1: step(2, "b", "c", 3), 3: step(2, "b", "d", 3), 4: step(3, "d", "e", 6)}
    assert ends_with(again, {2: restored(1)}) == "e"
    chosen = {2: event("best_chosen", model="b" * 64)}
    assert ends_best({0: step(1, "a", "b", 0), 1: step(2, "b", "c", 3), 3: step(3, "b", "d", 3)}, chosen) == "d"
    mixed = tour(0, "a", "b") | tour(3, "b", "c", 2)
    places = {at: one._replace(first_step=9 * (at > 2), steps=9) for at, one in mixed.items()}
    assert ends_with(places) == "c"


@pytest.mark.parametrize(
    ("receipts", "events", "leaf"),
    [
        ({0: step(1, "a", "b", 3)}, {}, 0),
        ({0: step(1, "a", "b", 0), 1: step(2, "b", "c", 0)}, {}, 1),
        ({0: step(1, "a", "b", 0), 1: step(2, "b", "c", 6)}, {}, 1),
        ({0: step(1, "a", "a", 0, outcome="rejected"), 1: step(2, "a", "c", 3)}, {}, 1),
        ({0: step(1, "a", "b", 0), 1: step(2, "b", "c", 3), 3: step(2, "b", "d", 6)}, {2: restored(1)}, 3),
        (tour(0, "a", "b") | {1: tour(0, "a", "b")[1]._replace(first_step=3)}, {}, 1),
    ],
)
def test_a_step_that_is_counted_twice_or_left_out_is_named(receipts: Held, events: dict[int, Any], leaf: int) -> None:
    with pytest.raises(VerificationFailed, match=f"leaf {leaf}: visit v_.* does not count on from the steps") as caught:
        ends_with(receipts, events)
    assert caught.value.code == "step-gap"
