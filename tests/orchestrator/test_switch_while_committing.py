"""The MUX switches while an offer is committed; where that fails nothing is left under way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestrator.visits.granting import _committed_while_switching
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
        await asyncio.sleep(0)  # the switch has begun by then
        if self.failure is not None:
            raise self.failure
        self.heard.append("committed")


def run(life: Life) -> Any:
    return life


async def test_the_commit_does_not_wait_for_the_switch() -> None:
    life = Life()
    switching = await _committed_while_switching(run(life), "north")
    assert life.heard == ["switch to north", "committed"]
    assert not switching.done()
    life.bound.set()
    await switching
    assert life.heard[-1] == "switched"


async def test_a_commit_that_fails_leaves_no_switch_behind() -> None:
    life = Life(Unavailable("no space left", code="disk-full"))
    with pytest.raises(Unavailable, match="no space left"):
        await _committed_while_switching(run(life), "north")
    assert life.heard == ["switch to north", "switch given up"]
    assert len(asyncio.all_tasks()) == 1


async def test_who_is_cancelled_meanwhile_takes_the_switch_along() -> None:
    life = Life()
    committing = asyncio.ensure_future(_cut_off(life))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing
    assert life.heard == ["switch to north", "switch given up"]


async def _cut_off(life: Life) -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    life.commit = lambda: never  # type: ignore[assignment,method-assign,return-value]  # a commit that does not end
    await _committed_while_switching(run(life), "north")
