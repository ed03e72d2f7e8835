"""A fact is durable before the act that depends on it, however many of them go together (design 4.3)."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.gpu_session.life import GpuLife
from orchestrator.holders.inbox import Inboxes
from orchestrator.sessions.book import Book
from tests.world.world import NewWorld
from tests.world.world_material import HOLDERS, ROUNDS

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
