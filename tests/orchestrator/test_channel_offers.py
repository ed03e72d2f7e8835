"""Offers of channels that wait for a holder's proof: each holder has its own few, whatever the others do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.holders.channels import MOST_PENDING, PENDING_S, Channels
from orchestrator.holders.proofs import Proof
from shared.errors import Conflict, Unavailable
from shared.wire.visit import ChannelOffer, ChannelProof, ChannelRequest, Evidence, GpuEvidence
from tests.orchestrator.orchestrator_samples import SESSION, key
from tests.orchestrator.test_session_fold import running

ASKED = ChannelRequest(nonce="0a" * 32)


class Told:
    """The orchestrator's own evidence, and a clock that tests turn."""

    def __init__(self) -> None:
        self.at, self.since, self.offers = 1000.0, 0.0, 0

    async def prove(self, holder: str, nonce: str, gpu: GpuEvidence) -> Proof:
        self.offers += 1
        return Proof(f"c_{self.offers}", holder, SESSION, b"", Evidence.model_construct(), gpu, self.at + 900)

    async def attest(self, challenge: bytes, signing_key: bytes) -> GpuEvidence:
        return GpuEvidence.model_construct()

    async def prepare(self, evidence: Evidence, at: float) -> str | None:
        raise Unavailable("the offer stands")


def opened(told: Told) -> Channels:
    keeper = SimpleNamespace(store=None, prepare=told.prepare)
    room = SimpleNamespace(roots=None, reference=None, allow_emulated=True, snp=None, keeper=keeper)
    parts: Any = {
        "signing_key": key(5), "prover": told, "attest": told.attest, "share": None, "clock": lambda: told.at, "room": room,
        "timer": lambda: told.since,
    }  # fmt: skip
    return Channels(cast(Any, SimpleNamespace(state=running())), **parts)


async def stands(channels: Channels, holder: str, offer: ChannelOffer) -> bool:
    """Whether a proof over the offer is looked at."""
    with pytest.raises((Conflict, Unavailable)) as answer:
        await channels.prove(holder, offer.channel, ChannelProof.model_construct(evidence=None), b"")
    assert answer.value.code in ("channel-expired", "unavailable")
    return answer.value.code == "unavailable"


async def test_who_only_asks_keeps_nobody_else_from_a_channel() -> None:
    channels = opened(Told())
    offers = [await channels.offer("h0", ASKED) for _ in range(1100)]
    other = await channels.offer("h1", ASKED)
    assert await stands(channels, "h1", other)
    assert [await stands(channels, "h0", offer) for offer in offers[-MOST_PENDING - 1 :]] == [False, True, True]
    assert not await stands(channels, "h1", offers[-1]), "it is another's"


async def test_an_offer_waits_for_so_long() -> None:
    told = Told()
    channels = opened(told)
    first = await channels.offer("h0", ASKED)
    told.at += PENDING_S + 1
    assert not await stands(channels, "h0", first)
    await channels.offer("h1", ASKED)
    assert len(channels._pending) == 1


@pytest.mark.parametrize("put", [-3600.0, 3600.0])
async def test_a_clock_that_is_put_changes_nothing_of_when_a_holder_is_asked_again(put: float) -> None:
    told = Told()
    channels = opened(told)
    assert channels.ask("h0", 8.0)
    told.at += put
    assert not channels.ask("h0", 8.0)
    told.since += 8.0
    assert channels.ask("h0", 8.0)
