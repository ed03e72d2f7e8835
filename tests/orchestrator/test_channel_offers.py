"""Offers of channels that wait for a holder's proof: each holder has its own few, whatever the others do."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from orchestrator.holders import channels as holders_channels
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


@pytest.mark.parametrize("when", ["verified", "written down"])
async def test_who_is_dismissed_while_its_proof_is_looked_at_opens_nothing(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key was revoked, and what was closed for that opened again a moment later."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def held() -> None:
        reached.set()
        await go_on.wait()

    async def prepare(evidence: Evidence, at: float) -> str | None:
        await (held() if when == "verified" else asyncio.sleep(0))
        return None

    async def commit() -> None:
        await (held() if when == "written down" else asyncio.sleep(0))

    told = Told()
    monkeypatch.setattr(told, "prepare", prepare)
    told_of = Mock(runtime=Mock(not_after=told.at + 60), runtime_data=b"", share_key=None)
    for name in ("verify_holder", "attestation_row", "gpu_evidence_digest"):
        monkeypatch.setattr(holders_channels, name, Mock(return_value=told_of))
    channels = opened(told)
    monkeypatch.setattr(channels, "_prover", Mock(prove=told.prove))
    monkeypatch.setattr(channels, "_book", Mock(state=running(), commit=commit))
    for dismissed in (True, False):
        reached.clear()
        go_on.clear()
        offer = await channels.offer("h0", ASKED)
        proving = asyncio.create_task(
            channels.prove("h0", offer.channel, ChannelProof.model_construct(evidence=None), b"")
        )
        async with asyncio.timeout(60):
            await reached.wait()
        if dismissed:
            channels.dismiss("h0")
        channels.dismiss("h1")
        go_on.set()
        if dismissed:
            with pytest.raises(Conflict) as refused:
                await proving
            assert refused.value.code == "channel-expired"
        else:
            assert (await proving).state == "open"
        assert channels.is_open("h0") is not dismissed
