"""Waiting for the GPU to appear at a port: who is woken, who is answered at once, and that nobody is waited for when the service stops."""

from __future__ import annotations

import asyncio

import pytest

from gpu_agent import presence
from gpu_agent.hardware.mux import Mux
from gpu_agent.presence import MAX_OF_A_PORT, MAX_WAITING, Presence
from shared.service.changes import Stopping

NORTH, SOUTH = "holder-north", "holder-south"
LONG = 60.0


class Looks(Mux):
    """Counts how often it is looked at."""

    looks = 0

    @property
    def selected(self):  # type: ignore[no-untyped-def]  # as its base says
        self.looks += 1
        return super().selected


@pytest.fixture
def mux() -> Looks:
    return Looks(())


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_who_waits_is_woken_by_its_own_port_alone(mux: Looks) -> None:
    here, stopping = Presence(mux), Stopping()
    north, south = (asyncio.create_task(here.arrives(port, LONG, stopping)) for port in (NORTH, SOUTH))
    await turns()
    mux.bind(NORTH)
    async with asyncio.timeout(LONG):
        await north
    await asyncio.sleep(presence.LOOK_S * 5)
    assert not south.done()
    mux.bind(SOUTH)
    async with asyncio.timeout(LONG):
        await south
        assert here._looking is not None
        await here._looking
    seen = mux.looks
    await asyncio.sleep(presence.LOOK_S * 5)
    assert mux.looks == seen  # nobody waits, and nobody looks
    assert not here._waiting


async def test_whose_port_is_bound_already_does_not_wait(mux: Looks) -> None:
    mux.bind(NORTH)
    await Presence(mux).arrives(NORTH, LONG, Stopping())
    assert mux.looks == 1


async def test_once_a_switch_was_told_of_nobody_looks_in_vain(mux: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "LOOK_S", LONG)
    monkeypatch.setattr(presence, "SELDOM_S", LONG)
    here, stopping = Presence(mux), Stopping()
    waiting = asyncio.create_task(here.arrives(NORTH, LONG, stopping))
    await turns()
    here.switched()  # by whoever: it is no word that counts
    await turns()
    assert not waiting.done()
    mux.bind(NORTH)
    await turns()
    assert not waiting.done()
    here.switched()
    async with asyncio.timeout(LONG / 2):
        await waiting


async def test_who_told_once_and_never_again_is_not_relied_on(mux: Looks) -> None:
    here, stopping = Presence(mux), Stopping()
    here.switched()
    waiting = asyncio.create_task(here.arrives(NORTH, LONG, stopping))
    await turns()
    mux.bind(NORTH)
    async with asyncio.timeout(LONG / 2):
        await waiting


async def test_the_wait_ends_with_its_time_and_with_the_service(mux: Looks) -> None:
    here, stopping = Presence(mux), Stopping()
    await here.arrives(NORTH, 0.01, stopping)
    waiting = asyncio.create_task(here.arrives(NORTH, LONG, stopping))
    await turns()
    assert not waiting.done()
    stopping.set()
    async with asyncio.timeout(LONG):
        await waiting
    await here.arrives(NORTH, LONG, stopping)


async def test_a_name_is_known_as_long_as_somebody_waits_at_it(mux: Looks) -> None:
    """Anybody may ask for any: what strangers asked for once is not kept while an honest holder waits."""
    here, stopping = Presence(mux), Stopping()
    waiting = asyncio.create_task(here.arrives(NORTH, LONG, stopping))
    await turns()
    for number in range(100):
        await here.arrives(f"holder-{number}", 1e-9, stopping)
    assert (dict(here._waiting), here._all) == ({NORTH: 1}, 1)
    stopping.set()
    async with asyncio.timeout(LONG):
        await waiting
    assert (dict(here._waiting), here._all) == ({}, 0)


async def test_who_is_one_too_many_is_answered_at_once(mux: Looks) -> None:
    here, stopping = Presence(mux), Stopping()
    waiting = [asyncio.create_task(here.arrives(NORTH, LONG, stopping)) for _ in range(MAX_OF_A_PORT)]
    await turns()
    await here.arrives(NORTH, LONG, stopping)
    others = (f"holder-{number}" for number in range(MAX_WAITING - MAX_OF_A_PORT))
    waiting += [asyncio.create_task(here.arrives(port, LONG, stopping)) for port in others]
    await turns()
    await here.arrives(SOUTH, LONG, stopping)
    assert not any(task.done() for task in waiting)
    waiting[0].cancel()
    await asyncio.wait([waiting[0]])
    again = asyncio.create_task(here.arrives(SOUTH, LONG, stopping))
    await turns()
    assert not again.done()
    stopping.set()
    async with asyncio.timeout(LONG):
        await asyncio.gather(*waiting[1:], again)
