"""What holders are told waits for its commit, then for a moment in which nobody waits for them; each hears in order."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

from orchestrator.visits import outbox as rooms
from orchestrator.visits.outbox import Outbox, Waiting
from orchestrator.visits.run import Run


class Box:
    """An outbox and what was said by it."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.outbox = Outbox()

    def put(self, holder: str, what: str) -> None:
        self.outbox.put(holder, partial(self.said.append, what))

    def committed(self) -> None:
        self.outbox.hold(self.outbox.taken())


async def test_what_is_put_while_a_commit_is_under_way_waits_for_the_next() -> None:
    box = Box()
    box.put("north", "one")
    durable = box.outbox.taken()
    box.put("north", "two")
    box.outbox.hold(durable)
    box.outbox.say()
    assert box.said == ["one"]
    box.committed()
    box.outbox.say()
    assert box.said == ["one", "two"]


async def test_a_life_takes_what_is_to_be_said_before_it_commits() -> None:
    """What a step stages while the database writes is not in that write."""
    box = Box()

    async def commit() -> None:
        box.put("north", "later")

    run = SimpleNamespace(outbox=box.outbox, signed_head=lambda: None, book=SimpleNamespace(commit=commit))
    box.put("north", "one")
    await Run._commit(cast("Run", run))
    box.outbox.say()
    assert box.said == ["one"]


async def test_what_a_failed_commit_was_to_make_durable_is_never_said() -> None:
    box = Box()
    box.put("north", "one")
    box.outbox.taken()
    box.committed()
    box.outbox.say()
    assert box.said == []


async def test_who_is_first_hears_in_order_and_the_others_are_held() -> None:
    box = Box()
    for holder, what in (("north", "n1"), ("city", "c1"), ("north", "n2")):
        box.put(holder, what)
    box.committed()
    box.outbox.say(Waiting("north", partial(box.said.append, "offer")))
    assert box.said == ["n1", "n2", "offer"]
    box.put("city", "c2")
    box.committed()
    box.outbox.say()
    assert box.said[3:] == ["c1", "c2"]


async def test_nothing_is_held_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no training comes, and also what was left when somebody else was first; each once."""
    monkeypatch.setattr(rooms, "HELD_S", 0.01)
    box, heard = Box(), asyncio.Event()
    box.put("city", "c1")
    box.committed()
    box.outbox.say(Waiting("north", partial(box.said.append, "offer")))
    box.outbox.put("city", heard.set)
    box.committed()
    async with asyncio.timeout(20):
        await heard.wait()
    assert box.said == ["offer", "c1"]
    box.put("city", "c2")
    box.committed()
    box.outbox.say()
    await asyncio.sleep(0.03)
    assert box.said == ["offer", "c1", "c2"]
