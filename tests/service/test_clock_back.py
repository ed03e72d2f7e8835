"""A service's clock that is put ahead and back: what was received before counts no more, and what was not is heard again soon."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import httpx2
import pytest

from shared.errors import NotAuthenticated
from shared.service.forgotten import MOST_RUNS, NEAR_S, Forgotten
from shared.service.replay import NOBODY, PURGE_EVERY_S, WINDOW_S, ReplayWindow
from shared.service.signatures import SignedAuth
from shared.service.store import Store
from shared.service.tables import METADATA, REPLAY_NONCES
from tests.adversary.rows import attack
from tests.service.service_world import BASE_URL, OWNER, FakeClock, MakeWorld, World
from tests.service.test_signed_requests import code_of

HOUR_S, YEAR_S = 3600.0, 365 * 86_400.0
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


FEW = 16


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.service.forgotten.MOST_RUNS", FEW)


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


@pytest.mark.parametrize(("ahead", "requests"), [(600.0, 1), (YEAR_S, 10)])
async def test_a_clock_that_was_ahead_keeps_nobody_out_of_the_time_between(
    window: Window, ahead: float, requests: int
) -> None:
    """Local time taken for UTC at a machine's start, or a year too late: what was received then is not kept until that time comes."""
    right = window.clock.now
    assert await window.says() == "accepted"
    window.clock.now += ahead
    captured = window.clock.now
    assert await window.says(CAPTURED) == "accepted"
    for _ in range(requests - 1):
        window.clock.now += 60
        assert await window.says() == "accepted"
    for second in range(4, int(2 * WINDOW_S) + 40, 8):
        window.clock.now = right + second
        assert await window.says() == "accepted"
    within = 2 * WINDOW_S / 8
    assert len(window.now._seen) <= within
    assert window.now._per_key["a" * 64] <= within
    assert await window.rows() <= within + 2 + PURGE_EVERY_S / 8
    await window.restart()
    assert await window.says() == "accepted"
    window.clock.now = captured
    assert await window.says(CAPTURED) == "signature-stale"
    await window.restart()
    assert await window.says(CAPTURED, captured) == "signature-stale"


@pytest.mark.usefixtures("few")
async def test_weeks_at_a_wrong_time_keep_nobody_out(window: Window) -> None:
    """Before them, and in the time between, nothing was heard."""
    right = window.clock.now
    window.clock.now += YEAR_S
    first = window.clock.now
    for _ in range(FEW + 4):
        assert await window.says() == "accepted"
        window.clock.now += HOUR_S
    last = window.clock.now - HOUR_S
    for hour in range(1, FEW + 4):
        window.now._forgotten.note(right - hour * HOUR_S)
    window.clock.now = right + 2 * HOUR_S
    assert await window.says() == "accepted"
    for time in (first, last, right - 5 * HOUR_S):
        window.clock.now = time
        assert await window.says() == "signature-stale"


@pytest.mark.usefixtures("few")
async def test_marks_are_few(window: Window) -> None:
    for _ in range(FEW + 4):
        assert await window.says() == "accepted"
        window.clock.now += HOUR_S
    assert FEW <= await window.rows() <= FEW + 1


async def test_a_steady_service_has_one_mark(window: Window) -> None:
    for _ in range(20):
        assert await window.says() == "accepted"
        window.clock.now += 61
    await window.says()
    rows = await window.store.read(lambda c: c.execute(REPLAY_NONCES.select()).all())
    assert sum(row.fingerprint == NOBODY for row in rows) == 1


async def test_marks_of_an_older_release_are_heard(window: Window) -> None:
    """Theirs stand for an hour each: its number, and until when."""
    hour = int(window.clock.now // HOUR_S)
    row = {"fingerprint": NOBODY, "nonce": hour.to_bytes(8, "big"), "expires": (hour + 1) * HOUR_S - 1}
    await window.store.write(lambda c: c.execute(REPLAY_NONCES.insert().values(**row)))
    await window.restart()
    for later in (5, 205):
        assert await window.says(created=hour * HOUR_S + 5) == "signature-stale"
        window.clock.now = (hour + 1) * HOUR_S + later
        assert await window.says() == "accepted"  # and now the mark is in today's form
        await window.restart()
        window.clock.now = hour * HOUR_S + 60


def test_runs_join_where_they_are_near_and_nearest_first_where_they_are_many() -> None:
    forgotten = Forgotten()
    forgotten.note(1_000.0)
    forgotten.note(1_000.0 + NEAR_S)
    forgotten.note(1_000.0 + 3 * NEAR_S)
    assert forgotten.runs == ((1_000.0, 1_000.0 + NEAR_S), (1_000.0 + 3 * NEAR_S,) * 2)
    assert not forgotten.may_hold(999.0)
    assert forgotten.may_hold(1_001.0)
    assert not forgotten.may_hold(1_001.0 + NEAR_S)
    forgotten.note(500.0, 5_000.0)
    assert forgotten.runs == ((500.0, 5_000.0),)
    noted = [YEAR_S + number * HOUR_S * (1 + number % 2) for number in range(3 * MOST_RUNS)]
    for time in noted:
        forgotten.note(time)
    assert len(forgotten.runs) == MOST_RUNS
    assert all(forgotten.may_hold(time) for time in noted)
    assert not forgotten.may_hold(YEAR_S / 2)
