"""How many different records a step has: as if each were looked at, one by one, and without looking at most of them."""

from __future__ import annotations

import itertools
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.claims.visit import CursorRange
from shared.protocol import different_records, mixture, record_order
from shared.protocol.different_records import AN_EPOCH, fewest, times
from shared.protocol.mixture import Brought, Mixing, mixture_order
from shared.protocol.record_order import Shuffle, records_of

Order = Literal["sequential", "shuffled"]
ORDERS: tuple[Order, ...] = ("sequential", "shuffled")


def told_enough(told: int, exact: int, enough: int) -> bool:
    """Whether a number told so far as `enough` asks is this one."""
    return enough <= told <= exact if exact >= enough else told < enough


def per_step(names: list[Any], batch: int) -> list[int]:
    return [len(set(names[first : first + batch])) for first in range(0, len(names), batch)]


@pytest.mark.parametrize("kind", ORDERS)
@pytest.mark.parametrize("n", [1, 2, 7, 12])
def test_a_visits_poorest_step_wherever_its_range_begins(n: int, kind: Order) -> None:
    for start, batch, steps in itertools.product(range(2 * n + 1), range(1, 3 * n + 1), (1, 2, 5)):
        cursor = CursorRange(start=start, count=batch * steps, order=kind, seed=7)
        named = records_of(cursor, n).tolist()
        exact = min(per_step(named, batch))
        for enough in (1, n // 2 + 1, n - 1, n, exact, exact + 1, batch, batch + 1):
            assert told_enough(fewest(cursor, n, batch, steps, enough), exact, enough)
        assert fewest(cursor, n, len(named), 1, len(named) + 1) == len(set(named))
        assert max(map(named.count, named)) <= times(cursor, n)


def test_a_shuffled_range_over_two_epochs_may_name_one_record_twice() -> None:
    cursor = CursorRange(start=8, count=8, order="shuffled", seed=7)
    assert [fewest(cursor, 12, 8, 1, 8), fewest(cursor, 12, 4, 2, 4), fewest(cursor, 12, 0, 1, 1)] == [7, 4, 0]


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[int, list[Brought], int]:
    """Seed, what is brought, and a batch that divides it."""
    batch = draw(st.integers(1, 24))
    sizes = draw(st.fixed_dictionaries({root: st.integers(1, 40) for root in ("aa", "bb", "cc")}))
    visit = st.tuples(st.sampled_from(sorted(sizes)), st.sampled_from(ORDERS), st.integers(0, 90), st.integers(1, 4))
    brought = []
    for root, kind, start, steps in draw(st.lists(visit, min_size=1, max_size=4)):
        cursor = CursorRange(start=start, count=steps * batch, order=kind, seed=draw(st.integers(0, 3)))
        brought.append(Brought(root, sizes[root], cursor))
    return draw(st.integers(0, 2**53 - 1)), brought, batch


def looked_at(seed: int, brought: list[Brought]) -> list[tuple[str, int]]:
    """What the mixture trains on, each by its dataset and number there."""
    names = [(one.dataset, i) for one in brought for i in records_of(one.cursor, one.n).tolist()]
    return [names[place] for place in mixture_order(seed, len(names)).records(np.arange(len(names))).tolist()]


@settings(max_examples=300, deadline=None)
@given(mixtures(), st.integers(1, 26), st.sampled_from([7, 16, different_records.AT_ONCE]))
def test_a_mixture_counts_a_record_once_whoever_brings_it(
    made: tuple[int, list[Brought], int], enough: int, at_once: int
) -> None:
    """In pieces of whatever length: shorter than a step, or of some steps, or all at once."""
    (seed, brought, batch), patched = made, pytest.MonkeyPatch()
    mixed, mixing = looked_at(seed, brought), Mixing(seed, brought)
    counts = per_step(mixed, batch)
    with patched.context() as patch:
        for module in (different_records, mixture):
            patch.setattr(module, "AT_ONCE", at_once)
        assert told_enough(mixing.fewest(batch, len(counts), enough), min(counts), enough)
        assert told_enough(mixing.fewest(len(mixed), 1, enough), len(set(mixed)), enough)
        for steps in range(1, len(counts)):
            assert told_enough(mixing.fewest(batch, steps, min(counts)), min(counts[:steps]), min(counts))


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of positions that orders are asked for from now on."""
    asked, whole = list[int](), Shuffle.records

    def records(self: Shuffle, positions: Any) -> Any:
        asked.append(positions.size)
        return whole(self, positions)

    monkeypatch.setattr(record_order.Shuffle, "records", records)
    return asked


def repeated(holders: int, steps: int) -> list[Brought]:
    """Visits of 256 records a step; the first one's dataset comes two and a half times."""
    count = 256 * steps
    return [
        Brought(
            f"{i:064x}",
            count * 2 // 5 if i == 0 else 10**6,
            CursorRange(start=0, count=count, order="shuffled", seed=i),
        )
        for i in range(holders)
    ]


def test_a_tour_is_looked_at_in_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is done while the GPU answers no command: step by step, an honest tour took longer than a command may."""
    holders, steps = 16, 50
    mixing, asked = Mixing(3, repeated(holders, steps)), counted(monkeypatch)
    assert mixing.fewest(256, holders * steps, 200) >= 200
    assert sum(asked) == 2 * 256 * holders * steps
    assert len(asked) <= holders + 1


def test_a_visit_is_looked_at_where_two_epochs_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    cursor, asked = CursorRange(start=0, count=2**20, order="shuffled", seed=1), counted(monkeypatch)
    assert 200 <= fewest(cursor, 10**5, 256, 4096, 200) < 256
    assert asked == [256 * 9]  # ten borders, one of them between two steps


def test_what_is_too_long_to_count_is_told_by_what_it_surely_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer than there are, perhaps: then losses stay in the GPU."""
    mixing, records = Mixing(3, repeated(4, 50)), 256 * 200
    epochs = AN_EPOCH * (3 + 1 + 1 + 1)
    monkeypatch.setattr(mixture, "LONGEST", records + epochs)
    assert mixing.fewest(256, 200, 200) >= 200
    monkeypatch.setattr(mixture, "LONGEST", records + epochs - 1)
    assert [mixing.fewest(256, 200, enough) for enough in (200, 86)] == [86, 86]  # a record comes three times at most
    cursor = CursorRange(start=7, count=2**20, order="shuffled", seed=1)
    monkeypatch.setattr(different_records, "LONGEST", 256 * 10)
    assert [fewest(cursor, 300, 256, 4096, enough) for enough in (200, 128)] == [128, 128]


def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Epochs whose keys are drawn from now on."""
    asked, keys = list[int](), record_order._epoch_keys.__wrapped__

    def drawing(seed: int, epoch: int) -> tuple[int, ...]:
        asked.append(epoch)
        return keys(seed, epoch)

    monkeypatch.setattr(record_order, "_epoch_keys", drawing)
    return asked


def test_a_dataset_of_few_records_makes_nobody_draw_an_epoch_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """One holder's could take the GPU beyond a command's minute, which ends its life, again and again."""
    asked, many = drawn(monkeypatch), CursorRange(start=1, count=2**19, order="shuffled", seed=2)
    honest = Brought("a", 2**20, CursorRange(start=0, count=2**19, order="shuffled", seed=1))
    for few, surely in ((2, 1), (3, 1)):
        assert Mixing(3, [honest, Brought("b", few, many)]).fewest(256, 4096, 3) == surely
    assert fewest(CursorRange(start=1, count=800_000, order="shuffled", seed=2), 4, 4, 200_000, 3) == 2
    assert records_of(many, 1).tolist() == [0] * many.count
    assert asked == []


def test_as_many_epochs_as_there_is_time_for_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no more, counted as the records that could be looked at meanwhile."""
    asked = drawn(monkeypatch)
    cursor = CursorRange(start=1, count=4 * 50, order="shuffled", seed=2)  # each step is in two epochs of four records
    monkeypatch.setattr(different_records, "LONGEST", 50 * (4 + AN_EPOCH))
    assert fewest(cursor, 4, 4, 50, 3) == 3
    assert len(asked) == 51
    asked.clear()
    monkeypatch.setattr(different_records, "LONGEST", 50 * (4 + AN_EPOCH) - 1)
    assert fewest(cursor, 4, 4, 50, 3) == 2
    assert asked == []


def test_a_dataset_of_one_record_is_no_work_however_often_it_is_taken() -> None:
    cursor = CursorRange(start=0, count=70_000, order="shuffled", seed=1)
    brought = [Brought("a", 1, cursor), Brought("b", 10**6, cursor)]
    assert Mixing(5, brought).fewest(32, 4375, 8) == 5, "counted, and not what it surely has"
