"""`gput party request` for a session that was submitted a moment ago: the holder's service is given time to hear of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gput.commands import party
from shared.errors import NotFound

SESSION = "s_aaaaaaaaaaaaaaaa"
ARGUMENTS = ["request", SESSION, "--holder-url", "http://127.0.0.1:1", "--token", "operator.token"]


def asked(monkeypatch: pytest.MonkeyPatch, unknown: float, news_s: float = 2.0) -> list[str]:
    """The paths asked for; a holder that knows nothing of the session the first `unknown` times."""
    paths: list[str] = []

    def holder(method: str, path: str, url: str, token: Path, body: Any = None) -> Any:
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
