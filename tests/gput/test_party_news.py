"""`gput party` and its holder's service: a session that was submitted a moment ago is waited for, a long list told to its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from typer.testing import CliRunner

from gput.commands import operator, party, party_data
from shared.errors import NotFound
from shared.service.http import PeerClient

SESSION = "s_aaaaaaaaaaaaaaaa"
ARGUMENTS = ["request", SESSION, "--holder-url", "http://127.0.0.1:1", "--token", "operator.token"]


def asked(monkeypatch: pytest.MonkeyPatch, unknown: float, news_s: float = 2.0) -> list[str]:
    """The paths asked for; a holder that knows nothing of the session the first `unknown` times."""
    paths: list[str] = []

    def holder(method: str, path: str, url: str, token: Path, body: Any = None, *names: str) -> Any:
        paths.append(path)
        if len(paths) <= unknown:
            raise NotFound("no such session here")
        return {"session": SESSION, "state": "waiting"}

    monkeypatch.setattr(party, "ask", holder)
    monkeypatch.setattr(party, "NEWS_S", news_s)
    return paths


def test_it_waits_for_the_news_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = asked(monkeypatch, unknown=3)
    result = CliRunner().invoke(party.app, ARGUMENTS, catch_exceptions=False)
    assert result.exit_code == 0
    assert len(paths) == 5  # three times in vain, once heard, and the request itself
    assert result.stderr.count("has not heard of") == 1


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    asked(monkeypatch, unknown=float("inf"), news_s=0.05)
    with pytest.raises(NotFound):
        CliRunner().invoke(party.app, ARGUMENTS, catch_exceptions=False)


def test_what_is_known_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = asked(monkeypatch, unknown=0)
    result = CliRunner().invoke(party.app, ARGUMENTS, catch_exceptions=False)
    assert (result.exit_code, len(paths), result.stderr) == (0, 2, "")


@pytest.mark.parametrize("noun", ["requests", "datasets"])
def test_a_list_of_the_holders_is_told_to_its_last_page(noun: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {"": ("one", "c1"), "c1": ("two", "c2"), "c2": ("three", None)}

    async def holder(method: str, path: str, url: str, token: Path) -> Any:
        at = path.partition("after=")[2]
        name, following = pages[at]
        return {"items": [{"session": name, "name": name, "options": {}}], "next": following}

    monkeypatch.setattr(operator, "_call", holder)
    words = [noun, "--holder-url", "http://127.0.0.1:1", "--token", "operator.token", "--format", "jsonl"]
    result = CliRunner().invoke(party.app, words, catch_exceptions=False)
    assert [json.loads(line)["session"] for line in result.stdout.splitlines()] == ["one", "two", "three"]


def test_an_approval_is_waited_for_as_long_as_hashing_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gave up after 30 s, and said again it read the dataset a second time."""
    waited: dict[str, float] = {}

    async def get(self: PeerClient, path: str, **more: Any) -> Any:
        return {"session": SESSION, "manifest": "ab" * 32, "state": "waiting"}

    async def post(self: PeerClient, path: str, body: Any, *, timeout_s: float | None = None, **more: Any) -> Any:
        waited[path.rpartition("/")[2]] = timeout_s or 0.0
        return await get(self, path)

    monkeypatch.setattr(PeerClient, "get_json", get)
    monkeypatch.setattr(PeerClient, "post_json", post)
    monkeypatch.setattr(operator, "read_token", lambda token: "token")
    for verb in ("approve", "refuse"):
        said = [verb, SESSION, "--manifest", "ab" * 32, *ARGUMENTS[2:]]
        assert CliRunner().invoke(party.app, said, catch_exceptions=False).exit_code == 0
    assert waited["approve"] > 24 * 3600.0
    assert waited["refuse"] == operator.HOLDER_TIMEOUT_S


@pytest.mark.parametrize("name", ["ehr#x", "ehr?x=1", "../requests", "a b"])
def test_a_dataset_is_named_whole_whatever_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paths: list[str] = []

    def holder(method: str, path: str, url: str, token: Path, body: Any = None) -> Any:
        paths.append(path)
        return {"name": name, "path": "/data", "options": {}}

    monkeypatch.setattr(party_data, "ask", holder)
    words = ["declare", name, "--unit", "x=mg", *ARGUMENTS[2:]]
    assert CliRunner().invoke(party.app, words, catch_exceptions=False).exit_code == 0
    [segments] = [path.split("/") for path in paths]
    assert (segments[0], unquote(segments[1]), segments[2:]) == ("datasets", name, ["declaration"])
    assert not set("#?/") & set(segments[1])
