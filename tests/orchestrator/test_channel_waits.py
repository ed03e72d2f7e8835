"""Whom a session's page names while it waits for a holder's channel, and that it names nobody once it does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.runner.rounds import Rounds
from orchestrator.runner.wishes import Wishes
from shared.service.changes import Changes

LEASE_S = 8.0


class Stage:
    """A session at a stop whose holder opens no channel; its clock makes a step with each look."""

    def __init__(self, *, may_skip: bool) -> None:
        self.changes, self.at, self.named, self.skipped = Changes(), 0.0, list[str](), list[str]()
        self.wishes = Wishes(self.changes)
        self.state = SimpleNamespace(
            id="s_1", blamed=0, attempts=0, setback="", active=("north", "south"), manifest=SimpleNamespace(lease_s=LEASE_S),
            may_skip=lambda holder: may_skip,
        )  # fmt: skip
        run = SimpleNamespace(
            state=self.state, timer=self.timer, life=SimpleNamespace(require_whole=lambda: None),
            channels=SimpleNamespace(ready=lambda holder: None, ask=lambda holder, again_s: False),
            book=SimpleNamespace(changes=self.changes, require_open=self.look),
        )  # fmt: skip
        self.rounds = cast(Any, object.__new__(Rounds))
        self.rounds._run, self.rounds._wishes, self.rounds._skip = run, self.wishes, self.skip
        self.rounds._heads = SimpleNamespace(check=self.nothing)

    def timer(self) -> float:
        self.at += LEASE_S / 2
        return self.at

    async def nothing(self, *_: Any) -> None:
        self.named += self.wishes.waiting_for

    def look(self) -> None:
        self.changes.notify()  # nobody waits for real time here

    async def skip(self, stop: Any, reason: str, *, blame: bool) -> None:
        self.skipped.append(stop.holder)


@pytest.mark.parametrize("may_skip", [True, False])
async def test_nobody_is_waited_for_once_the_stop_is_left(may_skip: bool) -> None:
    stage = Stage(may_skip=may_skip)
    if not may_skip:
        stage.wishes.pause = False
        original = stage.nothing

        async def leaves(*args: Any) -> None:
            await original(*args)
            if stage.named:
                stage.state.active = ("south",)

        stage.rounds._heads = SimpleNamespace(check=leaves)
    assert await stage.rounds._await_channel(SimpleNamespace(holder="north")) is None
    assert stage.named
    assert stage.skipped == (["north"] if may_skip else [])
    assert stage.wishes.waiting_for == []
