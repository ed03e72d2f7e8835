"""What an orchestrator answered that says nothing of what it was told: it is told again, until it has heard."""

from __future__ import annotations

import asyncio

import pytest

from data_holder import opening, runner
from tests.data_holder.conftest import Running
from tests.data_holder.holder_answers import HEALING, answering, once
from tests.data_holder.holder_world import SESSION, make_manifest
from tests.data_holder.test_holder_visits import visit

pytestmark = pytest.mark.parametrize("bad", HEALING)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "TEND_S", 0.01)
    monkeypatch.setattr(opening, "FIRST_PAUSE_S", 0.01)


async def test_a_veto_is_said_again(running: Running, monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    """Said once and shown as delivered, it left the orchestrator training on with this holder's approval."""
    running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
    await running.until(lambda: running.orchestrator.approvals)
    heard = asyncio.Event()
    asked = answering(running, monkeypatch, "/approvals", lambda _: None if heard.is_set() else HEALING[bad]())
    said = {"manifest": (await running.get(f"/v1/requests/{SESSION}"))["manifest"], "reason": "consent"}
    answer = await running.client.post(f"/v1/requests/{SESSION}/veto", json=said)
    assert (answer.json()["state"], answer.json()["delivered"]) == ("vetoed", False)
    heard.set()
    await running.until(lambda: running.orchestrator.approvals[-1].decision == "veto")
    assert len(asked) >= 2


async def test_a_report_is_sent_again(running: Running, monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    """The visit was provisioned: given up for one answer, its GPU waits out the lease, and nobody knows that it could go on."""
    await running.approved_with_channel()
    asked = once(running, monkeypatch, "/report", bad)
    await visit(running)
    await running.until(lambda: running.orchestrator.reports)
    await running.until(lambda: running.attempt_phase(1) == "REPORTED")
    assert len(asked) >= 2


async def test_a_head_is_stated_again(running: Running, monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    """A start of the orchestrator serves nobody before it has heard from its holders."""
    running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
    await running.until(lambda: running.orchestrator.approvals)
    once(running, monkeypatch, "/heads", bad)
    running.orchestrator.ask_head("33" * 32)
    await running.until(lambda: running.orchestrator.head_statements)
    await running.until(lambda: not running.holder.runner._heads.unanswered)


@pytest.mark.parametrize("part", ["/channels", "/channels/"])
async def test_a_channel_is_asked_for_again(
    running: Running, monkeypatch: pytest.MonkeyPatch, bad: str, part: str
) -> None:
    """Whoever wants one says so once; without it no visit is ever offered here."""
    running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
    await running.until(lambda: running.orchestrator.approvals)
    once(running, monkeypatch, part, bad)
    running.orchestrator.post("channel_wanted")
    await running.until(running.open_channel)
