"""Collected tours on a real device: several regions wait, one training mixes them, all are scrubbed, each statement names the mixture."""

from __future__ import annotations

from typing import Any

import cbor2
import numpy as np
import pytest

from shared.claims.privacy import Privacy
from shared.claims.receipt import DeviceStatement, Mixed
from shared.names import RegionKind, TravelMode
from shared.protocol.mixture import mixture_order, mixture_seed
from shared.wire import gpu, gpu_answers
from tests.gpu.gpu_holder import RECORD_BYTES, Holder
from tests.gpu.gpu_world import BATCH, World, records

DATA = (records(24, 1), records(8, 2), records(32, 3))
SEED = mixture_seed(7, 1)
IN_ALL = sum(len(data) for data in DATA) // RECORD_BYTES


def _collected(world: World, data: tuple[bytes, ...] = DATA) -> list[Holder]:
    world.set_up(collect="tour", buffers=len(DATA))
    return [world.visit(one, region=number) for number, one in enumerate(data)]


def _command(holders: list[Holder], work: str = "t1", **changes: Any) -> gpu.TrainTour:
    parts = [gpu.TourPart(visit=one.grant.visit, region=one.grant.region, records=one.grant.records) for one in holders]
    fields: dict[str, Any] = {
        "round": 1,
        "seed": SEED,
        "first_step": 0,
        "steps": sum(p.records for p in parts) // BATCH,
    }
    return gpu.TrainTour(work=work, **({"parts": parts} | fields | changes))


def _end(world: World, holders: list[Holder], first: gpu.Commit | gpu.RollBack) -> list[Any]:
    scrubs = [gpu.Scrub(region=one.grant.region) for one in holders]
    return world.run(first, *scrubs, *(gpu.CloseVisit(visit=one.grant.visit) for one in holders))


def _said(answers: list[Any]) -> list[DeviceStatement]:
    statements = [answer.statement for answer in answers if isinstance(answer, gpu_answers.Statement)]
    return [DeviceStatement.model_validate(cbor2.loads(cbor2.loads(one).value[2])) for one in statements]


