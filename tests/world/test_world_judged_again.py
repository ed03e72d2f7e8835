"""A visit is rejected, its holder visited no more, and then the GPU is reset: all that is repeated ends as it did, with the same model."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.visits import cycle
from orchestrator.visits.run import Run
from orchestrator.visits.training import Verdict
from shared.claims.manifest import Acceptance
from shared.claims.privacy import Privacy
from shared.claims.training import SGD, TrainingOptions
from shared.wire.gpu_answers import WorkState
from tests.world.test_world_crashes import COMMANDS, ORCH, A
from tests.world.world import NewWorld
from tests.world.world_faults import Point, Trap, crash
from tests.world.world_material import BATCH, STEPS
from tests.world.world_recorder import recording

SELDOM = {"orchestrator": {"checkpoint_interval_s": 3600.0}}
REJECTED, ROUNDS = 4, 2  # the city's second visit of two
PRIVATE = {"privacy": Privacy(max_grad_norm=1.0, noise_multiplier=4.0, delta=1e-5)}


@pytest.fixture(autouse=True)
def one_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a held-out check would that this stop's visit never passes."""
    honest = cycle.validate

    async def validate(run: Run, trained: WorkState) -> Verdict:
        found = await honest(run, trained)
        return (
            found
            if run.visit.index != REJECTED
            else Verdict(False, "the held-out loss rose", found.before, found.after)
        )

    monkeypatch.setattr(cycle, "validate", validate)


async def ended(new_world: NewWorld, name: str, *, reset: bool, **changes: Any) -> tuple[Any, Any]:
    """Model and holders; `reset`: after the visit behind the rejected one was trained on, with no checkpoint since the first visit."""
    asked = {"rounds": ROUNDS, "quorum": 2, "acceptance": Acceptance(max_update_ratio=None, quarantine_after=1),
             "training": TrainingOptions(optimizer=SGD(lr=0.05), batch_size=BATCH, seed=7)}  # fmt: skip
    with recording() as recorder:
        async with new_world(name, own_gpu=True, settings=SELDOM) as world:
            point = Point(ORCH, A, COMMANDS, "after", REJECTED + 1, command="Train")
            trap = Trap(world, point, crash(world, A), recorder) if reset else None
            session = await world.submit(**asked, **changes)
            if trap is not None:
                await trap.done()
            view = await world.completed(session)
    shown = ("holder", "records_done", "rejected", "quarantined", "privacy")
    return view["model"], [{name: holder[name] for name in shown} for holder in view["holders"]]


async def test_a_rejection_and_a_reset_leave_model_and_holders_as_they_would_be(new_world: NewWorld) -> None:
    undisturbed = await ended(new_world, "calm", reset=False)
    assert [holder["quarantined"] for holder in undisturbed[1]] == [True, False, False]
    assert await ended(new_world, "reset", reset=True) == undisturbed


async def test_no_visit_is_passed_over_for_what_was_spent_in_vain(new_world: NewWorld) -> None:
    """Where a holder's earlier visit is not repeated, every later one would be with another model, and its noise drawn a second time."""
    model, holders = await ended(new_world, "reset", reset=True, **PRIVATE)
    assert model is not None
    one = STEPS * BATCH
    assert [holder["records_done"] for holder in holders] == [one, ROUNDS * one, ROUNDS * one]
