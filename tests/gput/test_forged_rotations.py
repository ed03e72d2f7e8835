"""A rotation whose answers another made up: the old key stays until the new one is answered to, is kept all the same, and comes back."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx2
import pytest

from gput.__main__ import main
from shared.attestation.key_rotations import verify_rotation
from shared.crypto.former_keys import former_keys, kept_private
from shared.crypto.signing import PartyKey, fingerprint
from shared.wire.party_keys import SignedRotation
from tests.gput.believed_world import URL, Deliver, House, Wire, commands_reach, problem
from tests.gput.forgery import Forged, Forger, forger

__all__ = ["forger"]

ROTATE = ["party", "rotate-key", "--key", "identity.pem"]
UNKNOWN = {
    "code": "signature-key-unknown",
    "title": "unknown",
    "status": 401,
    "detail": "no party is enrolled under it",
}


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PartyKey:
    monkeypatch.chdir(tmp_path)
    return PartyKey.load_or_generate(tmp_path / "identity.pem")


def signer(request: httpx2.Request) -> str:
    """Fingerprint of the key that signed the request."""
    found = re.search('keyid="([0-9a-f]{64})"', request.headers["signature-input"])
    assert found
    return found[1]


def north(key: str) -> dict[str, Any]:
    return {"name": "north", "role": "holder", "key": key}


class Honest:
    """An orchestrator that knows north by one key at a time, and takes north's own word for another."""

    def __init__(self, key: PartyKey) -> None:
        self.key = key.public

    def __call__(self, request: httpx2.Request) -> tuple[int, Any]:
        if signer(request) != fingerprint(self.key):
            return 401, UNKNOWN
        if request.url.path == "/v1/dry-run/parties/north/key":
            return 200, {"changes": True}
        if request.method == "PUT":
            signed = SignedRotation.model_validate(json.loads(request.content))
            self.key = verify_rotation(signed, party="north", old=self.key).new
        return 200, north(fingerprint(self.key))


def agreeable(request: httpx2.Request) -> tuple[int, Any]:
    """Takes whoever signs for north, and says that all was done."""
    if request.method == "PUT":
        document = json.loads(b64decode(json.loads(request.content)["document"]))
        return 200, north(fingerprint(bytes.fromhex(document["new"])))
    return 200, north(signer(request))


def unaware(request: httpx2.Request) -> tuple[int, Any]:
    """As `agreeable`, but for whoever it is that signs with another key than the first."""
    first = PartyKey.load(Path("identity.pem")).fingerprint
    return agreeable(request) if signer(request) == first else (401, UNKNOWN)


def elsewhere(request: httpx2.Request) -> tuple[int, Any]:
    """Answers for south in the end."""
    status, row = unaware(request)
    return status, row | ({"name": "south"} if request.method == "PUT" else {})


def one_for_all(request: httpx2.Request) -> tuple[int, Any]:
    return 200, north("bb" * 32)


@pytest.mark.parametrize("answer", [one_for_all, elsewhere, unaware])
def test_the_old_key_stays_until_the_new_one_is_answered_to(
    answer: Forged, old: PartyKey, forger: Callable[[Forged], Forger], capsys: pytest.CaptureFixture[str]
) -> None:
    forger(answer)
    before = Path("identity.pem").read_bytes()
    assert main(ROTATE) == 6
    assert "[peer-unintelligible]" in capsys.readouterr().err
    assert Path("identity.pem").read_bytes() == before
    # And the same command does it once the orchestrator itself answers.
    forger(orchestrator := Honest(old))
    assert main(ROTATE) == 0
    assert PartyKey.load(Path("identity.pem")).public == orchestrator.key != old.public


def test_a_new_key_is_not_known_before_anybody_heard_of_it(old: PartyKey, forger: Callable[[Forged], Forger]) -> None:
    signed: list[tuple[str, str]] = []

    def answer(request: httpx2.Request) -> tuple[int, Any]:
        signed.append((request.method, signer(request)))
        return agreeable(request)

    forger(answer)
    assert main(ROTATE) == 0
    change = signed.index(("PUT", old.fingerprint))
    assert {key for _, key in signed[:change]} == {old.fingerprint}
    assert {key for _, key in signed[change + 1 :]} == {PartyKey.load(Path("identity.pem")).fingerprint}


