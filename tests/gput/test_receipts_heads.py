"""Heads that holders remember are held against the saved log: a second history shown to somebody is found and named, offline."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from gput.__main__ import main
from gput.approvals import signed_for
from gput.receipt_folder import APPROVALS, LEAVES, read_lines, read_session
from gput.receipt_heads import Seen, check_memories, check_seen
from gput.receipt_known import SignedFor
from gput.receipts import verify
from shared.attestation.head_statements import sign_head_statement
from shared.canonical import sha256
from shared.crypto.signing import PartyKey
from shared.errors import BadRequest, VerificationFailed
from shared.protocol.merkle import leaf_hash, root
from tests.gput.gput_samples import Saved
from tests.world.world_material import Material

CHALLENGE = "c4" * 32
HASHES = [leaf_hash(bytes([n])) for n in range(7)]
AT = 5


@pytest.fixture
def book(saved: Saved) -> SignedFor:
    """Of a session that one holder's word is enough for."""
    found = signed_for(read_session(saved.folder), read_lines(saved.folder, APPROVALS))
    return dataclasses.replace(found, manifest=found.manifest.model_copy(update={"quorum": 1}))


def event(book: SignedFor, key: PartyKey, **changes: Any) -> dict[int, Any]:
    """A restart's leaf, number 5, in which city vouches for the four leaves that it remembers."""
    options: dict[str, Any] = {
        "session": book.session, "holder": "city", "challenge": CHALLENGE, "size": 4, "root": root(HASHES[:4]),
        "receipt": HASHES[2],
    }  # fmt: skip
    signed = sign_head_statement(key, **(options | changes))
    statement = {"holder": "city", "document": signed.document, "signature": signed.signature}
    details = {"challenge": CHALLENGE, "statements": [statement]}
    return {AT: ["gput/log-event/1", book.session, "heads_confirmed", details], 6: ["x", book.session, "restored", {}]}


def test_a_memory_of_this_very_log_counts(book: SignedFor, gput_material: Material) -> None:
    key = gput_material.keys["city"]
    assert check_memories(event(book, key), HASHES, book, LEAVES) == 1
    assert check_memories(event(book, key, size=0, root=sha256(b""), receipt=None), HASHES, book, LEAVES) == 1
    assert check_memories(event(book, key, size=AT, root=root(HASHES[:AT])), HASHES, book, LEAVES) == 1


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"root": root(HASHES[1:5])}, "log-split-view"),
        ({"size": AT + 1, "root": root(HASHES[: AT + 1])}, "log-rolled-back"),
        ({"receipt": HASHES[AT]}, "log-rolled-back"),
        ({"challenge": "c5" * 32}, "head-challenge"),
        ({"session": "s_aaaaaaaaaaaaaaaa"}, "head-session"),
        ({"holder": "north"}, "head-holder"),
    ],
)
def test_another_memory_is_named_by_its_leaf(
    book: SignedFor, gput_material: Material, changes: dict[str, Any], code: str
) -> None:
    with pytest.raises(VerificationFailed, match=rf"^leaves\.jsonl: leaf {AT}: ") as refused:
        check_memories(event(book, gput_material.keys["city"], **changes), HASHES, book, LEAVES)
    assert refused.value.code == code


def test_only_the_holders_own_word_counts(book: SignedFor, gput_material: Material) -> None:
    with pytest.raises(VerificationFailed, match=f"leaf {AT}: ") as refused:
        check_memories(event(book, gput_material.keys["north"]), HASHES, book, LEAVES)
    assert refused.value.code == "bad-signature"
    without = dataclasses.replace(book, keys={})
    with pytest.raises(VerificationFailed, match="city never approved"):
        check_memories(event(book, gput_material.keys["city"]), HASHES, without, LEAVES)


def confirmed(book: SignedFor, material: Material, *holders: str, challenge: str = CHALLENGE) -> list[Any]:
    """A restart's leaf, in which these holders vouch for the first four leaves."""
    said = []
    for holder in holders:
        options: dict[str, Any] = {"session": book.session, "holder": holder, "size": 4, "root": root(HASHES[:4])}
        signed = sign_head_statement(material.keys[holder], challenge=challenge, receipt=None, **options)
        said.append({"holder": holder, "document": signed.document, "signature": signed.signature})
    return ["gput/log-event/1", book.session, "heads_confirmed", {"challenge": challenge, "statements": said}]


@pytest.mark.parametrize(
    ("holders", "enough"), [((), 0), (("city",), 1), (("city", "city"), 1), (("city", "north"), 2)]
)
def test_a_quorum_vouches_for_every_restart(
    book: SignedFor, gput_material: Material, holders: tuple[str, ...], enough: int
) -> None:
    for quorum in (1, 2, None):
        asked = dataclasses.replace(book, manifest=book.manifest.model_copy(update={"quorum": quorum}))
        events = {AT: confirmed(book, gput_material, *holders)}
        if enough >= asked.quorum:
            assert check_memories(events, HASHES, asked, LEAVES) == len(holders)
            continue
        with pytest.raises(VerificationFailed, match=f"leaf {AT}: too few holders vouched") as caught:
            check_memories(events, HASHES, asked, LEAVES)
        assert (caught.value.code, caught.value.got) == ("quorum-lost", str(enough))


def test_each_restart_is_vouched_for_anew(book: SignedFor, gput_material: Material) -> None:
    first, again = (confirmed(book, gput_material, *holders) for holders in (("city",), ("city", "north")))
    anew = confirmed(book, gput_material, "city", challenge="c5" * 32)
    assert check_memories({4: first, 6: anew}, HASHES, book, LEAVES) == 2
    # A start that could not know whether its leaf was kept writes it once more, before anything else happens.
    assert check_memories({4: first, 5: again, 6: anew}, HASHES, book, LEAVES) == 4
    for later in ({6: first}, {5: ["gput/log-event/1", book.session, "recalled", {}], 6: again}, {5: anew, 6: first}):
        with pytest.raises(VerificationFailed, match="leaf 6: the statements of an earlier restart") as caught:
            check_memories({4: first, **later}, HASHES, book, LEAVES)
        assert caught.value.code == "head-challenge"


def test_a_head_that_somebody_was_shown(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    found = verify(saved.folder)
    good, forked = f"{found.leaves}:{found.root}", f"{found.leaves}:{'ab' * 32}"
    verify(saved.folder, [Seen.parse(good), Seen(0, sha256(b""))])
    assert main(["receipts", "verify", str(saved.folder), "--head", good, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["root"] == found.root
    assert main(["receipts", "verify", str(saved.folder), "--head", good, "--head", forked]) == 4
    assert "two histories" in capsys.readouterr().err
    newer = f"{found.leaves + 1}:{found.root}"
    assert main(["receipts", "verify", str(saved.folder), "--head", newer]) == 4
    assert "leaves are missing" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "7", "7:ab", "-1:" + "ab" * 32, "x:" + "ab" * 32, "1:" + "zz" * 32])
def test_what_is_no_head_is_said(text: str) -> None:
    with pytest.raises(BadRequest, match="is not a log head"):
        Seen.parse(text)


def test_a_prefix_is_the_log_it_grew_from() -> None:
    for size in range(len(HASHES) + 1):
        check_seen(HASHES, Seen(size, root(HASHES[:size])), "somebody saw")
