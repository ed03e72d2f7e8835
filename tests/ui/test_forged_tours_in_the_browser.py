"""Logs of accumulated gradients, judged by the browser and by `gput receipts verify`: honest ones hold in both, forged ones in neither."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shared.claims.receipt import Accumulated
from shared.crypto.signing import PartyKey
from tests.gput.forged_logs import Ended, Forger, Visited
from tests.ui.test_forged_logs_in_the_browser import RULE, Make, best, held_by_gput, log_of, restored
from tests.ui.test_receipts_in_the_browser import CHECK

ONE, TWO, THREE, FOUR, FIVE, SIX = (Visited(stop) for stop in range(1, 7))
FIRST, SECOND = Ended(1), Ended(2)
OTHER = "c" * 64


def losses(before: Any, after: Any) -> dict[str, Any]:
    """Of a tour's end: what its leaf tells of the held-out loss."""
    return {"validation_before": before, "validation_after": after}


ROSE = losses(1.0, 101.0)


def rejected(stop: int) -> Visited:
    return Visited(stop, told={"outcome": "rejected"})


def added(before: str = OTHER, after: str = OTHER, batches: int = 4) -> dict[str, Any]:
    """Of a statement: what became of the accumulator."""
    kept = Accumulated(before=before, after=after, batches=4).model_copy(update={"batches": batches})
    return {"accumulated": kept}


@pytest.fixture(scope="module")
def forger(tmp_path_factory: pytest.TempPathFactory) -> Forger:
    """A session of two rounds that accumulates gradients and releases its best model."""
    changes = {"rounds": 2, "accumulate": "tour", "validation": RULE.model_dump() | {"release": "best"}}
    folder = tmp_path_factory.mktemp("tours")
    with ThreadPoolExecutor(1) as beside:  # what drives the browser has an event loop in this thread
        return beside.submit(Forger, folder, **changes).result()


