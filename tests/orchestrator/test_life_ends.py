"""A life that is over asks the GPU for nothing more: another life may be there by now."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.gpu_session.life import GpuLife, Opening
from shared.errors import Conflict


class Link:
    """A way to the GPU; `heard`: SPDM messages that went there, answered once `answers` is set."""

    def __init__(self) -> None:
        self.heard, self.asked, self.answers = list[bytes](), asyncio.Event(), asyncio.Event()

    async def spdm(self, message: bytes) -> bytes:
        self.heard.append(message)
        self.asked.set()
        await self.answers.wait()
        return message


def standing(link: Link) -> GpuLife:
    """A life over an SPDM session whose requests are their nonces, and whose reports are the answers."""
    session = SimpleNamespace(
        take_export_master_secret=lambda: bytes(48), th2=bytes(48), chain_pem="", request_measurements=lambda nonce: nonce,
        parse_measurements=lambda answer: answer,
    )  # fmt: skip
    room = SimpleNamespace(trust=SimpleNamespace(ocsp_responses=list[bytes]))
    rest: Any = (room, None, lambda: 0.0, bytes, b"")
    linked: Any = (link, session)
    return GpuLife(*linked, Opening(number=1, boot_counter=1, resume=None), *rest)


async def asked(life: GpuLife, challenge: bytes) -> str:
    """As a holder asks: once the GPU is home. What became of it."""
    async with life.home:
        try:
            await life.evidence(challenge * 32, b"k" * 32, 1)
        except Conflict as error:
            return error.code
        return "evidence"


@pytest.mark.parametrize("over", [False, True])
async def test_who_waited_for_the_gpu_hears_when_it_comes_home_that_the_life_is_over(over: bool) -> None:
    link = Link()
    life = standing(link)
    link.answers.set()
    await life.home.acquire()
    waiting = asyncio.create_task(asked(life, b"c"))
    await asyncio.sleep(0)
    if over:
        life.close()
    life.home.release()
    assert await waiting == ("channel-broken" if over else "evidence")
    assert len(link.heard) == (0 if over else 1)


async def test_who_waited_for_its_turn_hears_that_the_life_is_over() -> None:
    link = Link()
    life = standing(link)
    first, second = (asyncio.create_task(life.evidence(challenge * 32, b"k" * 32, 1)) for challenge in (b"c", b"d"))
    await link.asked.wait()
    life.close()
    link.answers.set()
    await first
    with pytest.raises(Conflict, match="is over"):
        await second
    assert len(link.heard) == 1
