"""One holder's one-time key or share that nothing can be done with: it costs that holder its visits, and nobody else anything."""

from __future__ import annotations

import asyncio
import contextvars

import httpx2
import pytest

from data_holder import channel as channels
from shared.crypto.hpke import MLKEM_PUBLIC_BYTES, PUBLIC_BYTES
from shared.names import TravelMode
from shared.wire.visit import Signed
from tests.world.test_world_crashes import A
from tests.world.world import NewWorld, World
from tests.world.world_faults import crash
from tests.world.world_wire import Call, Deliver

BAD = "harbour"
SMALL_ORDER = bytes(32)

KEYS = {
    "x25519 half of zeros": lambda public: public[:MLKEM_PUBLIC_BYTES] + bytes(32),
    "ml-kem half of ff": lambda public: b"\xff" * MLKEM_PUBLIC_BYTES + public[MLKEM_PUBLIC_BYTES:],
}


async def _goes_on_without(world: World, mode: TravelMode, lease_s: float = 2) -> list[str]:
    """The session is completed, and none of `BAD`'s visits was trained on; why they were not."""
    session = await world.submit(travel_mode=mode, quorum=2, rounds=1, lease_s=lease_s)
    view = await world.completed(session)
    visits = await world.visits(session)
    assert view["step"] == 2 * 3
    assert [v["outcome"] for v in visits if v["holder"] != BAD].count(
        "closed"
    ) == 2  # with so short a lease some may take a second try
    assert {v["outcome"] for v in visits if v["holder"] == BAD} <= {"recalled"}
    return [v["reason"] for v in visits if v["holder"] == BAD]


@pytest.mark.parametrize("what", KEYS)
async def test_a_key_that_nothing_can_be_sealed_to(
    what: str, new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = channels.sign_one_time_key

    def sign(*args: object, holder: str, public: bytes, **more: object) -> Signed:
        public = KEYS[what](public) if holder == BAD and "label" not in more else public
        assert len(public) == PUBLIC_BYTES
        return honest(*args, holder=holder, public=public, **more)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(channels, "sign_one_time_key", sign)
    async with new_world() as world:
        reasons = await _goes_on_without(world, TravelMode.SCOPED)
    assert reasons
    assert all("one-time key" in reason for reason in reasons)


@pytest.mark.parametrize("share", [None, SMALL_ORDER], ids=["none", "small order"])
async def test_a_share_that_nothing_can_be_agreed_with(
    share: bytes | None, new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It opens no channel, so that it has no visit to begin with."""
    honest = channels.sign_one_time_key

    def sign(*args: object, holder: str, **more: object) -> Signed:
        more = more | ({"share": share} if holder == BAD and "share" in more else {})
        return honest(*args, holder=holder, **more)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(channels, "sign_one_time_key", sign)
    async with new_world() as world:
        assert await _goes_on_without(world, TravelMode.DIRECT) == [f"{BAD} opened no channel"]


async def _restarted(world: World) -> None:
    await crash(world, f"holder-{BAD}")()


async def test_who_dies_at_every_offer_is_passed_over(new_world: NewWorld) -> None:
    """It is started again and opens a new channel each time: nobody's fault at first, and in the end no reason to hold up the others."""
    async with new_world() as world:
        outside, deaths = contextvars.copy_context(), list[asyncio.Task[None]]()

        async def dies(call: Call, deliver: Deliver) -> httpx2.Response:
            if (
                call.link == (f"holder-{BAD}", A)
                and call.path.endswith("/copy")
                and all(task.done() for task in deaths)
            ):
                deaths.append(asyncio.get_running_loop().create_task(_restarted(world), context=outside.copy()))
                await asyncio.sleep(0.05)
                raise httpx2.ConnectError("it died")
            return await deliver(call)

        world.wire.hooks.append(dies)
        # No lease runs out over a restart: that would be its fault at once.
        await _goes_on_without(world, TravelMode.SCOPED, lease_s=20)
        for task in deaths:
            await task
    assert len(deaths) > 3
