"""A service's clock that is put ahead and back: what was received before counts no more, and what was not is heard again soon."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import httpx2
import pytest

from shared.errors import NotAuthenticated
from shared.service.forgotten import HOUR_S, MOST_HOURS, Forgotten
from shared.service.replay import PURGE_EVERY_S, ReplayWindow
from shared.service.signatures import SignedAuth
from shared.service.store import Store
from shared.service.tables import METADATA, REPLAY_NONCES
from tests.adversary.rows import attack
from tests.service.service_world import BASE_URL, OWNER, FakeClock, MakeWorld, World
from tests.service.test_signed_requests import code_of

YEAR_S = 365 * 86_400.0
CAPTURED = b"c" * 16


def get(world: World) -> httpx2.Request:
    request = httpx2.Request("GET", f"{BASE_URL}/v1/whoami")
    SignedAuth(OWNER, world.clock, os.urandom).sign(request)
    return request


@attack("V26", any="stopped: a window that knows of which times it has forgotten what it saw")
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_captured_request_does_not_count_again(make_world: MakeWorld, restarted: bool) -> None:
    async with make_world() as world:
        captured = get(world)
        assert await code_of(world, captured) == "accepted"
        assert await code_of(world, captured) == "signature-replayed"
        world.clock.now += 62
        assert await code_of(world, get(world)) == "accepted"
        await world.store.write(lambda connection: None)
        world.clock.now -= 40
        if not restarted:
            assert await code_of(world, captured) == "signature-stale"
            assert await code_of(world, get(world)) == "accepted"
            return
    async with make_world() as again:
        assert await code_of(again, captured) == "signature-stale"


class Window:
    """Windows one after another over one table."""

    def __init__(self, store: Store) -> None:
        self.store, self.clock = store, FakeClock()
        self.nonces = iter(number.to_bytes(16, "big") for number in range(10_000))
        self.now = ReplayWindow(store, self.clock)

    async def restart(self) -> None:
        self.store._riders.clear()
        self.now = ReplayWindow(self.store, self.clock)
        await self.now.open()

    async def says(self, nonce: bytes | None = None, created: float | None = None) -> str:
        """What becomes of a request of now, or of that time."""
        try:
            await self.now.remember("a" * 64, nonce or next(self.nonces), int(created or self.clock.now))
        except NotAuthenticated as error:
            return error.code
        await self.now.settled()
        return "accepted"

    async def rows(self) -> int:
        return len(await self.store.read(lambda c: c.execute(REPLAY_NONCES.select()).all()))


@pytest.fixture
async def window(database_url: str) -> AsyncIterator[Window]:
    store = Store(database_url)
    await store.open()
    await store.write(METADATA.create_all)
    yield Window(store)
    await store.close()


@pytest.mark.parametrize("ahead", [PURGE_EVERY_S * 3, HOUR_S * 5, YEAR_S])
async def test_what_a_purge_took_away_is_known_of_after_a_restart(window: Window, ahead: float) -> None:
    """Started anew while the clock is ahead, and again when it is back: memory has seen nothing of it, the table has forgotten it."""
    captured = window.clock.now
    assert await window.says(CAPTURED) == "accepted"
    window.clock.now += ahead
    await window.restart()
    await window.says()
    window.clock.now = captured + 20
    for _ in range(2):
        assert await window.says(CAPTURED, captured) == "signature-stale"
        await window.restart()


@pytest.mark.parametrize("back", [1.0, 30.0, 59.0])
async def test_a_clock_that_is_set_right_by_seconds_costs_nobody_a_request(window: Window, back: float) -> None:
    for _ in range(300):
        assert await window.says() == "accepted"
        window.clock.now += 1
    window.clock.now -= back
    assert await window.says() == "accepted"


async def test_a_clock_that_was_far_ahead_keeps_nobody_out_of_the_time_between(window: Window) -> None:
    """Local time taken for UTC at a machine's start, or a year too late: until then nobody was heard."""
    right = window.clock.now
    window.clock.now += YEAR_S
    for _ in range(10):
        assert await window.says() == "accepted"
        window.clock.now += 60
    window.clock.now = right + 600
    assert await window.says() == "accepted"
    await window.restart()
    assert await window.says() == "accepted"


async def test_marks_are_few(window: Window) -> None:
    for _ in range(48):
        assert await window.says() == "accepted"
        window.clock.now += HOUR_S
    assert await window.rows() <= 48 + 1


def test_of_before_the_first_of_many_hours_everything_counts_as_forgotten() -> None:
    forgotten = Forgotten()
    for hour in range(MOST_HOURS):
        assert forgotten.kept_from == 0.0
        forgotten.note((10 + hour) * HOUR_S + 5)
    assert not forgotten.may_hold((10 + MOST_HOURS) * HOUR_S)
    forgotten.note((10 + MOST_HOURS) * HOUR_S)
    assert forgotten.kept_from == 11 * HOUR_S
    assert forgotten.may_hold(9 * HOUR_S)
    assert forgotten.may_hold(10 * HOUR_S + 6)
    assert not forgotten.may_hold(11 * HOUR_S + 6)
    forgotten.note(3 * HOUR_S)  # of an hour that is kept no more
    assert forgotten.kept_from == 11 * HOUR_S
