"""Tours on a real device: gradients add up over visits and lives, one step ends them, and a visit inside one is rolled back alone."""

from __future__ import annotations

from typing import Any

import cbor2
import pytest
import torch
from torch import Tensor, nn

from gpu_agent.workload.builder import build
from shared.claims.archive import open_archive
from shared.claims.privacy import Privacy
from shared.claims.receipt import DeviceStatement, TourStatement
from shared.names import RegionKind, TravelMode
from shared.wire import gpu, gpu_answers
from tests.gpu.gpu_world import SGD_OPTIONS, World, records
from tests.workload.user_models import source_of

A, B = records(64, 1), records(64, 2)


def _statement(cose: bytes) -> Any:
    return cbor2.loads(cbor2.loads(cose).value[2])


def _closed(world: World, data: bytes, work: str, first: int) -> tuple[gpu_answers.Committed, DeviceStatement]:
    holder = world.visit(data)
    assert world.train(holder, work, 4, first).state == "done"
    answers = world.run(
        gpu.Commit(work=work), gpu.Scrub(region=holder.grant.region), gpu.CloseVisit(visit=holder.grant.visit)
    )
    return answers[0], DeviceStatement.model_validate(_statement(answers[2].statement))


def _ended(world: World, work: str = "end", batches: int = 8, step: bool = True) -> gpu_answers.Committed:
    world.run(gpu.EndTour(work=work, round=1, batches=batches, step=step))
    assert world.finish(work).state == "done"
    return world.run(gpu.Commit(work=work))[0]  # type: ignore[no-any-return]  # answers are a union that tests know


def test_gradients_add_up_over_visits_and_one_step_ends_them(world: World) -> None:
    world.set_up(accumulate="tour")
    start = world.measure()
    first, said = _closed(world, A, "w1", 0)
    assert (first.model, first.step, first.batches) == (start.model, 4, 4)
    assert said.model_before == said.model_after == start.model
    assert said.accumulated is not None
    assert (said.accumulated.before, said.accumulated.after) == (start.optimiser, first.optimiser)
    second, _ = _closed(world, B, "w2", 4)
    assert (second.model, second.batches) == (start.model, 8)
    ended = _ended(world)
    assert ended.model != start.model
    assert (ended.step, ended.batches) == (8, 0)
    assert world.run(gpu.Commit(work="end"))[0] == ended, "a repeat is answered with the same statement"
    assert ended.statement is not None
    tour = TourStatement.model_validate(_statement(ended.statement))
    assert (tour.model_before, tour.model_after, tour.optimiser_before) == (start.model, ended.model, second.optimiser)
    assert (tour.batches, tour.stepped, tour.round) == (8, True, 1)


def test_a_tour_over_lives_repeats_and_roll_backs_ends_the_same(world: World) -> None:
    world.set_up(accumulate="tour")
    _closed(world, A, "w1", 0)
    _closed(world, B, "w2", 4)
    straight = _ended(world)
    world.set_up(accumulate="tour")
    after_a, _ = _closed(world, A, "w1", 0)
    rejected = world.visit(records(64, 9))
    world.train(rejected, "bad", 4, 4)
    rolled = world.run(gpu.RollBack(), gpu.Scrub(region=rejected.grant.region))[0]
    assert rolled == after_a, "what the others added stays, bit for bit"
    world.run(world.train_command(world.visit(B), "lost", 4, 4))
    world.resume()
    assert world.run(gpu.RollBack())[0] == after_a, "a new life keeps the accumulator"
    _closed(world, B, "w2", 4)
    world.run(gpu.EndTour(work="cut-off", round=1, batches=8, step=True))
    world.resume()
    world.run(gpu.RollBack())
    again = _ended(world)
    assert (again.model, again.optimiser) == (straight.model, straight.optimiser)


def test_a_dropped_tour_leaves_nothing_of_its_gradients(world: World) -> None:
    world.set_up(accumulate="tour", options=SGD_OPTIONS)
    start = world.measure()
    _closed(world, A, "w1", 0)
    dropped = _ended(world, batches=4, step=False)
    assert (dropped.model, dropped.optimiser, dropped.batches) == (start.model, start.optimiser, 0)
    place = world.region(RegionKind.OPTIMISER)
    assert not any(world.hbm.view(place.address, place.length))


def test_a_tour_ends_only_when_it_may(world: World) -> None:
    world.set_up()
    assert world.refused(gpu.EndTour(work="end", round=1, batches=1, step=True)) == "no-accumulator"
    world.set_up(accumulate="tour")
    assert world.refused(gpu.EndTour(work="end", round=1, batches=1, step=True)) == "wrong-batches"
    _closed(world, A, "w1", 0)
    holder = world.visit(B)
    assert world.refused(gpu.EndTour(work="end", round=1, batches=4, step=True)) == "visit-open"
    world.run(gpu.Scrub(region=holder.grant.region))
    assert world.refused(gpu.EndTour(work="end", round=1, batches=5, step=True)) == "wrong-batches"
    _ended(world, batches=4)


@pytest.mark.parametrize(
    "changes",
    [
        {"travel_mode": TravelMode.PAPER},
        {"privacy": Privacy(max_grad_norm=1.0, noise_multiplier=1.0, delta=1e-6)},
    ],
    ids=["paper", "private"],
)
def test_where_gradients_may_not_add_up_the_gpu_refuses_to_be_configured(world: World, changes: dict[str, Any]) -> None:
    world.connect()
    upload, bulk = world.program_command()
    world.run(gpu.InitSession(session="s_0123456789abcdef", manifest="ab" * 32), upload, bulk=bulk)
    assert world.refused(world.configure_command(accumulate="tour", **changes)) == "not-accumulable"


class _Halved(nn.Linear):
    """State that no batch changes: a constant."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * torch.tensor([0.5, 0.25, 1.0, 2.0])


@pytest.mark.parametrize("changes", [True, False])
def test_gradients_add_up_for_a_program_whose_state_no_batch_changes(world: World, changes: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)) if changes else _Halved(4, 4)
    archive, _ = build(source_of(model))
    assert open_archive(archive).manifest.state
    world.connect()
    upload = gpu.UploadProgram(length=len(archive), records=1)
    world.run(gpu.InitSession(session="s_0123456789abcdef", manifest="ab" * 32), upload, bulk=[archive])
    command = world.configure_command(accumulate="tour")
    if changes:
        assert world.refused(command) == "not-accumulable"
    else:
        assert world.run(command)[0].regions
