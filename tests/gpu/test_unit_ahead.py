"""What a GPU does between two frames is begun by who answered the first, before the answer goes anywhere: the next frame waits for it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_agent.hardware.device import Device
from gpu_agent.unit import AHEAD_NICENESS, GpuUnit, _give_way
from shared.errors import BadRequest
from shared.names import ORCHESTRATOR_PORT
from tests.gpu.agent_world import opened
from tests.gpu.gpu_world import World
from tests.gpu.played_unit import PlayedDevice

PATIENCE_S = 20


class Played(PlayedDevice):
    """After a frame there is work ahead, or none, and who does it is seen."""

    def __init__(self) -> None:
        self.has_work_ahead, self.refuses = True, False
        self.looked = threading.Event()
        self.by, self.niceness = "", 0

    def commands(self, frame: bytes) -> bytes:
        if self.refuses:
            raise BadRequest("no frame")
        return frame[::-1]

    def look_ahead(self) -> None:
        self.by, self.niceness = (
            threading.current_thread().name,
            os.getpriority(os.PRIO_PROCESS, threading.get_native_id()),
        )
        self.looked.set()


@pytest.fixture
def played() -> Played:
    return Played()


@pytest.fixture
def unit(played: Played) -> Iterator[GpuUnit]:
    made = played.unit(ORCHESTRATOR_PORT)
    yield made
    made.power_off()


def test_it_is_done_though_the_answer_has_gone_nowhere(unit: GpuUnit, played: Played) -> None:
    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert unit.obey(b"frame") == b"emarf"
    assert played.looked.wait(PATIENCE_S), "nobody waits for an event loop: there is none here"
    assert played.by.startswith("gpu-ahead")
    assert played.niceness == before + AHEAD_NICENESS


async def test_a_frame_at_the_orchestrators_port_begins_it(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, world) as agent:
        device, looked = agent.world.device, threading.Event()
        monkeypatch.setattr(Device, "has_work_ahead", True)
        monkeypatch.setattr(device, "commands", bytes)
        monkeypatch.setattr(device, "look_ahead", looked.set)
        assert (await agent.bind(ORCHESTRATOR_PORT)).is_success
        answer = await agent.client.post(f"/v1/gpus/gpu-0/ports/{ORCHESTRATOR_PORT}/commands", content=b"frame")
        assert answer.content == b"frame"
        assert await asyncio.to_thread(looked.wait, PATIENCE_S)


@pytest.mark.parametrize("refused", [False, True])
def test_after_most_frames_no_thread_is_woken(unit: GpuUnit, played: Played, refused: bool) -> None:
    played.has_work_ahead, played.refuses = refused, refused
    if refused:
        with pytest.raises(BadRequest):
            unit.obey(b"frame")
    else:
        unit.obey(b"frame")
    assert not unit._ahead._threads, "the pool makes its thread for the first who asks"


async def test_a_unit_that_is_powered_off_meanwhile_answers_all_the_same(played: Played) -> None:
    made = played.unit(ORCHESTRATOR_PORT)
    await asyncio.to_thread(made.power_off)
    assert made.obey(b"frame") == b"emarf"
    assert not played.looked.is_set()


def test_who_gives_way_gives_more_than_the_agent_does() -> None:
    """Under an operator's own niceness a fixed one would be a better place in the queue, which only root may take."""
    found = list[int]()

    def nicer() -> None:
        before = os.nice(AHEAD_NICENESS + 1)
        _give_way()
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) - before)

    one = threading.Thread(target=nicer)
    one.start()
    one.join()
    assert found == [AHEAD_NICENESS]
