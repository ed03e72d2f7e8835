"""The agent's disk is full when the GPU is emptied: it is empty, though its boot counter does not tell, and no session is lost."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from structlog.testing import CapturingLogger

from gpu_agent.boot_counter import BootCounter
from gpu_agent.hardware import commands_transfer
from orchestrator.gpu_session import checkpoints, ending
from orchestrator.runner import patience, session_runner
from tests.world.test_world_crashes import COMMANDS, ORCH, A
from tests.world.test_world_damaged_checkpoints import ALWAYS, changed, sealed, sealed_files
from tests.world.test_world_early_stop import asked, losses, models
from tests.world.world import PATIENCE_S, NewWorld
from tests.world.world_faults import Moment, Point, Trap, crash
from tests.world.world_material import Material
from tests.world.world_recorder import recording
from tests.world.world_recording import Recording
from tests.world.world_tasks import Patience


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[int]]:
    """Have the agent's disk take no boot counter the n-th time from now; answers the numbers that it was to keep since."""
    keep, asked_for, refused = BootCounter._keep, list[int](), set[int]()

    def _keep(self: BootCounter, value: int) -> None:
        asked_for.append(value)
        if len(asked_for) in refused:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        keep(self, value)

    def armed(times: int) -> list[int]:
        asked_for.clear()
        refused.add(times)
        return asked_for

    monkeypatch.setattr(BootCounter, "_keep", _keep)
    monkeypatch.setattr(patience, "PATIENCE_S", (0.05,))
    return armed


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> CapturingLogger:
    """What the orchestrator's runner and the end of a session on its GPU log."""
    log = CapturingLogger()
    for module in (session_runner, ending):
        monkeypatch.setattr(module, "_log", log)
    return log


async def _said_something(log: CapturingLogger) -> None:
    patience = Patience(PATIENCE_S)
    while not log.calls:
        assert not patience.over, "nothing was logged"
        await asyncio.sleep(0.01)


def _lines(log: CapturingLogger) -> list[tuple[str, Any]]:
    return [(call.method_name, call.args[0]) for call in log.calls]


UNCOUNTED = ("warning", "the GPU is empty, but could not count it")


async def test_a_damaged_checkpoint_is_passed_over_though_the_end_was_not_counted(
    new_world: NewWorld, recorded: Recording, full: Callable[[int], list[int]]
) -> None:
    async with new_world(own_gpu=True, settings=ALWAYS) as world:
        session = await sealed(world)
        changed(sealed_files(world, session)[-1])
        asked_for = full(3)  # the agent's start, the first life, its end
        await world["agent"].start()
        view = await world.completed(session)
    assert view["model"]["digest"] == recorded.view["model"]["digest"]
    assert asked_for[2] == asked_for[3], "that end was counted by nobody; the next life's wipe was"


@pytest.mark.parametrize("moment", [None, pytest.param("before", marks=pytest.mark.slow), "after"])
async def test_half_a_checkpoint_is_emptied_out_though_the_end_was_not_counted(
    moment: Moment | None, new_world: NewWorld, material: Material, monkeypatch: pytest.MonkeyPatch, full: Callable[[int], list[int]]
) -> None:  # fmt: skip
    """`moment`: the orchestrator dies just before or after it asked for that; the GPU is another's than the journal says by then."""
    monkeypatch.setattr(commands_transfer, "CHUNK", 4096)  # as if the model were larger than one part
    monkeypatch.setattr(checkpoints, "BATCH_BYTES", 4096)
    asked_for = list[int]()
    async with new_world() as world:

        def then(act: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
            async def filled() -> None:
                asked_for.extend(full(1))
                await act()

            return filled

        with recording() as recorder:
            half = Point(ORCH, A, COMMANDS, "after", command="Restore")
            traps = [Trap(world, half, then(crash(world, ORCH)), recorder)]
            if moment is not None:
                emptied = Point(ORCH, A, COMMANDS, moment, command="EndSession")
                traps.append(Trap(world, emptied, crash(world, ORCH), recorder))
            session = await world.submit(**asked(material))
            for trap in traps:
                await trap.done()
        view = await world.completed(session)
        facts = [event.data.get("fact") async for event in world.owner.events(session)]
        seen, left = await losses(world, session), await models(world, session)
    assert facts.count("unplaced") == 1
    assert view["model"]["digest"] == left[seen.index(min(seen))]


async def test_a_finished_session_is_not_called_failed(
    new_world: NewWorld, full: Callable[[int], list[int]], told: CapturingLogger
) -> None:
    async with new_world(own_gpu=True) as world:
        asked_for = full(2)  # its first life, its end
        session = await world.submit(rounds=1)
        await world.completed(session)
        await _said_something(told)
    assert len(asked_for) == 2
    assert _lines(told) == [UNCOUNTED]


async def test_a_finished_session_whose_end_nobody_answers_is_not_called_failed(
    new_world: NewWorld, told: CapturingLogger
) -> None:
    async with new_world(own_gpu=True) as world:
        with recording() as recorder:
            trap = Trap(world, Point(ORCH, A, COMMANDS, "before", command="EndSession"), world["agent"].kill, recorder)
            session = await world.submit(rounds=1)
            await trap.done()
        await world.completed(session)
        await _said_something(told)
    assert _lines(told) == [("warning", "an ended session's GPU may not be wiped")]
