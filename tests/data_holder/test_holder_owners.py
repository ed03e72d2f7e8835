"""Whose session it is: the owner's signature is verified, kept and shown, and a policy may name whose it approves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from data_holder import considering, runner
from data_holder.ledger import VOCABULARY
from data_holder.protocol.state import REQUEST, SessionState
from shared.crypto.signing import PartyKey
from tests.data_holder.conftest import POLICY, Running, Start
from tests.data_holder.holder_requests import request_waits
from tests.data_holder.holder_world import SESSION, b64, make_manifest

OWNER, OTHER = PartyKey.generate(lambda n: b"\x21" * n), PartyKey.generate(lambda n: b"\x22" * n)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "TEND_S", 0.01)
    monkeypatch.setattr(considering, "FIRST_PAUSE_S", 0.01)


@pytest.fixture
def named(start: Start, tmp_path: Path) -> None:
    """A policy that names the owner."""
    (tmp_path / "policy.toml").write_text(POLICY + f'[session]\nowners = ["{OWNER.fingerprint}"]\n')


def ask(running: Running, owner: PartyKey | None, **changes: Any) -> None:
    running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()), owner, **changes)


async def test_whose_it_is_is_shown_also_after_a_restart(start: Start) -> None:
    async with start(approve="manual") as running:
        ask(running, OWNER)
        assert (await request_waits(running, "this holder's operator"))["owner"] == OWNER.fingerprint
        running.orchestrator.items.clear()
    async with start(approve="manual") as running:
        assert (await running.get(f"/v1/requests/{SESSION}"))["owner"] == OWNER.fingerprint


@pytest.mark.parametrize("fault", ["another's key", "another's signature", "no signature of anybody's"])
async def test_an_owner_who_did_not_sign_is_believed_by_nobody(running: Running, fault: str) -> None:
    document = make_manifest(running.orchestrator_key()).canonical()
    changes = {
        "another's key": {"owner_key": OTHER.public.hex()},
        "another's signature": {"owner_signature": b64(OTHER.sign("gput/manifest", document))},
        "no signature of anybody's": {"owner_signature": "AAAA"},
    }[fault]
    ask(running, OWNER, **changes)
    running.orchestrator.post("ended", session="s_0000000000000000")
    await running.until(lambda: not running.holder.runner._queues)
    assert not running.holder.ledger.knows(SESSION)
    ask(running, OWNER)
    await running.until(lambda: running.orchestrator.approvals)
    assert running.orchestrator.approvals[0].decision == "approve"


async def test_a_policy_approves_what_its_owner_signed(named: None, running: Running) -> None:
    ask(running, OWNER)
    await running.until(lambda: running.orchestrator.approvals)
    assert running.orchestrator.approvals[0].decision == "approve"


async def test_a_policy_refuses_what_another_signed(named: None, running: Running) -> None:
    ask(running, OTHER)
    await running.until(lambda: running.orchestrator.approvals)
    refusal = running.orchestrator.approvals[0]
    assert refusal.decision == "refuse"
    assert refusal.reason.startswith("session.owners: ")
    assert OTHER.fingerprint in refusal.reason


async def test_what_an_orchestrator_of_before_does_not_say_is_waited_for(named: None, running: Running) -> None:
    ask(running, None)
    shown = await request_waits(running, "this holder's operator (owner-unknown")
    assert (shown["owner"], shown["state"]) == (None, "waiting")
    check = (await running.client.post("/v1/policy/check", json={"session": SESSION})).json()
    assert (check["allowed"], [one["rule"] for one in check["findings"] if not one["ok"]]) == (
        False,
        ["session.owners"],
    )
    assert running.orchestrator.approvals == []
    ask(running, OWNER)  # it was updated
    await running.until(lambda: running.orchestrator.approvals)
    assert running.orchestrator.approvals[0].decision == "approve"
    assert (await running.get(f"/v1/requests/{SESSION}"))["owner"] == OWNER.fingerprint


async def test_who_signed_first_stays_the_owner(start: Start) -> None:
    """Anybody can sign the same bytes later."""
    async with start(approve="manual") as running:
        ask(running, OWNER)
        await request_waits(running, "this holder's operator")
        ask(running, OTHER)
        running.orchestrator.post("ended", phase="FAILED")
        await running.until(lambda: running.holder.ledger.state(SESSION).ended)
        assert (await running.get(f"/v1/requests/{SESSION}"))["owner"] == OWNER.fingerprint


def test_a_request_of_before_is_read_as_one_that_nobody_said_the_owner_of() -> None:
    kind, body = VOCABULARY.read("request", {"manifest": b64(b"{}")})
    state = SessionState(SESSION)
    state.fold(kind, body)
    assert (kind, state.manifest, state.owner) == (REQUEST, b"{}", None)