HONEST: dict[str, Make] = {
    "two tours": log_of(ONE, TWO, THREE, FIRST, FOUR, FIVE, SIX, SECOND),
    "a rejected visit": log_of(ONE, rejected(2), THREE, FIRST, rejected(4), FIVE),
    "a first visit that is rejected": log_of(rejected(1), TWO, FIRST),
    "a tour that was dropped": log_of(ONE, Ended(1, dropped=True, told=ROSE), FOUR, SECOND),
    "losses that a journal gave back as whole numbers": log_of(
        ONE,
        Ended(1, told=losses(2, 2)),
        FOUR,
        Ended(2, told=losses(2, 1.5)),
    ),
    "a tour whose loss was no number": log_of(
        ONE,
        Ended(1, dropped=True, told=losses(float("inf"), float("nan"))),
    ),
    "a tour that measured nothing": log_of(ONE, Ended(1, told=losses(None, None))),
    "who joins late": log_of(ONE, FIRST, TWO, FIRST, FOUR),
    "a restore within a tour": log_of(ONE, TWO, restored(1), Visited(2, start=0), FIRST),
    "a restore to before the end": log_of(ONE, TWO, FIRST, restored(2), Ended(1, start=1), FOUR),
    "a restore to behind the end": log_of(ONE, TWO, FIRST, FOUR, restored(3), Visited(4, start=2)),
    "a late visit from the best model": log_of(ONE, FIRST, FOUR, SECOND, best(1), Visited(5, start=1)),
    "a restore behind the choice": log_of(ONE, FIRST, FOUR, SECOND, best(1), best(1), restored(4), Visited(5, start=1)),
}
FORGED: dict[str, tuple[Make, str]] = {
    "begins with something": (log_of(Visited(1, said=added(batches=5))), "did not begin with what was left"),
    "counts too many": (log_of(ONE, Visited(2, said=added(batches=9))), "did not begin with what was left"),
    "adds to something else": (log_of(ONE, Visited(2, said=added(batches=8))), "did not begin with what was left"),
    "more than can be counted": (log_of(Visited(1, said=added(batches=2**53))), "batches is no count"),
    "steps by itself": (log_of(Visited(1, said={"model_after": OTHER})), "changed the model"),
    "says nothing of it": (log_of(Visited(1, said={"accumulated": None})), "no word of what was accumulated"),
    "a rejected visit stays in": (
        log_of(ONE, Visited(2, said=added("d" * 64, batches=4), told={"outcome": "rejected"})), "the accumulator changed all the same",
    ),
    "a visit is left out": (log_of(ONE, TWO, Ended(1, start=0)), "did not begin with what was left"),
    "a visit of the next round": (log_of(ONE, FOUR), "finds the gradients of round 1"),
    "an end of another round": (log_of(ONE, SECOND), "finds the gradients of round 1"),
    "spends twice": (log_of(ONE, FIRST, Ended(1, start=0)), "starts from an earlier model"),
    "spends what is not there": (log_of(ONE, Ended(1, said={"batches": 9})), "did not begin with what was left"),
    "an end of nothing": (log_of(ONE, Ended(1, said={"batches": 0})), "no gradients were in it"),
    "an end of more than can be counted": (log_of(ONE, Ended(1, said={"batches": 2**53})), "batches is no count"),
    "a model that no end left": (log_of(ONE, FIRST, Visited(4, start=0)), "starts from an earlier model"),
    "an end that left another": (log_of(ONE, Ended(1, said={"model_before": OTHER})), "starts from a model that no earlier"),
    "what was added is not restored": (log_of(ONE, TWO, restored(1), THREE), "does not count on"),
    "what was left is not restored": (
        log_of(ONE, TWO, restored(1), Visited(2, start=0, said=added())), "did not begin with what was left",
    ),
    "not the best model's accumulator": (
        log_of(ONE, FIRST, FOUR, SECOND, best(1), restored(4), Visited(5, start=1, said=added())), "did not begin with what was left",
    ),
    "by a stranger": (log_of(ONE, Ended(1, key=PartyKey.generate())), "signed by no GPU that was attested"),
    "of another session": (log_of(ONE, Ended(1, said={"session": "s_0000000000000000"})), "session differs"),
    "of another program": (log_of(ONE, Ended(1, said={"program": "0" * 96})), "program differs"),
    "told of another round": (log_of(ONE, Ended(1, told={"round": 2})), "round differs"),
    "told of a round that is none": (log_of(ONE, Ended(1, told={"round": True})), "round differs"),
    "told of a fraction of a round": (log_of(ONE, Ended(1, told={"round": 1.0})), "round differs"),
    "told to have stepped once": (log_of(ONE, Ended(1, told={"stepped": 1})), "stepped differs"),
    **{
        f"told of a loss of {loss!r}": (log_of(ONE, Ended(1, told=losses(loss, after))), "null or a number")
        for loss, after in [(2**60, 1), (-(2**53), -(2**60)), (True, True), ("a", "b"), (b"", b"")]
    },
    "told as dropped": (log_of(ONE, Ended(1, told={"stepped": False})), "stepped differs"),
    "dropped, and yet another model": (
        log_of(ONE, Ended(1, dropped=True, said={"model_after": OTHER})), "the model changed though they were dropped",
    ),
    "raised the held-out loss too far": (log_of(ONE, Ended(1, told=ROSE)), "kept though it rose too far"),
    "no end at all": (log_of(ONE, Ended(1, told={"statement": ""})), "leaf 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_log_of_tours_holds_in_both(page: Any, forger: Forger, name: str) -> None:
    bundle = HONEST[name](forger)
    assert (page.evaluate(CHECK, bundle), held_by_gput(forger, bundle)) == ([], True)


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_log_of_tours_is_refused_by_both(page: Any, forger: Forger, name: str) -> None:
    make, named = FORGED[name]
    bundle = make(forger)
    found = page.evaluate(CHECK, bundle)
    assert any(named in line for line in found), found
    assert not held_by_gput(forger, bundle)
