"""Whose a session is: the key that signed its manifest is verified, kept, shown, and held against the policy."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx2
import pytest
from pydantic import ValidationError

from data_holder import runner
from data_holder.ledger import VOCABULARY
from data_holder.policy import Policy
from data_holder.policy_rules import evaluate
from data_holder.protocol.state import REQUEST, SessionState
from shared.canonical import json_value
from shared.claims.archive import open_archive
from shared.claims.program import ProgramManifest
from shared.crypto.signing import PartyKey
from tests.data_holder.conftest import POLICY, Running, Start
from tests.data_holder.holder_answers import answering
from tests.data_holder.holder_world import ARCHIVE, NAME, SESSION, b64, make_manifest, problem

OWNER, STRANGER = PartyKey.generate(lambda n: b"\x01" * n), PartyKey.generate(lambda n: b"\x02" * n)
REQUESTED = f"/v1/requests/{SESSION}"
PROGRAM_MANIFEST = ProgramManifest.model_validate(json_value(open_archive(ARCHIVE).manifest_bytes))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "TEND_S", 0.01)


def said(running: Running, key: PartyKey, signer: PartyKey | None = None) -> dict[str, Any]:
    """What the orchestrator says of the request's owner; signed by another key than it says, if one is given."""
    manifest = make_manifest(running.orchestrator_key()).canonical()
    return {"key": key.public.hex(), "signature": b64((signer or key).sign("gput/manifest", manifest))}


async def ask(running: Running) -> None:
    running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))


async def decided(running: Running) -> dict[str, Any]:
    await running.until(lambda: running.orchestrator.approvals)
    shown: dict[str, Any] = await running.get(REQUESTED)
    return shown


async def test_the_key_that_signed_the_manifest_is_shown_and_known_after_a_restart(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start() as running:
        asked = answering(running, monkeypatch, "/owner", lambda n: httpx2.Response(200, json=said(running, OWNER)))
        await ask(running)
        assert (await decided(running))["owner_key"] == OWNER.fingerprint
        assert asked == [f"GET /v1/sessions/{SESSION}/owner"]
    async with start() as again:
        assert (await again.get(REQUESTED))["owner_key"] == OWNER.fingerprint


async def test_of_an_orchestrator_that_does_not_say_so_nobody_is_shown(running: Running) -> None:
    await ask(running)
    assert (await decided(running))["owner_key"] is None


async def test_a_request_is_taken_in_once_its_owner_is_said(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an answer it is not shown as one that nobody signed."""
    away = problem(503, "Unavailable", "away")
    asked = answering(
        running, monkeypatch, "/owner", lambda n: away if n < 3 else httpx2.Response(200, json=said(running, OWNER))
    )
    await ask(running)
    assert (await decided(running))["owner_key"] == OWNER.fingerprint
    assert len(asked) >= 3


FALSE: dict[str, tuple[Any, str]] = {
    "another's signature": (lambda running: said(running, OWNER, STRANGER), "bad-signature"),
    "no key": (lambda running: {"key": "00", "signature": ""}, "manifest-signer-malformed"),
    "nothing": (lambda running: None, "manifest-signer-malformed"),
}


@pytest.mark.parametrize("lie", FALSE)
async def test_a_request_whose_owner_is_a_lie_is_not_taken_in(
    running: Running, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    log = Mock()
    monkeypatch.setattr(runner, "_log", log)
    answer, code = FALSE[lie]
    answering(running, monkeypatch, "/owner", lambda n: httpx2.Response(200, json=answer(running)))
    await ask(running)
    await running.until(lambda: log.error.called)
    assert log.error.call_args.kwargs["code"] == code
    assert (await running.client.get(REQUESTED)).status_code == 404
    assert not running.orchestrator.approvals


@pytest.mark.parametrize(
    ("signer", "decision"), [(OWNER, "approve"), (STRANGER, "refuse"), (None, "refuse")], ids=["one", "other", "nobody"]
)
async def test_a_policy_says_whose_sessions_it_approves(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signer: PartyKey | None, decision: str
) -> None:
    """Whoever could write into the orchestrator's folder of owners' keys was the owner of what every policy approved."""
    (tmp_path / "policy.toml").write_text(POLICY + f'[session]\nowners = ["{"0" * 64}", "{OWNER.fingerprint}"]\n')
    async with start() as running:
        if signer is not None:
            answering(running, monkeypatch, "/owner", lambda n: httpx2.Response(200, json=said(running, signer)))
        await ask(running)
        shown = await decided(running)
        [found] = [one for one in shown["findings"] if one["rule"] == "session.owners"]
        assert (found["ok"], running.orchestrator.approvals[0].decision) == (decision == "approve", decision)
        assert found["got"] == ("not said" if signer is None else signer.fingerprint)
        checked = await running.client.post("/v1/policy/check", json={"session": SESSION})
        assert checked.json()["allowed"] is (decision == "approve")


KEY = "cd" * 32  # as the roster names south with it


@pytest.mark.parametrize(
    ("required", "ok"), [("south", True), (f"south:{KEY}", True), (f"south:{'ab' * 32}", False), (f"west:{KEY}", False)]
)
def test_a_party_is_required_by_its_key_too(required: str, ok: bool) -> None:
    """A name is the orchestrator's to give: another key's owner under it passed."""
    policy = Policy.model_validate(tomllib.loads(f'[session]\nrequired_parties = ["{required}"]'))
    verdicts = evaluate(policy, make_manifest("ab" * 32), PROGRAM_MANIFEST, NAME)
    [found] = [one for one in verdicts if one.rule == "session.required_parties"]
    assert found.ok is ok
    assert (f"south:{KEY}" in found.got) is required.startswith("south:")


@pytest.mark.parametrize("text", ['owners = ["alice"]', 'required_parties = ["south:ab"]', 'required_parties = ["S"]'])
def test_what_is_no_fingerprint_ends_the_start(text: str) -> None:
    with pytest.raises(ValidationError):
        Policy.model_validate(tomllib.loads(f"[session]\n{text}"))


def test_a_request_of_an_earlier_release_is_read_as_one_of_nobody_in_particular() -> None:
    kind, body = VOCABULARY.read("request", {"manifest": b64(b"{}")})
    state = SessionState(SESSION)
    state.fold(kind, body)
    assert (kind, state.manifest, state.owner) == (REQUEST, b"{}", None)
