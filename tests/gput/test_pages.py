"""What another program answers in a service's place is no fault of ours: it is said whose address to check."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import httpx2
import pytest

from gput.api import Api
from gput.commands import operator
from gput.pages import pages
from shared.crypto.signing import PartyKey
from shared.errors import Unavailable
from shared.service.http import Peers

NO_PAGES = [{}, [], None, "x", {"items": None, "next": None}, {"items": [], "next": 3}, {"items": [7]}]


@pytest.mark.parametrize("answer", NO_PAGES, ids=repr)
async def test_an_answer_that_is_no_page_is_unintelligible(answer: Any) -> None:
    with pytest.raises(Unavailable, match="peer answered") as found:
        await pages(AsyncMock(return_value=answer), "peer")
    assert found.value.code == "peer-unintelligible"


ENDLESS = {"itself": ["a", "a"], "an earlier page": ["a", "b", "c", "a"]}


@pytest.mark.parametrize("cursors", ENDLESS)
@pytest.mark.parametrize("items", [[], [{"id": "x"}]], ids=["empty", "full"])
async def test_a_list_that_leads_back_has_no_end(cursors: str, items: list[Any]) -> None:
    asked: list[str | None] = []

    async def ask(after: str | None) -> Any:
        asked.append(after)
        return {"items": items, "next": ENDLESS[cursors][min(len(asked), len(ENDLESS[cursors])) - 1]}

    with pytest.raises(Unavailable, match="peer answered with a list that has no end") as found:
        await pages(ask, "peer")
    assert found.value.code == "peer-unintelligible"
    assert asked == [None, *ENDLESS[cursors][:-1]]


async def test_an_empty_page_is_not_the_last_one() -> None:
    """What a holder may not see is left out of its page after this was cut."""
    answers = {None: ([{"id": 1}], "a"), "a": ([], "b"), "b": ([{"id": 2}], None)}

    async def ask(after: str | None) -> Any:
        items, later = answers[after]
        return {"items": items, "next": later}

    assert await pages(ask, "peer") == [{"id": 1}, {"id": 2}]


def test_both_clients_follow_a_list_by_that_rule(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A person at the orchestrator's API, and an operator at their own holder's."""
    (tmp_path / "token").write_text("00" * 32)
    at, asked = "http://service.test", []

    def answered(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.params.get("after"))
        return httpx2.Response(200, json={"items": [{"id": "x"}], "next": "a&b"})

    def peers(**_more: Any) -> Peers:
        return Peers(transports={at: httpx2.MockTransport(answered)})

    monkeypatch.setattr(operator, "Peers", peers)
    with pytest.raises(Unavailable, match="holder service answered with a list that has no end"):
        operator.every("datasets", at, tmp_path / "token")
    with pytest.raises(Unavailable, match="orchestrator answered with a list that has no end"):
        asyncio.run(Api(at, PartyKey.generate(), peers=peers()).items("sessions"))
    assert asked == [None, "a&b"] * 2
