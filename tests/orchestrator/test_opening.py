"""Whose life it is to open: the journal says so, before the MUX or the GPU hears of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.gpu_session.link import PublicFacts
from orchestrator.gpu_session.opening import Opener
from orchestrator.lease.fence import not_leader
from shared.errors import Unavailable
from shared.service.metrics import Failures


class Book:
    """A journal without any life, which takes the first claim or does not."""

    def __init__(self, heard: list[str], *, leads: bool) -> None:
        self.state, self._heard, self._leads = SimpleNamespace(placement=None, claims=set()), heard, leads

    def stage(self, fact: Any) -> None:
        self._heard.append("staged")

    async def commit(self) -> None:
        if not self._leads:
            raise not_leader("another orchestrator took the lease while this one stood still")
        self._heard.append("committed")


def opener(heard: list[str], *, leads: bool) -> Opener:
    async def facts() -> PublicFacts:
        return PublicFacts(port="holder-north", boot_counter=3, statement_certificate="")

    async def home() -> None:
        heard.append("home")

    async def spdm(message: bytes) -> bytes:
        heard.append("spdm")
        raise Unavailable("far enough")

    async def load() -> None:
        return None

    parts: Any = (
        Book(heard, leads=leads), SimpleNamespace(facts=facts, spdm=spdm), home, SimpleNamespace(load=load), None,
        SimpleNamespace(public=bytes(65)), None, Failures(), lambda: 1000.0, lambda count: bytes(count),
    )  # fmt: skip
    return Opener(*parts)


@pytest.mark.parametrize(
    ("leads", "expected"),
    [(True, ["staged", "committed", "home", "spdm"]), (False, ["staged"])],
    ids=["leads", "deposed"],
)
async def test_the_gpu_is_called_home_by_who_leads_only(leads: bool, expected: list[str]) -> None:
    """Who was deposed and has not heard of it would take the GPU from the holder that the new leader has sent it to."""
    heard: list[str] = []
    with pytest.raises(Unavailable):
        await opener(heard, leads=leads).open()
    assert heard == expected
