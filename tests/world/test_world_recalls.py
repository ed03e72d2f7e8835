"""Who takes its consent or its key back while its visit is being granted is offered nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from orchestrator.gpu_session.life import GpuLife
from shared.names import TravelMode
from shared.wire.gpu import InstallGrant
from tests.world.world import NewWorld, World


@contextmanager
def while_granted(act: Callable[[str], Awaitable[None]]) -> Iterator[list[str]]:
    """`act(holder)` once, when the GPU has answered with a visit's grant and the visit was not offered yet; the holder."""
    batch, done = GpuLife.batch, list[str]()

    async def watched(life: GpuLife, commands: Sequence[Any], *arguments: Any, **named: Any) -> Any:
        answered = await batch(life, commands, *arguments, **named)
        last = commands[-1]
        if not done and isinstance(last, InstallGrant):
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


@pytest.mark.parametrize("mode", [TravelMode.SCOPED, TravelMode.DIRECT, TravelMode.PAPER])
async def test_who_vetoes_while_its_visit_is_granted_is_offered_nothing(new_world: NewWorld, mode: TravelMode) -> None:
    async with new_world() as world:
        session = ""

        def vetoed(view: Any, holder: str) -> bool:
            return any(one["holder"] == holder and one["decision"] == "veto" for one in view["holders"])

        async def veto(holder: str) -> None:
            await world.operator(holder).decide(session, "veto", reason="enough")
            await world.until(session, lambda view: vetoed(view, holder))

        await world.enrol()
        with while_granted(veto) as whom:
            session = await world.submit(quorum=2, travel_mode=mode)
            await world.completed(session)
        (visit,) = await facts_of(world, session, whom[0])
        (row,) = [one for one in await world.visits(session) if one["holder"] == whom[0]]
    assert visit == ["planned", "granted", "recalled"]
    assert "veto" in row["reason"]
