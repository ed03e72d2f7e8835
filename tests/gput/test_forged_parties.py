"""An owner signs for the party that was typed: an answer about another party, or with another key, leads to no signed request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gput.__main__ import main
from gput.client import UNATTESTED, AsyncClient
from shared.crypto.signing import PartyKey
from shared.errors import Unavailable
from tests.gput.forgery import ORCHESTRATOR, Forged, Forger, forger

__all__ = ["forger"]

THEIRS, OTHERS = "aa" * 32, "bb" * 32
COMMANDS = ["revoke-key north --yes", "replace-key north north.pub --yes"]


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PartyKey:
    """An owner's, and the new one of a party."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUT_KEY", "owner.pem")
    PartyKey.generate().save(tmp_path / "owner.pem")
    new = PartyKey.generate()
    (tmp_path / "north.pub").write_bytes(new.public_pem)
    return new


def row(name: str, key: str) -> Forged:
    return lambda request: (200, {"name": name, "role": "holder", "key": key})


@pytest.mark.parametrize("name", ["south", "", "../parties/south", "North"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_key_is_changed_of_the_party_that_was_named(
    command: str, name: str, forger: Callable[[Forged], Forger], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = forger(row(name, OTHERS))
    assert main(["party", *command.split()]) == 6
    assert "[peer-unintelligible]" in capsys.readouterr().err
    assert asked.heard == ["GET /v1/parties/north"]


@pytest.mark.parametrize(("command", "option"), [(COMMANDS[0], "--fingerprint"), (COMMANDS[1], "--replaces")])
def test_a_key_is_the_one_that_was_named(
    command: str, option: str, keys: PartyKey, forger: Callable[[Forged], Forger], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = forger(row("north", OTHERS))
    assert main(["party", *command.split(), option, THEIRS]) == 1
    said = capsys.readouterr().err
    assert "[key-mismatch]" in said
    assert THEIRS in said
    assert OTHERS in said
    assert asked.told == []
    answers = iter([THEIRS, keys.fingerprint if command.startswith("replace") else THEIRS])
    asked = forger(lambda request: row("north", next(answers))(request))
    assert main(["party", *command.split(), option, THEIRS]) == 0
    said = capsys.readouterr().err
    assert f"north's key {THEIRS}" in said
    assert len(asked.told) == 1


@pytest.mark.parametrize("answer", [("south", THEIRS), ("north", OTHERS)], ids=str)
async def test_what_is_answered_of_another_is_not_taken_for_done(
    answer: tuple[str, str], keys: PartyKey, forger: Callable[[Forged], Forger]
) -> None:
    asked = forger(row(*answer))
    calls = (
        lambda client: client.revoke_key("north", THEIRS),
        lambda client: client.replace_key("north", keys.public, THEIRS),
        lambda client: client.enrol("north", keys.public),
        lambda client: client.parties.enrol("north", keys.public),
        lambda client: client.whoami(),
    )
    async with AsyncClient(ORCHESTRATOR, PartyKey.generate(), trust=UNATTESTED, peers=asked.peers()) as client:
        for call in calls:
            with pytest.raises(Unavailable) as told:
                await call(client)
            assert told.value.code == "peer-unintelligible"
