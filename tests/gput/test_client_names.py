"""The two clients say the same: names, arguments, answers and words; and none of it is there twice."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gput
from gput import rooms, waiting
from gput.client import AsyncClient
from gput.waiting import Client
from shared.crypto.signing import PartyKey
from shared.errors import ConfigurationError, Unavailable

NOWHERE = "http://127.0.0.1:9"
PAIRS = [
    (AsyncClient, Client),
    (rooms.AsyncSessions, waiting.Sessions),
    (rooms.AsyncReceipts, waiting.Receipts),
    (rooms.AsyncPrograms, waiting.Programs),
    (rooms.AsyncParties, waiting.Parties),
    (rooms.AsyncGpus, waiting.Gpus),
]


def public(kind: type) -> dict[str, Any]:
    return {name: member for name, member in inspect.getmembers(kind) if not name.startswith("_")}


def said(method: Any) -> list[tuple[str, Any, Any, str]]:
    """Arguments with their kinds, defaults and types, and the answer's type; of plain and typed events alike."""
    found = inspect.signature(method)
    rows = [(p.name, p.kind, p.default, str(p.annotation)) for p in found.parameters.values()]
    answer = str(found.return_annotation).removeprefix("Async").replace("PlainEvent", "Event")
    return [*rows, ("return", None, None, answer)]


@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_have_the_same_names_arguments_and_words(theirs: type, ours: type) -> None:
    there, here = public(theirs), public(ours)
    assert here.keys() == there.keys()
    assert len(here) > 0
    assert inspect.getdoc(ours) == inspect.getdoc(theirs)
    for name, member in there.items():
        assert inspect.getdoc(member), name
        if isinstance(member, property):
            assert isinstance(here[name], property), name
            assert inspect.getdoc(here[name]) == inspect.getdoc(member), name
            continue
        assert said(here[name]) == said(member), name
        if name != "close":
            assert inspect.getdoc(here[name]) == inspect.getdoc(member), name
    if theirs is AsyncClient:
        assert said(ours.__init__) == said(theirs.__init__)  # type: ignore[misc]  # of the classes, not of instances


def test_every_synchronous_call_is_one_asynchronous_call() -> None:
    """Each method is one line over its twin: there is nothing in it that could differ."""
    for _, ours in PAIRS:
        for name, member in public(ours).items():
            if inspect.isfunction(member) and name not in ("close", "attest"):
                body = inspect.getsource(member).partition("return ")[2]
                assert body.startswith(("self._work.done(", "self._work.each(")), (ours.__name__, name)
                assert f".{name}(" in body


def test_the_package_names_them_and_loads_nothing() -> None:
    code = "import sys, gput; print([m for m in ('httpx2', 'pydantic', 'cryptography', 'asyncio') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert (gput.AsyncClient, gput.Client, gput.UNATTESTED) == (AsyncClient, Client, "unattested")
    with pytest.raises(AttributeError):
        gput.Nothing  # noqa: B018


def test_a_client_says_nothing_before_it_knows_whom_to_believe() -> None:
    with Client(NOWHERE, PartyKey.generate()) as client:
        for room in ("sessions", "receipts", "programs", "parties", "gpus"):
            with pytest.raises(ConfigurationError) as found:
                getattr(client, room)
            assert found.value.code == "no-trust"
        for call in (
            client.attest,
            client.whoami,
            lambda: client.upload_validation(b"records"),
            lambda: client.raw("library"),
        ):
            with pytest.raises(ConfigurationError) as found:
                call()
            assert found.value.code == "no-trust"
        with pytest.raises(AttributeError):
            client.no_such_call  # type: ignore[attr-defined]  # noqa: B018
    client.close()  # again is no error
    with Client(NOWHERE, PartyKey.generate(), trust=gput.UNATTESTED) as client:
        with pytest.raises(Unavailable) as away:
            client.parties.me()
        assert away.value.code == "peer-unreachable"


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("trust", ["trust", Path("trust"), True, {}, [], gput.Trust], ids=repr)
def test_what_names_nobody_to_believe_makes_no_client(kind: Any, trust: Any) -> None:
    """Above all the name of a folder, which whoever forgot `Trust(…)` means."""
    with pytest.raises(ConfigurationError) as found:
        kind(NOWHERE, PartyKey.generate(), trust=trust)
    assert found.value.code == "no-trust"
    assert "Trust(folder)" in str(found.value.remedy)