def _pooled(world: World) -> gpu_answers.Committed:
    """One visit with all of the records in the mixture's order, on a GPU that knows no tours."""
    world.set_up(buffers=1)
    pooled = np.frombuffer(b"".join(DATA), np.uint8).reshape(IN_ALL, RECORD_BYTES)
    data = pooled[mixture_order(SEED, IN_ALL).records(np.arange(IN_ALL))].tobytes()
    holder = world.visit(data)
    assert world.train(holder, "w", IN_ALL // BATCH).state == "done"
    return world.run(gpu.Commit(work="w"))[0]  # type: ignore[no-any-return]  # answers are a union that tests know


@pytest.mark.parametrize(("floor", "told"), [(41, True), (42, False)])
def test_a_tours_loss_is_over_as_many_records_as_its_visits_have_different_ones(
    world: World, floor: int, told: bool
) -> None:
    world.set_up(collect="tour", buffers=len(DATA), privacy_floor=floor)
    one = DATA[0][:RECORD_BYTES]
    holders = [world.install(24, 0, one), *(world.visit(data, number) for number, data in enumerate(DATA[1:], 1))]
    holders[0].send(one * 24)
    world.open_epoch(holders[0].grant.epoch)
    world.run(_command(holders))
    done = world.finish("t1")
    assert (done.state, done.losses, done.loss is not None) == ("done", [], told)


def test_a_tour_equals_one_visit_with_everybodys_records_in_its_order(world: World) -> None:
    holders = _collected(world)
    start = world.measure()
    world.run(_command(holders))
    done = world.finish("t1")
    assert (done.state, done.steps_done, done.records) == ("done", IN_ALL // BATCH, IN_ALL)
    answers = _end(world, holders, gpu.Commit(work="t1"))
    committed = answers[0]
    for said, one, first in zip(_said(answers), holders, (0, 24, 32), strict=True):
        assert said.mixed == Mixed(round=1, seed=SEED, visits=3, records=IN_ALL, first=first)
        assert (said.holder, said.records, said.steps) == (one.grant.holder, one.grant.records, IN_ALL // BATCH)
        assert (said.model_before, said.model_after) == (start.model, committed.model)
    assert [world.phase(one.grant.region) for one in holders] == ["CLEAN"] * 3
    for place in (world.region(RegionKind.DATASET, number) for number in range(3)):
        assert not any(world.hbm.view(place.address, place.length))
    pooled = _pooled(world)
    assert (pooled.model, pooled.optimiser, pooled.step) == (committed.model, committed.optimiser, committed.step)


def test_a_tour_over_a_repeat_a_new_life_and_a_roll_back_ends_the_same(world: World) -> None:
    holders = _collected(world)
    world.run(_command(holders))
    world.finish("t1")
    straight = _end(world, holders, gpu.Commit(work="t1"))[0]
    holders = _collected(world)
    world.run(_command(holders, "cut-off"))
    world.resume()
    assert [world.phase(one.grant.region) for one in holders] == ["CLEAN"] * 3, "a new life finds nobody's records"
    world.run(gpu.RollBack())
    assert world.refused(_command(holders, "late")) == "out-of-order"
    again = [world.visit(one, region=number) for number, one in enumerate(DATA)]
    first = world.run(_command(again))[0]
    assert world.run(_command(again))[0].work == first.work, "a repeat is answered, not done"
    world.finish("t1")
    assert _end(world, again, gpu.Commit(work="t1"))[0] == straight


def test_a_tour_is_rolled_back_as_one(world: World) -> None:
    holders = _collected(world)
    before = world.measure()
    world.run(_command(holders))
    world.finish("t1")
    answers = _end(world, holders, gpu.RollBack())
    assert (answers[0].model, answers[0].optimiser, answers[0].step) == (before.model, before.optimiser, 0)
    assert all(said.model_after == said.model_before == before.model for said in _said(answers))


def test_who_is_recalled_is_scrubbed_and_the_others_are_trained_on(world: World) -> None:
    holders = _collected(world)
    world.run(gpu.Scrub(region=holders[1].grant.region))
    assert world.refused(_command(holders)) == "out-of-order"
    left = [holders[0], holders[2]]
    world.run(_command(left))
    assert world.finish("t1").records == 56
    assert [said.mixed.first for said in _said(_end(world, left, gpu.Commit(work="t1"))) if said.mixed] == [0, 24]
    assert world.refused(gpu.CloseVisit(visit=holders[1].grant.visit)) == "visit-not-trained"


def test_whose_record_is_out_of_range_is_told(world: World) -> None:
    spoilt = bytearray(DATA[1])
    spoilt[RECORD_BYTES - 8 : RECORD_BYTES] = (99).to_bytes(8, "little")
    holders = _collected(world, (DATA[0], bytes(spoilt), DATA[2]))
    world.run(_command(holders))
    failed = world.finish("t1")
    assert (failed.state, failed.code, failed.visit) == ("failed", "record-out-of-range", holders[1].grant.visit)
    assert world.run(gpu.RollBack())[0].step == 0


def test_a_tour_is_trained_on_only_as_it_may_be(world: World) -> None:
    holders = _collected(world)
    assert world.refused(world.train_command(holders[0])) == "collected"
    assert world.refused(_command(holders, steps=7)) == "wrong-records"
    assert world.refused(_command(holders, first_step=1)) == "wrong-step"
    assert world.refused(_command([holders[0], holders[0]])) == "wrong-region"
    here, there, _ = usual = _command(holders).parts
    swapped = [here.model_copy(update={"region": there.region}), there.model_copy(update={"region": here.region})]
    assert world.refused(_command(holders, parts=swapped)) == "wrong-region"
    fewer = here.model_copy(update={"records": here.records - BATCH})
    assert world.refused(_command(holders, parts=[fewer, *usual[1:]], steps=7)) == "wrong-records"
    world.set_up(collect="tour", buffers=3)
    filling = [world.visit(DATA[0], region=0), world.install(8, 1, DATA[1])]
    assert world.refused(_command(filling)) == "out-of-order", "its key is still alive"
    world.set_up()
    plain = world.visit(DATA[0])
    assert world.refused(_command([plain])) == "not-collected"


def test_while_a_tour_waits_no_region_of_it_is_granted_again(world: World) -> None:
    holders = _collected(world)
    epoch, _, _ = world.open_epoch()
    assert world.refused(gpu.InstallGrant(grant=world.grant(epoch, region=1))) == "out-of-order"
    world.run(_command(holders))
    world.finish("t1")
    assert world.refused(gpu.InstallGrant(grant=world.grant(epoch, region=1))) == "out-of-order"
    world.run(gpu.Commit(work="t1"))
    assert world.refused(gpu.InstallGrant(grant=world.grant(epoch, region=1))) == "out-of-order"
    world.run(gpu.Scrub(region=holders[1].grant.region), gpu.InstallGrant(grant=world.grant(epoch, region=1)))


@pytest.mark.parametrize(
    "changes",
    [
        {"travel_mode": TravelMode.PAPER},
        {"privacy": Privacy(max_grad_norm=1.0, noise_multiplier=1.0, delta=1e-6)},
        {"accumulate": "tour"},
    ],
    ids=["paper", "private", "accumulated"],
)
def test_where_records_may_not_wait_side_by_side_the_gpu_refuses_to_be_configured(
    world: World, changes: dict[str, Any]
) -> None:
    world.connect()
    upload, bulk = world.program_command()
    world.run(gpu.InitSession(session="s_0123456789abcdef", manifest="ab" * 32), upload, bulk=bulk)
    assert world.refused(world.configure_command(collect="tour", **changes)) == "not-collectable"
