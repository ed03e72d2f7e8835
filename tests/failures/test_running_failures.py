"""Things that break while a session runs: it says what it waits for, leaves nothing half-done, and goes on to the same end."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest
from sqlalchemy import Connection

from orchestrator import files
from shared.errors import InvalidManifest, Unavailable
from shared.service.app import service_state
from tests.world.world import World
from tests.world.world_service import Service


def says(word: str) -> Any:
    """Whether a session's page names `word` among what it waits for."""
    return lambda view: any(word in entry for entry in view["waiting_for"])


class _FullDisk:
    """Rides in every transaction of a service and ends it as a full volume does."""

    def __init__(self) -> None:
        self.full = True

    def write(self, _connection: Connection) -> None:
        if self.full:
            raise Unavailable("no space left for SQLite file state.db", code="disk-full", remedy="Free space.")

    def settle(self, *, committed: bool) -> None:
        """Nothing rides along."""


def fill(service: Service) -> _FullDisk:
    disk = _FullDisk()
    assert service.app is not None
    store = service_state(service.app).store
    assert store is not None
    store.add_rider(disk)
    return disk


async def _same_end(world: World, session: str, recorded: Any) -> None:
    done = await world.completed(session)
    assert done["model"]["digest"] == recorded.view["model"]["digest"]


async def test_the_orchestrators_database_is_full_for_a_while(new_world: Any, recorded: Any) -> None:
    async with new_world() as world:
        session = await world.submit()
        await world.until(session, lambda view: view["visits_closed"] >= 1)
        disk = fill(world["orchestrator"])
        view = await world.until(session, says("disk-full"))
        assert view["phase"] == "RUNNING"
        disk.full = False
        await _same_end(world, session, recorded)


async def test_no_room_for_files(new_world: Any, recorded: Any, monkeypatch: Any) -> None:
    """Checkpoint, secrets and model cannot be written; then they can."""
    async with new_world() as world:
        session = await world.submit()
        await world.until(session, lambda view: view["visits_closed"] >= 1)

        def full(_descriptor: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(files.os, "fsync", full)
        view = await world.until(session, says("disk-full"))
        assert any("cannot be written" in entry for entry in view["waiting_for"])
        assert not list((world.folder / "orchestrator").rglob("*.partial")), "nothing half-written stays"
        monkeypatch.undo()
        await _same_end(world, session, recorded)


async def test_a_holders_data_change_under_way_and_come_back(new_world: Any, recorded: Any) -> None:
    async with new_world() as world:
        data = world.folder / "holder-city" / "ehr.npz"
        content = data.read_bytes()
        session = await world.submit()
        await world.until(session, lambda view: view["visits_closed"] >= 1)
        data.write_bytes(content[: len(content) // 2])
        reasons: list[str] = []
        for _ in range(200):
            # Others' visits may be planned behind city's, and are dropped with it.
            reasons = [visit["reason"] for visit in await world.visits(session) if visit["holder"] == "city"]
            if any(reasons):
                break
            await asyncio.sleep(0.1)
        assert any("city refused: data-" in reason for reason in reasons if reason), reasons
        assert not [reason for reason in reasons if reason and "ehr" in reason], "its operator's log says which file"
        assert (await world.owner.session(session))["phase"] == "RUNNING"
        data.write_bytes(content)
        await _same_end(world, session, recorded)


async def test_gpu_without_room_for_the_session(new_world: Any) -> None:
    async with new_world(own_gpu=True, settings={"agent": {"backing_bytes": 1 << 20}}) as world:
        manifest = world.material.manifest(buffer_bytes=64 << 20)
        await world.enrol()
        with pytest.raises(InvalidManifest) as refused:
            await world.owner.submit(manifest)
        assert refused.value.code == "gpu-out-of-memory"
        assert f"dataset {64 << 20}" in refused.value.detail
        assert await world.owner.items("sessions") == []
        small = (await world.owner.submit(world.material.manifest(name="fits", rounds=1)))["id"]
        assert (await world.completed(small))["phase"] == "COMPLETED"


async def test_lease_ends_while_a_holder_is_silent(new_world: Any) -> None:
    async with new_world() as world:
        await world.enrol()
        silenced, waits = asyncio.Event(), []  # type: tuple[asyncio.Event, list[Any]]

        async def hook(call: Any, deliver: Any) -> Any:
            if call.link == ("holder-city", "agent") and not silenced.is_set():
                silenced.set()
                waits.extend((await world.owner.items("sessions", phase="RUNNING"))[:1])
                shown = await world.owner.session(waits[0]["id"])
                waits.append(shown["waiting_for"])
                await asyncio.sleep(30)
            return await deliver(call)

        world.wire.hooks.append(hook)
        session = (await world.owner.submit(world.material.manifest(lease_s=1, rounds=1)))["id"]
        await world.completed(session)
        outcomes = [(v["holder"], v["outcome"], v["reason"]) for v in await world.visits(session)]
        assert ("city", "recalled", "the lease expired") in outcomes
        assert ("city", "closed", None) in outcomes
        assert waits[1] == ["city (records)"]
