"""A fact is durable before the act that depends on it, however many of them go together (design 4.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import httpx2
import pytest

from orchestrator.gpu_session.life import GpuLife
from orchestrator.holders.inbox import Inboxes
from orchestrator.sessions.book import Book
from orchestrator.visits import cycle
from orchestrator.visits.run import Run
from shared.names import TravelMode
from shared.wire.gpu import Commit, InstallGrant
from tests.world.test_world_private import submitted
from tests.world.world import NewWorld
from tests.world.world_material import HOLDERS, ROUNDS
from tests.world.world_recording import Recording
from tests.world.world_wire import Call, Deliver

VISITS = len(HOLDERS) * ROUNDS
BEFORE = {
    "InstallGrant": "visit.planned",
    "offer": "visit.offered",
    "Commit": "training.validated",
    "receipt": "training.closed",
}
"""Act -> the fact that must be durable by then."""


RARELY = {"orchestrator": {"checkpoint_interval_s": 3600}}


@pytest.fixture
def all_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first training does not begin before every holder's channel stands: on a loaded machine one may be late, and who has none seals
    not ahead."""
    train = cycle.train

    async def patient(run: Run, beside: Any) -> Any:
        async with asyncio.timeout(60):
            while run.visit.index == 1 and not all(map(run.channels.ready, run.state.active)):  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.005)
        return await train(run, beside)

    monkeypatch.setattr(cycle, "train", patient)


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
    """All but the first are granted in the epilogue of the one before, where no checkpoint comes between and nobody seals ahead."""
    async with new_world(settings=RARELY) as world:
        await world.completed(await world.submit(travel_mode=TravelMode.PAPER))
    grants = [at for at, what in enumerate(heard) if what == "InstallGrant"]
    along = [at for at in grants if heard[at - 2 : at] == ["CloseVisit", "OpenEpoch"]]
    assert len(along) == VISITS - 1


@pytest.mark.usefixtures("all_ready")
async def test_the_next_holder_seals_while_the_gpu_trains(
    new_world: NewWorld, heard: list[str], recorded: Recording
) -> None:
    """From the third visit on: planned while the one before is away, its epoch opened with that one's fence, offered before that one's
    end is known, installed in the frame that scrubs; the second is granted the other way, for no training was timed before."""
    async with new_world(settings=RARELY) as world:
        view = await world.completed(await world.submit())
    assert view["model"]["digest"] == recorded.view["model"]["digest"]
    installed = [at for at, what in enumerate(heard) if what == "InstallGrant"]
    assert sum(heard[at - 1] == "CloseVisit" for at in installed) == VISITS - 2
    opened = [at for at in range(1, len(heard)) if heard[at - 1 : at + 1] == ["Measure", "OpenEpoch"]]
    assert len(opened) == VISITS - 2
    for number, at in enumerate(opened, start=3):
        assert heard[:at].count("visit.planned") >= number
    offered = [at for at, what in enumerate(heard) if what == "offer"]
    for number in range(3, VISITS + 1):
        told = heard[: offered[number - 1]]
        assert told.count("Train") == number - 1
        assert told.count("Commit") == told.count("training.trained") == number - 2


@pytest.mark.usefixtures("all_ready")
async def test_a_receipt_is_told_while_the_next_visit_trains(
    new_world: NewWorld, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its holder does then would stand in the way of the visit that comes; the last one's waits for nothing."""
    monkeypatch.setattr("orchestrator.visits.outbox.HELD_S", 3600.0)
    async with new_world(settings=RARELY) as world:
        await world.completed(await world.submit())
    told = [at for at, what in enumerate(heard) if what == "receipt"]
    assert len(told) == VISITS
    for number, at in enumerate(told, start=1):
        assert heard[:at].count("training.closed") >= number, "durable before it is told"
        assert heard[:at].count("Train") == min(number + 1, VISITS)
        assert number == VISITS or heard[:at].count("training.trained") == number


@pytest.mark.usefixtures("all_ready")
async def test_a_checkpoint_comes_between_a_key_and_its_grant(
    new_world: NewWorld, heard: list[str], recorded: Recording
) -> None:
    often = {"orchestrator": {"checkpoint_interval_s": 1e-6, "checkpoint_share": 1e6}}
    async with new_world(settings=often) as world:
        view = await world.completed(await world.submit())
    assert view["model"]["digest"] == recorded.view["model"]["digest"]
    sealed_ahead = 0
    for at in [at for at, what in enumerate(heard) if what == "InstallGrant"][2:]:
        since = heard[max(i for i in range(at) if heard[i] == "CloseVisit") : at]
        assert "Checkpoint" in since
        sealed_ahead += "OpenEpoch" not in since
    assert sealed_ahead == VISITS - 2


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
            session = await world.submit(quorum=2, travel_mode=TravelMode.PAPER)
            await world.completed(session)
        gone = [visit for visit in await world.visits(session) if visit["holder"] == vetoed[0]]
        assert [visit["outcome"] for visit in gone if visit["outcome"] != "closed"] == ["recalled"]
        recalled = next(visit for visit in gone if visit["outcome"] == "recalled")
        assert "no part" in recalled["reason"]
        assert "offer" not in recalled["durations"]


@pytest.mark.parametrize("mode", [TravelMode.SCOPED, TravelMode.PAPER])
async def test_a_pause_after_the_next_grant_takes_it_back_and_the_model_is_the_same(
    new_world: NewWorld, recorded: Recording, mode: TravelMode
) -> None:
    async with new_world() as world:
        session = ""

        async def pause(_holder: str) -> None:
            await world.owner.act(session, "pause")

        with once_granted_along(pause):
            session = await world.submit(travel_mode=mode)
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


async def test_the_gpu_is_asked_home_before_the_report_is_written_down(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, report = list[str](), cycle.report

    def reported(run: Run, said: Any) -> None:
        heard.append("report")
        report(run, said)

    monkeypatch.setattr(cycle, "report", reported)

    async def switched(call: Call, deliver: Deliver) -> httpx2.Response:
        if call.link == ("orchestrator", "platform") and call.path.endswith("/mux"):
            heard.append("away" if b'"holder-' in call.body else "home")
        return await deliver(call)

    async with new_world(settings=RARELY) as world:
        world.wire.hooks.append(switched)
        await world.completed(await world.submit())
    begun = heard.index("away")
    assert heard[begun : begun + 3 * VISITS] == ["away", "home", "report"] * VISITS
