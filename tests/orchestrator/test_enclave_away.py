"""A quoting enclave that starts after the orchestrator: waited for, and said once however often it was asked."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator import site
from orchestrator.site import Site
from shared.crypto.secret import Secret
from shared.errors import Unavailable
from shared.service.logging import configure_logging


class Late:
    """A guest whose enclave answers at the fourth time."""

    asked = 0

    async def derived_key(self, label: str) -> Secret:
        self.asked += 1
        if self.asked < 4:
            raise Unavailable("the quoting enclave does not answer", code="enclave-unreachable")
        return Secret(label.encode())


async def test_it_is_said_once_that_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It wrote five lines a second, which buried everything else that a start had to say."""
    monkeypatch.setattr(site, "ENCLAVE_PAUSE_S", 0)
    log, late = io.StringIO(), Late()
    configure_logging("info", "json", log)
    at_this: Any = SimpleNamespace(guest=late)
    key = await Site._derived(at_this, "gput/journal")
    configure_logging("warning", "json")
    assert (key.reveal(), late.asked) == (b"gput/journal", 4)
    assert [line.count("waiting for the quoting enclave") for line in log.getvalue().splitlines()] == [1, 1], (
        "begun, and over"
    )
