"""Whoever answers in the orchestrator's place, and whatever it answers: the client's errors are those of the family."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gput.client import UNATTESTED, AsyncClient, Trust
from shared.crypto.signing import PartyKey
from shared.errors import GputError, VerificationFailed
from shared.service.http import Peers

SESSION = "s_0123456789abcdef"
ANSWERS = {"nothing in it": {}, "a list": [], "a number": 7, "empty": None, "a page of numbers": {"items": [7]}}
CALLS: dict[str, Callable[[AsyncClient], Awaitable[object]]] = {
    "me": lambda client: client.parties.me(),
    "parties": lambda client: client.parties.list(),
    "enrol": lambda client: client.parties.enrol("h0", bytes(32)),
    "show": lambda client: client.sessions.show(SESSION),
    "find": lambda client: client.sessions.show("s_a"),
    "estimate": lambda client: client.sessions.estimate(SESSION),
    "sessions": lambda client: client.sessions.list(),
    "visits": lambda client: client.sessions.visits(SESSION),
    "wait": lambda client: client.sessions.wait(SESSION),
    "pause": lambda client: client.sessions.pause(SESSION),
    "fetches": lambda client: client.sessions.fetches(SESSION),
    "successor": lambda client: client.sessions.successor(SESSION),
    "manifest": lambda client: client.manifest(SESSION),
    "programs": lambda client: client.programs.list(),
    "gpus": lambda client: client.gpus.list(),
}
KEY = PartyKey.generate(random.Random(1).randbytes)


def asking(answer: Any, trust: Any = UNATTESTED) -> AsyncClient:
    body = b"" if answer is None else json.dumps(answer).encode()

    def answered(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=body, headers={"content-type": "application/json"})

    url = "http://orchestrator.test"
    return AsyncClient(url, KEY, trust=trust, peers=Peers(transports={url: httpx2.MockTransport(answered)}))


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("call", CALLS)
async def test_an_answer_of_another_shape_is_the_peers_fault(call: str, answer: str) -> None:
    async with asking(ANSWERS[answer]) as client:
        with pytest.raises(GputError) as told:
            await CALLS[call](client)
    assert told.value.code == "peer-unintelligible"
    assert told.value.remedy


@pytest.mark.parametrize("answer", ANSWERS)
async def test_what_proves_nothing_is_not_believed(answer: str, tmp_path: Path) -> None:
    async with asking(ANSWERS[answer], Trust.__new__(Trust)) as client:
        with pytest.raises(VerificationFailed) as told:
            await client.attest()
    assert told.value.code == "peer-unintelligible"


@pytest.mark.parametrize("document", ["", "e30=", "bm8=", "abc"])
async def test_a_manifest_that_is_none_is_refused_by_name(document: str) -> None:
    async with asking({"document": document, "signature": ""}) as client:
        with pytest.raises(GputError):
            await client.manifest(SESSION)
