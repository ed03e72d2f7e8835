"""Training, commit, roll-back, checkpoint, export on a real device; determinism; crashes of compute (V09, V11, H05, H06, H13, H21)."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest

from gpu_agent.hardware.compute import Destroyed, Failed, News
from shared.names import RegionKind
from shared.wire import gpu
from tests.adversary.rows import attack
from tests.built import built
from tests.gpu.gpu_training import DATA, committed_visit, waiting_workers, workers
from tests.gpu.gpu_world import (
    BATCH,
    MANIFEST,
    RECORD_BYTES,
    SESSION,
    Holder,
    World,
    records,
)


def test_the_same_session_gives_the_same_model_interrupted_or_not(world: World) -> None:
    world.set_up()
    addresses = [r.address for r in world.regions]
    committed_visit(world, DATA, "w1", 0)
    straight = committed_visit(world, records(64, 2), "w2", 4)
    world.set_up()
    assert [r.address for r in world.regions] != addresses  # no part of the result
    committed_visit(world, DATA, "w1", 0)
    holder = world.visit(records(64, 3))
    world.run(world.train_command(holder, "lost", 4, 4))  # cut off by a new life, then repeated as another visit
    world.resume()
    world.run(gpu.RollBack())
    again = committed_visit(world, records(64, 2), "w2", 4)
    assert again == straight


def test_roll_back_is_bit_for_bit_and_a_rejected_visit_can_be_closed(world: World) -> None:
    world.set_up()
    before = world.measure()
    place = world.region(RegionKind.MODEL)
    image = bytes(world.hbm.view(place.address, place.length))
    holder = world.visit(DATA)
    world.train(holder, steps=8)
    assert bytes(world.hbm.view(place.address, place.length)) != image
    assert world.refused(gpu.CloseVisit(visit=holder.grant.visit)) == "visit-not-settled"
    rolled = world.run(gpu.RollBack())[0]
    assert bytes(world.hbm.view(place.address, place.length)) == image
    assert (rolled.model, rolled.optimiser, rolled.step) == (before.model, before.optimiser, 0)
    assert world.refused(gpu.CloseVisit(visit=holder.grant.visit)) == "visit-not-scrubbed"
    assert world.refused(gpu.Commit(work="w1")) == "nothing-to-commit"
    world.run(gpu.Scrub(region=holder.grant.region), gpu.CloseVisit(visit=holder.grant.visit))


def test_only_a_settled_model_trains_and_only_at_its_own_step(world: World) -> None:
    world.set_up()
    holder, other = world.visit(DATA), world.visit(DATA, region=1)
    assert world.refused(world.train_command(holder, first=1)) == "wrong-step"
    assert world.refused(world.train_command(holder, steps=9)) == "too-few-records"
    short = world.train_command(holder).model_copy(update={"records": 63})
    assert world.refused(short) == "wrong-records"
    crossed = world.train_command(holder).model_copy(update={"region": other.grant.region})
    assert world.refused(crossed) == "wrong-region"
    world.train(holder)
    assert world.refused(world.train_command(other, "w2", first=3)) == "out-of-order"  # not committed yet
    world.run(gpu.Commit(work="w1"))
    assert world.train(other, "w2", first=3).state == "done"


def test_a_repeated_work_is_answered_and_never_done_twice(world: World) -> None:
    world.set_up()
    holder = world.visit(DATA)
    done = world.train(holder)
    model = world.measure().model
    again = world.run(world.train_command(holder))[0]
    assert again == done
    assert world.measure().model == model
    assert world.refused(world.train_command(holder, steps=2)) == "work-key-reused"
    assert world.run(gpu.Commit(work="w1"), gpu.Commit(work="w1"))[0].model == model


def test_losses_leave_rounded_and_never_over_too_few_records(world: World) -> None:
    world.set_up(privacy_floor=2 * BATCH, loss_decimals=2)
    state = world.train(world.visit(DATA), steps=4)
    assert state.losses == []  # a step's loss is over one batch only
    assert state.loss is not None
    assert round(state.loss, 2) == state.loss
    world.set_up(privacy_floor=1000)
    holder = world.visit(DATA)
    state = world.train(holder, steps=4)
    assert (state.losses, state.loss, state.steps_done) == ([], None, 4)


def over_and_over(world: World, dataset: bytes, count: int) -> Holder:
    """A visit of `count` places in the stream of a dataset that is smaller than that."""
    holder = world.install(count, dataset=dataset)
    holder.send((dataset * count)[: count * RECORD_BYTES])
    world.open_epoch(holder.grant.epoch)
    return holder


@pytest.mark.parametrize(("few", "told"), [(1, False), (2 * BATCH - 1, False), (2 * BATCH, True)])
def test_a_small_dataset_that_comes_several_times_is_no_more_records(world: World, few: int, told: bool) -> None:
    """Else the loss of a single record would be told, which the floor is to keep."""
    world.set_up(privacy_floor=2 * BATCH)
    dataset = DATA[: few * RECORD_BYTES]
    holder = over_and_over(world, dataset, 4 * BATCH)
    world.run(gpu.Evaluate(work="e1", region=holder.grant.region, records=4 * BATCH))
    assert (world.finish("e1").loss is not None) is told
    state = world.train(holder, steps=4)
    assert (state.state, state.losses, state.loss is not None) == ("done", [], told)


def test_nor_is_a_step_over_it(world: World) -> None:
    world.set_up(privacy_floor=BATCH)
    dataset = DATA[: (BATCH - 1) * RECORD_BYTES]
    state = world.train(over_and_over(world, dataset, 2 * BATCH), steps=2)
    assert (state.losses, state.loss) == ([], None)


@attack("H21", scoped="stopped: range checks in the GPU before a step")
def test_records_out_of_range_train_nothing(world: World) -> None:
    world.set_up()
    before = world.measure()
    bad = bytearray(DATA)
    bad[40 * RECORD_BYTES - 8 : 40 * RECORD_BYTES] = np.int64(99).tobytes()
    holder = world.visit(bytes(bad))
    state = world.train(holder)
    assert (state.state, state.code) == ("failed", "record-out-of-range")
    assert "99" not in (state.detail or "")
    assert world.measure().model == before.model
    assert world.run(gpu.RollBack())[0].model == before.model
    world.run(gpu.Scrub(region=holder.grant.region))


def test_evaluation_changes_nothing_and_the_region_can_still_train(world: World) -> None:
    world.set_up()
    before = world.measure()
    validation = records(16, 9)
    handle = world.region(RegionKind.VALIDATION).handle
    place = gpu.Upload(region=handle, offset=0, length=len(validation), records=2)
    world.run(place, bulk=[validation[:100], validation[100:]])
    world.run(gpu.Evaluate(work="e1", region=handle, records=16))
    first = world.finish("e1")
    assert (first.state, first.records, first.losses) == ("done", 16, [])
    assert first.loss is not None
    holder = world.visit(DATA)
    world.run(gpu.Evaluate(work="e2", region=holder.grant.region, records=64))
    assert world.finish("e2").state == "done"
    assert world.measure() == before
    world.train(holder, steps=8)
    world.run(gpu.Evaluate(work="e3", region=handle, records=16))
    after = world.finish("e3").loss
    assert after is not None
    assert after != first.loss
    assert world.refused(gpu.Evaluate(work="e4", region=handle, records=1000)) == "wrong-records"


def test_a_killed_compute_process_fails_the_work_and_the_gpu_lives_on(world: World) -> None:
    world.set_up()
    before = world.measure()
    holder = world.visit(records(800))
    world.run(world.train_command(holder, steps=100))
    parent = world.compute.pid
    assert parent is not None
    while (state := world.run(gpu.Poll(work="w1"))[0]).state == "running":
        for pid in workers(world):  # who waits, too: the launch may not have come to a worker yet
            with suppress(ProcessLookupError):  # one may be gone since it was listed
                os.kill(pid, signal.SIGKILL)
    assert (state.state, state.code) == ("failed", "compute-killed")
    assert world.refused(world.train_command(holder, "w2")) == "out-of-order"
    world.run(gpu.RollBack(), gpu.Scrub(region=holder.grant.region))
    assert world.measure().model == before.model
    os.kill(parent, signal.SIGKILL)  # the whole of compute
    again = world.visit(DATA)
    while world.compute.pid == parent:
        pass
    assert world.train(again, "w3").state == "done"
    assert world.compute.pid != parent


def test_roll_back_ends_a_running_training(world: World) -> None:
    world.set_up()
    before = world.measure()
    holder = world.visit(records(800))
    for pid in waiting_workers(world):
        with suppress(ProcessLookupError):  # one may be gone since it was listed
            os.kill(pid, signal.SIGSTOP)  # else it may be done before it is rolled back
    world.run(world.train_command(holder, steps=100))
    assert world.refused(world.train_command(holder, "w2")) == "work-running"
    assert world.refused(gpu.Scrub(region=holder.grant.region)) == "out-of-order"
    assert world.run(gpu.RollBack())[0].model == before.model
    assert world.run(gpu.Poll(work="w1"))[0].code == "work-interrupted"
    world.run(gpu.Scrub(region=holder.grant.region))


def test_copies_go_on_while_a_poll_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.set_up()
    holder, other = world.visit(records(800)), world.install(region=1)
    sealed = Holder.seal(other, DATA[: 32 * RECORD_BYTES])
    news, waits = world.compute.news, threading.Event()

    def told(timeout_s: float, since: int | None = None) -> list[News]:
        waits.set()
        return news(timeout_s, since)

    monkeypatch.setattr(world.compute, "news", told)
    assert world.compute.pid is not None
    # No step is made, so the poll has nothing to answer while the records come.
    os.kill(world.compute.pid, signal.SIGSTOP)
    world.run(world.train_command(holder, steps=100))
    with ThreadPoolExecutor(1) as pool:
        waits.clear()
        polled = pool.submit(lambda: world.run(gpu.Poll(work="w1", after=99, wait_ms=20_000)))
        try:
            assert waits.wait(20)
            for record in sealed:
                ack = other.copy(record)
            assert ack.published
            assert not polled.done()
        finally:
            os.kill(world.compute.pid, signal.SIGCONT)
    assert world.finish("w1").steps_done == 100


def test_a_model_is_made_from_its_seed_inside_the_gpu(world: World) -> None:
    from gpu_agent.workload.builder import build
    from gpu_agent.workload.programs import builtin

    archive, weights = build(builtin("gpt2", layers=1, heads=1, width=8, context=8, seed=3))
    assert weights is None
    models = []
    for _ in range(2):
        world.connect()
        world.run(
            gpu.InitSession(session=SESSION, manifest=MANIFEST),
            gpu.UploadProgram(length=len(archive), records=1),
            world.configure_command(),
            bulk=[archive],
        )
        world.device.spdm(b"\x10\x84\0\0")  # somebody knocks: no reason to give up waiting
        models.append(world.run(gpu.InitModel(source="seed"))[0])
        assert world.refused(gpu.InitModel(source="seed")) == "out-of-order"
    assert models[0] == models[1]
    address = next(r.address for r in world.run(gpu.Status())[0].regions if r.kind is RegionKind.MODEL)
    assert any(world.hbm.view(address, 64))


@pytest.mark.parametrize(
    ("news", "why", "code"),
    [
        ([Failed("compute-out-of-memory", "it ran out of memory")], "it ran out of memory", "model-init-failed"),
        ([Failed("compute-killed", "it was killed")], "it was killed", "compute-killed"),
        ([Destroyed()], "the compute process died", "compute-lost"),
    ],
)
def test_a_model_that_was_not_made_is_said_to_be_none(
    world: World, monkeypatch: pytest.MonkeyPatch, news: list[News], why: str, code: str
) -> None:
    archive, _ = built("gpt2", layers=1, heads=1, width=8, context=8, seed=3)
    world.connect()
    world.run(
        gpu.InitSession(session=SESSION, manifest=MANIFEST), gpu.UploadProgram(length=len(archive), records=1),
        world.configure_command(), bulk=[archive],
    )  # fmt: skip
    monkeypatch.setattr(world.compute, "start", lambda launch: None)
    monkeypatch.setattr(world.compute, "news", lambda timeout_s, since=None: news if timeout_s else [])
    answer = world.answers(gpu.InitModel(source="seed"))[-1]
    assert (answer.code, why in answer.detail) == (code, True)
