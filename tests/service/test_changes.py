"""Waiting for changes: woken, timed out, stopped, and a cancellation that comes together with the news is not lost."""

from __future__ import annotations

import asyncio

import pytest

from shared.service.changes import Changes, Stopping


async def test_a_change_wakes_and_its_version_is_told() -> None:
    changes = Changes()
    waiting = asyncio.create_task(changes.wait(0, 60))
    await asyncio.sleep(0)
    changes.notify()
    assert await waiting == 1
    assert await changes.wait(0, 60) == 1, "a change that already came is told at once"


async def test_without_a_change_the_time_ends_the_wait() -> None:
    assert await Changes().wait(0, 0.001) == 0


async def test_the_services_stop_ends_every_wait() -> None:
    stopping = Stopping()
    changes = Changes(stopping)
    waiting = [asyncio.create_task(changes.wait(0, 60)), asyncio.create_task(stopping.wait(60))]
    await asyncio.sleep(0)
    stopping.set()
    assert await asyncio.gather(*waiting) == [0, True]


@pytest.mark.parametrize("first", ["notify", "cancel"])
async def test_a_cancellation_that_comes_with_the_change_is_not_lost(first: str) -> None:
    """A loop around `wait` that missed its cancellation would go on for ever, and whoever awaits its end would hang."""
    changes = Changes()
    waiting = asyncio.create_task(changes.wait(0, 60))
    await asyncio.sleep(0)
    for act in (changes.notify, waiting.cancel) if first == "notify" else (waiting.cancel, changes.notify):
        act()
    with pytest.raises(asyncio.CancelledError):
        await waiting
