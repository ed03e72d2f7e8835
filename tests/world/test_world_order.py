"""A fact is durable before the act that depends on it, however many of them go together (design 4.3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from orchestrator.gpu_session.life import GpuLife
from orchestrator.holders.inbox import Inboxes
from orchestrator.sessions.book import Book
from shared.wire.gpu import Commit, InstallGrant
from tests.world.test_world_private import submitted
from tests.world.world import NewWorld
from tests.world.world_material import HOLDERS, ROUNDS
from tests.world.world_recording import Recording

VISITS = len(HOLDERS) * ROUNDS
BEFORE = {
    "InstallGrant": "visit.planned",
    "offer": "visit.offered",
    "Commit": "training.validated",
    "receipt": "training.closed",
}
"""Act -> the fact that must be durable by then."""


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Facts as they become durable, commands as they leave, and what is said to holders, in the order in which they happen."""
    heard: list[str] = []
    settled, batch, post = Book._settled, GpuLife.batch, Inboxes.post

    async def watched_write(book: Book, write: Any, facts: Any, at: float) -> None:
        await settled(book, write, facts, at)
        heard.extend(fact.kind for fact in facts)

    async def watched_batch(life: GpuLife, commands: Any, bulk: Any = (), *, behind: Any = None) -> Any:
        async def leaves() -> None:
            if behind is not None:
                await behind()
            heard.extend(type(command).__name__ for command in commands)

        return await batch(life, commands, bulk, behind=leaves)

    def watched_post(inboxes: Inboxes, holder: str, **fields: Any) -> None:
        heard.append(fields["kind"])
        post(inboxes, holder, **fields)

    monkeypatch.setattr(Book, "_settled", watched_write)
    monkeypatch.setattr(GpuLife, "batch", watched_batch)
    monkeypatch.setattr(Inboxes, "post", watched_post)
    return heard


async def test_nothing_is_done_before_what_it_depends_on_is_durable(new_world: NewWorld, heard: list[str]) -> None:
    async with new_world() as world:
        await world.completed(await world.submit())
    for act, fact in BEFORE.items():
        acts = [at for at, what in enumerate(heard) if what == act]
        assert len(acts) == VISITS
        for number, at in enumerate(acts, start=1):
            assert heard[:at].count(fact) >= number, f"{act} {number} before its {fact}"


async def test_a_visit_that_follows_at_once_has_no_commit_and_no_frame_of_its_own(
    new_world: NewWorld, heard: list[str]
) -> None:
    """All but the first are granted in the epilogue of the one before, where no checkpoint comes between."""
    async with new_world(settings={"orchestrator": {"checkpoint_interval_s": 3600}}) as world:
        await world.completed(await world.submit())
    grants = [at for at, what in enumerate(heard) if what == "InstallGrant"]
    along = [at for at in grants if heard[at - 2 : at] == ["CloseVisit", "OpenEpoch"]]
    assert len(along) == VISITS - 1


@contextmanager
def once_granted_along(act: Callable[[str], Awaitable[None]]) -> Iterator[None]:
    """`act` is done, given the holder, after the next visit was granted and before it is offered; once."""
    batch, done = GpuLife.batch, list[str]()

    async def watched(life: GpuLife, commands: Any, bulk: Any = (), *, behind: Any = None) -> Any:
        answered = await batch(life, commands, bulk, behind=behind)
        if not done and isinstance(commands[0], Commit) and isinstance(commands[-1], InstallGrant):
            done.append(commands[-1].grant.holder)
            await act(done[0])
        return answered

    with patch.object(GpuLife, "batch", watched):
        yield
    assert done


async def test_who_vetoes_after_its_grant_is_offered_nothing(new_world: NewWorld) -> None:
    async with new_world() as world:
        session, vetoed = "", list[str]()

        async def veto(holder: str) -> None:
            vetoed.append(holder)
            await world.operator(holder).decide(session, "veto", reason="enough")
            await world.until(session, lambda v: {h["holder"]: h["decision"] for h in v["holders"]}[holder] == "veto")

        with once_granted_along(veto):
            session = await world.submit(quorum=2)
            await world.completed(session)
        gone = [visit for visit in await world.visits(session) if visit["holder"] == vetoed[0]]
        assert [visit["outcome"] for visit in gone if visit["outcome"] != "closed"] == ["recalled"]
        recalled = next(visit for visit in gone if visit["outcome"] == "recalled")
        assert "no part" in recalled["reason"]
        assert "offer" not in recalled["durations"]


async def test_a_pause_after_the_next_grant_takes_it_back_and_the_model_is_the_same(
    new_world: NewWorld, recorded: Recording
) -> None:
    async with new_world() as world:
        session = ""

        async def pause(_holder: str) -> None:
            await world.owner.act(session, "pause")

        with once_granted_along(pause):
            session = await world.submit()
            await world.until(session, lambda v: v["phase"] == "PAUSED")
        assert [v["outcome"] for v in await world.visits(session)].count("recalled") == 1
        await world.owner.act(session, "resume")
        view = await world.completed(session)
    assert view["model"]["digest"] == recorded.view["model"]["digest"]


async def test_where_training_is_private_it_waits_until_the_visit_is_written_down(
    new_world: NewWorld, heard: list[str]
) -> None:
    async with new_world() as world:
        await world.completed(await submitted(world))
    for number, at in enumerate([at for at, what in enumerate(heard) if what == "Train"], start=1):
        assert heard[:at].count("visit.verified") >= number
