"""The MUX switches while an offer is sealed and committed; where that fails nothing is left under way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestrator.visits.granting import _switching
from shared.errors import Unavailable


class Life:
    """As much of a run as the switch needs. `heard`: what happened, in order."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure, self.bound = failure, asyncio.Event()
        self.heard: list[str] = []

    async def send_away(self, holder: str) -> None:
        self.heard.append(f"switch to {holder}")
        try:
            await self.bound.wait()
        except asyncio.CancelledError:
            self.heard.append("switch given up")
            raise
        self.heard.append("switched")

    async def commit(self) -> None:
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        self.heard.append("committed")


async def offered(life: Any) -> None:
    async with _switching(life, "north"):
        life.heard.append("sealed")
        await life.commit()
        life.heard.append("posted")


async def test_the_switch_is_asked_for_first_and_waited_for_last() -> None:
    life = Life()
    offering = asyncio.ensure_future(offered(life))
    for _ in range(4):
        await asyncio.sleep(0)
    assert life.heard == ["switch to north", "sealed", "committed", "posted"]
    assert not offering.done()
    life.bound.set()
    await offering
    assert life.heard[-1] == "switched"


async def test_a_commit_that_fails_leaves_no_switch_behind() -> None:
    life = Life(Unavailable("no space left", code="disk-full"))
    with pytest.raises(Unavailable, match="no space left"):
        await offered(life)
    assert life.heard == ["switch to north", "sealed", "switch given up"]
    assert len(asyncio.all_tasks()) == 1


async def test_a_switch_that_fails_is_heard_of_once_the_offer_is_out() -> None:
    life = Life()

    async def refused(holder: str) -> None:
        raise Unavailable("the platform is gone")

    life.send_away = refused  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="the platform is gone"):
        await offered(life)
    assert life.heard == ["sealed", "committed", "posted"]


async def test_who_is_cancelled_meanwhile_takes_the_switch_along() -> None:
    life = Life()
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    life.commit = lambda: never  # type: ignore[assignment,method-assign,return-value]  # a commit that does not end
    offering = asyncio.ensure_future(offered(life))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    offering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await offering
    assert life.heard == ["switch to north", "sealed", "switch given up"]
