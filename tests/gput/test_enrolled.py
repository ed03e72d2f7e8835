"""A holder whose key was revoked is in no roster that a command writes; asked for by name, it is told apart from one that never was."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gput.__main__ import main
from gput.enrolled import chosen_holders, not_enrolled
from shared.attestation.owners import LABEL
from shared.canonical import sha256
from shared.crypto.signing import PartyKey
from shared.errors import BadRequest
from tests.gput.forgery import Forged, Forger, forger
from tests.world.world_material import Material

__all__ = ["forger"]

SESSION = "s_aaaaaaaaaaaaaaaa"
KEYS = {name: digit * 64 for name, digit in (("city", "1"), ("north", "2"), ("valley", "3"))}
PARTIES = [
    {"name": name, "role": "holder", "key": key, "key_valid_until": 7.0 if name == "valley" else None}
    for name, key in KEYS.items()
] + [{"name": "watch", "role": "auditor", "key": "4" * 64, "key_valid_until": None}]


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gput_material: Material) -> PartyKey:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUT_KEY", "owner.pem")
    (tmp_path / "p.gput").write_bytes(gput_material.archive)
    key = PartyKey.generate()
    key.save(tmp_path / "owner.pem")
    return key


def listing(**answers: Any) -> Forged:
    known = {"/v1/parties": {"items": PARTIES, "next": None}} | answers
    return lambda request: (200, known.get(request.url.path, {}))


def test_a_draft_is_over_holders_whose_keys_count(
    owner: PartyKey, forger: Callable[[Forged], Forger], capsys: pytest.CaptureFixture[str]
) -> None:
    forger(listing())
    assert main(["session", "draft", "p.gput", "--emulated"]) == 0
    told = capsys.readouterr()
    assert [one["holder"] for one in json.loads(told.out)["roster"]] == ["city", "north"]
    assert ("no step's" in told.err) == (json.loads(told.out)["training"]["batch_size"] < 16)


@pytest.mark.parametrize("words", [
    "session draft p.gput --holder valley", "session draft p.gput --holder valley --holder nobody",
    "smoke p.gput --trust . --holder valley",
])  # fmt: skip
def test_one_that_was_revoked_is_told_by_name(
    words: str, owner: PartyKey, forger: Callable[[Forged], Forger], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = forger(listing())
    assert main(words.split()) == 2
    said = capsys.readouterr().err
    assert "whose key was revoked: valley" in said
    assert "gput party replace-key" in said
    assert ("not enrolled as holders: nobody" in said) == ("nobody" in words)
    assert asked.told == []


def test_a_smoke_test_goes_on_without_one_that_was_revoked(
    owner: PartyKey, forger: Callable[[Forged], Forger], capsys: pytest.CaptureFixture[str]
) -> None:
    rosters = []

    def answer(request: httpx2.Request) -> tuple[int, Any]:
        if (request.method, request.url.path) == ("POST", "/v1/sessions"):
            rosters.append(request.content)
            return 409, {"code": "refused-here", "title": "no", "status": 409, "detail": "that is all"}
        return listing()(request)

    forger(answer)
    assert main(["smoke", "p.gput", "--trust", ".", "--emulated"]) == 1, capsys.readouterr().err
    [sent] = rosters
    document = json.loads(b64decode(json.loads(sent)["document"]))
    assert [one["holder"] for one in document["roster"]] == ["city", "north"]


def test_a_successor_is_not_written_over_one_that_was_revoked(
    owner: PartyKey, gput_material: Material, forger: Callable[[Forged], Forger], capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = gput_material.manifest()
    document = manifest.canonical()
    said = {
        "session": SESSION, "manifest": sha256(document).hex(), "model": "ab" * 32, "optimiser": "cd" * 32, "step": 1, "log_size": 3,
        "log_root": "ef" * 32, "contributors": [{"holder": one.holder, "key": one.key, "records": 0} for one in manifest.roster],
    }  # fmt: skip
    signed = {
        "document": b64encode(document).decode(),
        "signature": b64encode(owner.sign(LABEL, document)).decode(),
    }
    parties = [
        {"name": one.holder, "role": "holder", "key": one.key, "key_valid_until": None} for one in manifest.roster
    ]
    parties.append(PARTIES[2])
    asked = forger(
        listing(**{
            f"/v1/sessions/{SESSION}/continuation": said, f"/v1/sessions/{SESSION}/manifest": signed,
            "/v1/parties": {"items": parties, "next": None},
        })
    )  # fmt: skip
    gone = manifest.roster[0].holder
    assert main(["session", "succeed", SESSION, "--replace", f"{gone}=valley", "-o", "next.json"]) == 2
    assert "whose key was revoked: valley" in capsys.readouterr().err
    assert not Path("next.json").exists()
    assert asked.told == []


@pytest.mark.parametrize(
    ("parties", "says"), [([], "no holder is enrolled"), ([PARTIES[2]], "revoked: valley")], ids=["none", "one"]
)
def test_where_no_holder_is_left_it_says_why(parties: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        chosen_holders((), parties)
    assert chosen_holders(("north",), PARTIES) == {"north": KEYS["north"]}


ENROL = "Enrol a holder's public key: `gput party enrol NAME KEY.pub`."
REPLACE = "Where a key was revoked, confirm its new one: `gput party replace-key NAME KEY.pub`."


@pytest.mark.parametrize(("names", "revoked", "otherwise", "says", "remedy"), [
    (("b", "a"), (), "", "not enrolled as holders: a, b", ENROL),
    (("a",), ("b",), "", "not enrolled as holders: a", ENROL),
    (("c", "b"), ("b", "c", "d"), "", "whose key was revoked: b, c", REPLACE),
    (("d", "b", "a"), ("b",), "Or ask.", "not enrolled as holders: a, d; whose key was revoked: b", f"{ENROL} {REPLACE} Or ask."),
    ((), ("b",), "", "no holder is enrolled", ENROL), ((), (), "Or ask.", "no holder is enrolled", f"{ENROL} Or ask."),
])  # fmt: skip
def test_each_remedy_is_told_of_whom_it_helps(
    names: tuple[str, ...], revoked: tuple[str, ...], otherwise: str, says: str, remedy: str
) -> None:
    found = not_enrolled(names, revoked, otherwise)
    assert (found.code, found.detail, found.remedy) == ("party-not-enrolled", says, remedy)


def test_only_a_holder_s_key_that_nobody_revoked_counts() -> None:
    """In the order asked for, else by name; one that was revoked at time 0 was, and a release before says of none that it was."""
    parties = [
        {"name": "north", "role": "holder", "key": KEYS["north"]}, PARTIES[0], PARTIES[2] | {"key_valid_until": 0.0},
        PARTIES[3] | {"key_valid_until": 7.0},
    ]  # fmt: skip
    assert list(chosen_holders((), parties).items()) == [("city", KEYS["city"]), ("north", KEYS["north"])]
    assert list(chosen_holders(("north", "city"), parties)) == ["north", "city"]
    for names, says in ((("watch",), "not enrolled as holders: watch"), (("valley",), "whose key was revoked: valley")):
        with pytest.raises(BadRequest) as found:
            chosen_holders(names, parties)
        assert found.value.detail == says
