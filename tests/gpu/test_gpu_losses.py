"""Losses over shuffled records: over the border of two epochs a record may come twice, and no loss leaves over too few different ones."""

from __future__ import annotations

import numpy as np
import pytest

from shared.claims.visit import CursorRange
from shared.protocol.different_records import fewest
from shared.protocol.mixture import mixture_seed
from shared.protocol.record_order import Shuffle, records_of
from shared.wire import gpu
from tests.gpu.gpu_holder import RECORD_BYTES, Holder
from tests.gpu.gpu_world import BATCH, World, records

N = 12
DATASET = records(N)


def cursor_visit(world: World, cursor: CursorRange, region: int = 0, n: int = N) -> Holder:
    """A visit that brings what `cursor` names of the first `n` records."""
    dataset = DATASET[: n * RECORD_BYTES]
    holder = world.install(region=region, dataset=dataset, cursor=cursor)
    rows = np.frombuffer(dataset, np.uint8).reshape(n, RECORD_BYTES)
    holder.send(rows[records_of(cursor, n)].tobytes())
    world.open_epoch(holder.grant.epoch)
    return holder


@pytest.mark.parametrize(
    ("floor", "start", "told"), [(BATCH, 8, False), (BATCH - 1, 8, True), (BATCH, 4, True), (BATCH, 12, True)]
)
def test_a_batch_over_two_epochs_counts_a_record_once(world: World, floor: int, start: int, told: bool) -> None:
    world.set_up(privacy_floor=floor)
    holder = cursor_visit(world, CursorRange(start=start, count=BATCH, order="shuffled", seed=7))
    assert fewest(holder.grant.cursor, N, BATCH, 1, BATCH) == (7 if start == 8 else 8)
    world.run(gpu.Evaluate(work="e1", region=holder.grant.region, records=BATCH))
    assert (world.finish("e1").loss is not None) is told
    state = world.train(holder, steps=1)
    assert (state.state, len(state.losses), state.loss is not None) == ("done", int(told), told)


@pytest.mark.parametrize("order", ["sequential", "shuffled"])
def test_one_short_batch_keeps_every_steps_loss(world: World, order: str) -> None:
    """Told of the others and of their mean, anybody could work out what the short one's is."""
    world.set_up(privacy_floor=BATCH)
    holder = cursor_visit(
        world, CursorRange.model_validate({"start": 0, "count": 3 * BATCH, "order": order, "seed": 7})
    )
    state = world.train(holder, steps=3)
    assert (state.steps_done, len(state.losses), state.loss is not None) == (3, 3 if order == "sequential" else 0, True)


@pytest.mark.parametrize(("orders", "floor", "told"), [
    (("shuffled", "shuffled"), 2 * BATCH, False), (("shuffled", "sequential"), 2 * BATCH - 1, False), (("shuffled",) * 2, BATCH - 1, True),
])  # fmt: skip
def test_a_tours_loss_counts_a_record_once(world: World, orders: tuple[str, ...], floor: int, told: bool) -> None:
    """Also one that two visits bring: both are of the dataset with this root."""
    world.set_up(collect="tour", privacy_floor=floor)
    cursors = [CursorRange.model_validate({"start": 8, "count": BATCH, "order": order, "seed": 7}) for order in orders]
    holders = [cursor_visit(world, cursor, region) for region, cursor in enumerate(cursors)]
    parts = [gpu.TourPart(visit=one.grant.visit, region=one.grant.region, records=BATCH) for one in holders]
    world.run(gpu.TrainTour(work="t1", round=1, seed=mixture_seed(7, 1), first_step=0, steps=2, parts=parts))
    done = world.finish("t1")
    assert (done.state, done.records, done.loss is not None) == ("done", 2 * BATCH, told)


def test_a_tours_steps_are_not_looked_at_one_by_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are when the first one's loss is noted, and meanwhile the GPU answers no command."""
    world.set_up(collect="tour", privacy_floor=3)
    cursor = CursorRange(start=0, count=4 * BATCH, order="shuffled", seed=7)
    holders = [cursor_visit(world, cursor, region) for region in (0, 1)]
    parts = [gpu.TourPart(visit=one.grant.visit, region=one.grant.region, records=cursor.count) for one in holders]
    asked, whole = list[int](), Shuffle.records
    monkeypatch.setattr(Shuffle, "records", lambda self, places: asked.append(places.size) or whole(self, places))
    world.run(gpu.TrainTour(work="t1", round=1, seed=mixture_seed(7, 1), first_step=0, steps=8, parts=parts))
    assert len(world.finish("t1").losses) == 8
    assert sorted(asked) == [cursor.count, cursor.count, 2 * cursor.count]
