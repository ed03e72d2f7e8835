"""Who opens a copy record that came over HTTP: the event loop, where it need not wait, and else a thread of the GPU's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from gpu_agent.hardware.device_hbm import DeviceHBM
from gpu_agent.hardware.hbm import HBM
from gpu_agent.unit import SHORT_BYTES, GpuUnit
from shared.errors import Conflict
from shared.wire.copy import DATA, TAG_BYTES, Copied, CopyHeader, pack_header
from tests.gpu.agent_world import opened
from tests.gpu.gpu_world import World, records
from tests.gpu.played_unit import PlayedDevice

PORT = "holder-north"
LONG = bytes(SHORT_BYTES + 1)


class Played(PlayedDevice):
    """Says on which thread a record was opened."""

    def __init__(self) -> None:
        self.busy, self.by = False, list[str]()

    def copy_at_once(self, port: str, record: bytes) -> Copied | None:
        return None if self.busy else self.copy(port, record)

    def copy(self, port: str, record: bytes) -> Copied:
        self.by.append(threading.current_thread().name)
        return Copied(0, len(record), False)


@pytest.fixture
def played() -> Played:
    return Played()


@pytest.fixture
def cores() -> int:
    """Of the machine."""
    return 2


@pytest.fixture
def unit(played: Played, cores: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuUnit]:
    monkeypatch.setattr("gpu_agent.unit.usable_cores", lambda: cores)
    made = played.unit(PORT)
    made.mux.bind(PORT)
    yield made
    made.power_off()


async def test_a_long_record_is_opened_by_the_loop_itself(unit: GpuUnit, played: Played) -> None:
    assert (await unit.copied(PORT, LONG)).received == len(LONG)
    assert played.by == [threading.current_thread().name]


@pytest.mark.parametrize(("record", "busy"), [(LONG, True), (LONG[1:], False), (b"", True)])
async def test_what_may_take_long_is_a_threads(unit: GpuUnit, played: Played, record: bytes, busy: bool) -> None:
    """Of the length of a closing record, over which the GPU hashes all that came before; or the device has something else to do."""
    played.busy = busy
    assert (await unit.copied(PORT, record)).received == len(record)
    [by] = played.by
    assert by.startswith("gpu-copy")


@pytest.mark.parametrize("cores", [3, 16])
async def test_with_more_cores_a_thread_finds_one(unit: GpuUnit, played: Played) -> None:
    await unit.copied(PORT, LONG)
    assert played.by[0].startswith("gpu-copy")


async def test_a_holders_port_brings_its_records_there(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought = []

    async def copied(_: GpuUnit, port: str, record: memoryview) -> Copied:
        brought.append((port, len(record)))
        return Copied(0, 1, False)

    monkeypatch.setattr(GpuUnit, "copied", copied)
    async with opened(tmp_path, world) as agent:
        assert (await agent.bind(PORT)).is_success
        body = pack_header(CopyHeader(DATA, 1, 1, 0, 1, 1)) + bytes(1 + TAG_BYTES)
        answer = await agent.client.post(f"/v1/gpus/gpu-0/ports/{PORT}/copy", content=body)
        assert answer.is_success
    assert brought == [(PORT, len(body))]


@pytest.mark.parametrize("record", [LONG, b""])
async def test_nothing_is_opened_for_a_port_that_is_not_bound(unit: GpuUnit, played: Played, record: bytes) -> None:
    unit.mux.bind(None)
    with pytest.raises(Conflict, match="not bound"):
        await unit.copied(PORT, record)
    assert played.by == []


def test_a_device_that_is_busy_takes_nothing_at_once_and_loses_nothing(world: World) -> None:
    world.set_up()
    data = records(32)
    holder = world.install()
    first, *rest = holder.seal(data)
    with world.device._lock:
        assert world.device.copy_at_once(holder.grant.port, first) is None
    found = world.device.copy_at_once(holder.grant.port, first)
    assert found is not None
    assert (found.index, found.published) == (0, False)
    for record in rest:
        found = world.device.copy_at_once(holder.grant.port, record)
    assert found is not None
    assert found.published
    assert world.phase(holder.grant.region) == "PUBLISHED"


def test_what_may_take_longer_than_a_records_cipher_is_not_taken_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several chains' threads; and what a record that ends the grant would have to erase."""
    world.set_up()
    holder = world.install()
    sealed, engine = holder.seal(records(32)), world.device._state.copies
    assert world.device.copy_at_once(holder.grant.port, sealed[0]) is not None
    monkeypatch.setattr("gpu_agent.hardware.copy_engine.LITTLE_BYTES", 0)
    assert world.device.copy_at_once(holder.grant.port, sealed[1]) is None
    monkeypatch.undo()
    live = engine.grants.of_epoch(holder.grant.epoch)
    assert live is not None
    live.grant = live.grant.model_copy(update={"more_chains": 3})
    assert not engine.soon(sealed[1])
    assert not engine.soon(sealed[1][:12] + bytes([99]) + sealed[1][13:]), "of no epoch that lives"


def test_memory_of_another_process_may_make_one_wait(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.hbm.at_once
    assert not DeviceHBM.at_once.fget(cast(DeviceHBM, None))  # type: ignore[attr-defined]  # a property's own function
    monkeypatch.setattr(HBM, "at_once", False)
    world.set_up()
    holder = world.install()
    assert world.device.copy_at_once(holder.grant.port, holder.seal(records(32))[0]) is None
