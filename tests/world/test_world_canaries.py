"""The search at a world's end: it finds a canary wherever one is put, and takes no time."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_agent.unit import GpuUnit
from shared.service.logging import get_logger
from tests.cpu_time import cpu_seconds
from tests.world.world import World
from tests.world.world_canaries import watched
from tests.world.world_material import Material
from tests.world.world_recording import Recording
from tests.world.world_wire import Call, Exchange


def on_the_wire(world: World, canary: bytes) -> None:
    world.wire.transcript.append(Exchange(Call("a", "b", "POST", "/", "", (), b"x" + canary, "http://b.test/")))


def in_an_answer(world: World, canary: bytes) -> None:
    call = Call("a", "b", "GET", "/", "", (), b"", "http://b.test/")
    world.wire.transcript.append(Exchange(call, 200, base64.b64encode(canary)))


def on_disk(world: World, canary: bytes) -> None:
    (world.folder / "orchestrator" / "core.dump").write_bytes(bytes(100) + canary[9:17])


def in_a_log(world: World, canary: bytes) -> None:
    get_logger("holder").debug("read", head=canary.hex())


def in_a_temporary_file(world: World, canary: bytes) -> None:
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(canary[3:11])


def in_gpu_memory(world: World, canary: bytes) -> None:
    assert world.unit is not None
    world.unit.device._hbm.poke(1 << 20, bytes(13) + canary[1:9])


PLACES = (on_the_wire, in_an_answer, on_disk, in_a_log, in_a_temporary_file, in_gpu_memory)


@pytest.mark.parametrize("leak", PLACES, ids=lambda leak: leak.__name__)
def test_a_canary_is_found_wherever_it_is(
    leak: Callable[[World, bytes], None], material: Material, unit: GpuUnit, tmp_path: Path
) -> None:
    with watched(tmp_path / "temporary") as traces:
        world = World(tmp_path / "world", material, unit)
        assert traces.canaries(world) == []
        leak(world, material.canaries["city"])
        found = traces.canaries(world)
    unit.device._hbm.clear_strays()
    assert found != []


def test_a_whole_session_is_searched_in_no_time(recorded: Recording, material: Material, tmp_path: Path) -> None:
    with watched(tmp_path / "temporary") as traces:
        world = World(tmp_path / "world", material)
        world.wire, world.folder = recorded.wire, recorded.folder
        found: list[bytes] = []
        assert cpu_seconds(lambda: found.extend(traces.canaries(world)), 0.5) < 0.5
        assert found == []