def test_a_rotation_that_another_answered_begins_anew_from_the_key_that_was_kept(
    old: PartyKey, forger: Callable[[Forged], Forger], capsys: pytest.CaptureFixture[str]
) -> None:
    identity = Path("identity.pem")
    forger(agreeable)
    for _ in range(2):  # twice, so that keeping one key alone would not do
        assert main(ROTATE) == 0
    assert "identity.former until you remove it" in capsys.readouterr().err
    lost = PartyKey.load(identity)
    assert {path.stat().st_mode & 0o777 for path in kept_private(identity)} == {0o600}
    forger(orchestrator := Honest(old))
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    assert main([*ROTATE, "--dry-run"]) == 0
    assert "would go on from the kept key" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before
    assert orchestrator.key == old.public
    assert main(ROTATE) == 0
    assert "never reached the orchestrator" in capsys.readouterr().err
    new = PartyKey.load(identity)
    assert new.public == orchestrator.key
    assert new.public not in (old.public, lost.public)
    assert identity.with_suffix(".pub").read_bytes() == new.public_pem
    kept = {PartyKey.load(path).fingerprint for path in kept_private(identity)}
    assert {old.fingerprint, lost.fingerprint} <= kept, "who answers now may be another, too"
    assert old.fingerprint in former_keys(identity)


def test_a_command_that_died_behind_the_new_key_keeps_the_old_one(
    old: PartyKey, forger: Callable[[Forged], Forger], monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = Path("identity.pem")
    forger(Honest(old))
    with monkeypatch.context() as patch:
        patch.setattr("gput.commands.party_keys.replace_whole", Mock(side_effect=KeyboardInterrupt))
        assert main(ROTATE) == 130
    new = PartyKey.load(identity)
    assert main(ROTATE) == 0
    assert PartyKey.load(identity).public == new.public != old.public
    assert not list(Path().glob("*.next.*"))
    assert [PartyKey.load(path).fingerprint for path in kept_private(identity)] == [old.fingerprint]
    assert list(former_keys(identity)) == [old.fingerprint]


class Signing(House):
    """`Honest` that proves itself and signs its answers, but for refusals of keys that it does not know: nothing of those is verified."""

    honest: Honest

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        if signer(request) != fingerprint(self.honest.key):
            return problem(401, "signature-key-unknown", "Not authenticated")
        return super().answer(request)

    def _view(self, request: httpx2.Request) -> httpx2.Response:
        status, row = self.honest(request)
        return httpx2.Response(status, json=row)


@pytest.fixture
def believed(old: PartyKey, monkeypatch: pytest.MonkeyPatch) -> Wire:
    """The way to an orchestrator that knows `old`, and that commands believe after its proof."""
    wire = Wire(house := Signing())
    house.honest = Honest(old)
    commands_reach(monkeypatch, {URL: wire}, house.identity)
    return wire


@pytest.mark.parametrize("arrived", [True, False])
def test_a_rotation_whose_answer_was_lost_is_decided_by_who_the_new_key_is(
    arrived: bool, old: PartyKey, believed: Wire, capsys: pytest.CaptureFixture[str]
) -> None:
    told = 0

    async def hand(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
        nonlocal told
        told += request.method == "PUT"
        if request.method == "PUT" and told == 1 and arrived:
            await deliver(request)
            raise httpx2.ReadError("it broke off behind the change", request=request)
        if request.method == "PUT" and not arrived:
            return problem(401, "signature-key-unknown", "Not authenticated")
        return await deliver(request)

    believed.hand = hand
    before = Path("identity.pem").read_bytes()
    if not arrived:  # who says so is nobody's word, and the new key is nobody's
        assert main(ROTATE) == 4
        assert "[answer-not-signed]" in capsys.readouterr().err
        assert Path("identity.pem").read_bytes() == before
        believed.hand = None
    assert main(ROTATE) == 0
    assert isinstance(house := believed.house, Signing)
    assert PartyKey.load(Path("identity.pem")).public == house.honest.key != old.public
    assert told == (2 if arrived else 1)
