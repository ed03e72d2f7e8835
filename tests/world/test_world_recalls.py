"""Who takes its consent or its key back while its visit is being granted is offered nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from orchestrator.gpu_session.life import GpuLife
from orchestrator.holders.arrivals import Recall
from orchestrator.sessions.visit_state import VisitState
from orchestrator.visits import abandon, sealing_ahead
from orchestrator.visits.run import Run
from shared.names import TravelMode
from shared.wire.gpu import InstallGrant
from tests.world.test_world_order import RARELY, all_ready
from tests.world.world import PATIENCE_S, NewWorld, World


@contextmanager
def while_granted(act: Callable[[str], Awaitable[None]], nth: int = 1) -> Iterator[list[str]]:
    """`act(holder)` once, when the GPU has answered with the `nth` visit's grant and that visit was not offered yet; the holder."""
    batch, done, grants = GpuLife.batch, list[str](), count(1)

    async def watched(life: GpuLife, commands: Sequence[Any], *arguments: Any, **named: Any) -> Any:
        answered = await batch(life, commands, *arguments, **named)
        last = commands[-1]
        if isinstance(last, InstallGrant) and next(grants) == nth:
            done.append(last.grant.holder)
            await act(last.grant.holder)
        return answered

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GpuLife, "batch", watched)
        yield done
    assert done


async def facts_of(world: World, session: str, holder: str) -> list[list[str]]:
    """What happened to each of its visits, the first one first."""
    found: dict[str, list[str]] = {}
    async for event in world.owner.events(session):
        if event.data.get("holder") == holder and event.data.get("visit"):
            found.setdefault(event.data["visit"], []).append(event.data["fact"])
    return list(found.values())


def said(view: Any, holder: str) -> str | None:
    return {one["holder"]: one["decision"] for one in view["holders"]}[holder]


def veto_in(world: World, session: Callable[[], str]) -> Callable[[str], Awaitable[None]]:
    """Has a holder veto, and returns once that is durable and known."""

    async def veto(holder: str) -> None:
        await world.operator(holder).decide(session(), "veto", reason="enough")
        await world.until(session(), lambda view: said(view, holder) == "veto")

    return veto


@pytest.mark.parametrize(
    ("mode", "nth"), [(TravelMode.SCOPED, 1), (TravelMode.DIRECT, 1), (TravelMode.DIRECT, 2), (TravelMode.PAPER, 1)]
)
async def test_who_vetoes_while_its_visit_is_granted_is_offered_nothing(
    new_world: NewWorld, mode: TravelMode, nth: int
) -> None:
    """In mode direct the second grant is of who loads while the GPU trains for the first."""
    async with new_world() as world:
        session = ""
        await world.enrol()
        with while_granted(veto_in(world, lambda: session), nth) as whom:
            session = await world.submit(quorum=2, travel_mode=mode)
            await world.completed(session)
        (visit,) = await facts_of(world, session, whom[0])
        (row,) = [one for one in await world.visits(session) if one["holder"] == whom[0]]
    assert visit == ["planned", "granted", "recalled"]
    assert "veto" in row["reason"]


@pytest.mark.usefixtures(all_ready.__name__)
@pytest.mark.parametrize("told", [False, True], ids=["before it has its key", "when it has its key"])
async def test_who_lost_its_key_while_it_was_to_seal_ahead_is_granted_nothing(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    drawn, granted, over = list[str](), list[str](), asyncio.Event()
    offer_ahead, batch = sealing_ahead.offer_ahead, GpuLife.batch
    async with new_world(settings=RARELY) as world:

        async def offered(run: Run) -> None:
            if told:
                await offer_ahead(run)
            if run.drawn is not None and not drawn:
                drawn.append(run.drawn.visit.id)
                holder = run.drawn.visit.holder
                await world.owner.revoke_key(holder, world.material.keys[holder].fingerprint)
            if not told:
                await offer_ahead(run)

        async def watched(life: GpuLife, commands: Sequence[Any], *arguments: Any, **named: Any) -> Any:
            granted.extend(one.grant.visit for one in commands if isinstance(one, InstallGrant))
            return await batch(life, commands, *arguments, **named)

        async def recalled(run: Run, why: Recall, visit: VisitState) -> None:
            await abandon.recall(run, why, visit)
            over.set()

        monkeypatch.setattr("orchestrator.visits.cycle.offer_ahead", offered)
        monkeypatch.setattr("orchestrator.visits.cycle.recall", recalled)
        monkeypatch.setattr(GpuLife, "batch", watched)
        session = await world.submit(quorum=2)
        async with asyncio.timeout(PATIENCE_S):
            await over.wait()
        await world.owner.act(session, "cancel")  # whose key is revoked is waited for: another may come
        await world.finish(session)
        events = [event.data async for event in world.owner.events(session)]
    facts = [data["fact"] for data in events if data.get("visit") == drawn[0]]
    assert facts == ["planned", "granted", *(["offered"] if told else []), "recalled"]
    assert drawn[0] not in granted
