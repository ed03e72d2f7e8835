"""The GPU's compute processes are killed, as the kernel does for want of memory: the same model, nobody blamed, and not for ever."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_agent.compute.process import ComputeProcess
from orchestrator.gpu_session.life import CommandRefused
from orchestrator.runner.patience import MAX_CONFLICTS, Patience
from orchestrator.visits.training import WorkFailed
from shared.errors import Conflict, GputError, Unavailable
from shared.wire.gpu_answers import COMPUTE_OUTAGES
from tests.world.world import NewWorld, World
from tests.world.world_deaths import Deaths, Victim
from tests.world.world_recording import Recording


async def _undisturbed(world: World, session: str, recorded: Recording) -> list[dict[str, Any]]:
    """The model is the undisturbed session's, each visit took effect once, and nothing is held against anybody; all attempts."""
    view = await world.completed(session)
    assert view["model"]["digest"] == recorded.view["model"]["digest"]
    assert not any(holder["quarantined"] or holder["rejected"] for holder in view["holders"])
    visits = await world.visits(session)
    assert [v["index"] for v in visits if v["outcome"] == "closed"] == [v["index"] for v in recorded.visits]
    assert {v["outcome"] for v in visits} <= {"closed", "recalled"}
    return visits


@pytest.mark.parametrize(
    ("victim", "kind"),
    [
        ("worker", "train"),
        ("parent", "train"),
        ("worker", "evaluate"),
        pytest.param("parent", "evaluate", marks=pytest.mark.slow),
    ],
)
async def test_a_visit_whose_work_was_killed_is_repeated(
    victim: Victim, kind: str, new_world: NewWorld, recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_world() as world:
        deaths = Deaths(monkeypatch, victim, kind, 3)
        visits = await _undisturbed(world, await world.submit(), recorded)
    assert deaths.failed == 1
    code = "compute-killed" if victim == "worker" else "compute-lost"
    cut = [visit for visit in visits if (visit["reason"] or "").startswith(code)]
    assert len(cut) == 1
    assert [v["outcome"] for v in visits if v["index"] == cut[0]["index"]] == ["recalled", "closed"]


async def test_killed_before_the_first_visit(
    new_world: NewWorld, recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the initial model's held-out loss is found: another life begins anew."""
    async with new_world() as world:
        deaths = Deaths(monkeypatch, "worker", "evaluate", 1)
        await _undisturbed(world, await world.submit(), recorded)
    assert deaths.failed == 1


async def test_a_command_that_met_no_compute_process_is_no_failure_of_the_session(
    new_world: NewWorld, recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies between two messages to it: the command is refused, and another life repeats the visit."""
    start, lost = ComputeProcess.start, list[str]()

    def started(compute: ComputeProcess, launch: Any) -> None:
        if launch.kind == "train" and launch.first_step and not lost:
            lost.append(launch.kind)
            raise Unavailable("the compute process is gone", code="compute-lost")
        start(compute, launch)

    monkeypatch.setattr(ComputeProcess, "start", started)
    async with new_world() as world:
        await _undisturbed(world, await world.submit(), recorded)
    assert lost


async def test_a_work_that_is_always_killed_ends_the_session(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may kill its own process; and who can kill one must not choose whose visit is left out, quorum or not."""
    async with new_world() as world:
        deaths = Deaths(monkeypatch, "worker", "train", 2, times=10**6)
        session = await world.submit(quorum=1)
        view = await world.finish(session)
        visits = await world.visits(session)
    assert (view["phase"], view["failure"]["code"]) == ("FAILED", "work-lost")
    assert deaths.failed == 3, "visit_attempts"
    assert [v["outcome"] for v in visits if v["index"] == 2][:2] == ["recalled", "recalled"]
    assert not any(holder["quarantined"] or holder["rejected"] for holder in view["holders"])


@pytest.mark.parametrize("code", sorted(COMPUTE_OUTAGES))
def test_another_life_may_do_better_where_compute_died_but_not_for_ever(code: str) -> None:
    errors: list[GputError] = [CommandRefused("gone", code=code), WorkFailed("gone", code=code), Conflict("busy")]
    for error in errors:
        patience = Patience()
        tries = [patience.left(error, 0) is not None for _ in range(MAX_CONFLICTS + 1)]
        assert tries == [True] * MAX_CONFLICTS + [False]
        assert patience.left(Unavailable("away", code=code), 0) is not None
    assert Patience().left(CommandRefused("another reason", code="gpu-out-of-memory"), 0) is None
