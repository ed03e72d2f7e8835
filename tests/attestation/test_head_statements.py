"""A holder's word on the log head it remembers: believed from its own key, about this session, to this start, and from nobody else."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from shared.attestation.head_statements import LABEL, VerifiedHeadStatement, sign_head_statement, verify_head_statement
from shared.canonical import json_bytes, json_value
from shared.crypto.signing import PartyKey
from shared.errors import BadRequest, VerificationFailed
from shared.wire.visit import HeadStatement, Signed

KEY, ROOT, RECEIPT = PartyKey.generate(lambda n: b"\x01" * n), b"\x5f" * 32, b"\xa7" * 32
ASKED: dict[str, Any] = {"session": "s_aaaaaaaaaaaaaaaa", "holder": "north", "challenge": "c1" * 32}


def sign(key: PartyKey = KEY, **changes: Any) -> Signed:
    return sign_head_statement(key, **{**ASKED, "size": 4, "root": ROOT, "receipt": RECEIPT, **changes})


def verify(signed: Signed, **changes: Any) -> VerifiedHeadStatement:
    return verify_head_statement(signed, **{"key": KEY.public, **ASKED, **changes})


def test_size_and_root_come_back_with_the_signed_bytes() -> None:
    signed = sign()
    stated = verify(signed)
    assert (stated.holder, stated.size, stated.root, stated.receipt) == ("north", 4, ROOT, RECEIPT)
    assert stated.signed == signed
    assert verify(sign(receipt=None)).receipt is None


def test_the_signed_bytes_are_canonical_json_under_a_label_of_their_own() -> None:
    """Fixed once: somebody else's verifier must find the same bytes."""
    signed = sign()
    document = base64.b64decode(signed.document)
    assert document == (
        b'{"challenge":"' + b"c1" * 32 + b'","holder":"north","profile":"gput/head-statement/1","receipt":"' + b"a7" * 32
        + b'","root":"' + b"5f" * 32 + b'","session":"s_aaaaaaaaaaaaaaaa","size":4}'
    )  # fmt: skip
    assert base64.b64decode(signed.signature) == KEY.sign("gput/head-statement", document)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"challenge": "c2" * 32}, "head-challenge"),  # a statement of an earlier start, played back
        ({"session": "s_bbbbbbbbbbbbbbbb"}, "head-session"),
        ({"holder": "south"}, "head-holder"),
        ({"key": PartyKey.generate().public}, "bad-signature"),
    ],
)
def test_a_statement_for_something_else_is_refused(asked: dict[str, Any], code: str) -> None:
    with pytest.raises(VerificationFailed) as caught:
        verify(sign(), **asked)
    assert caught.value.code == code


@pytest.mark.parametrize("changes", [{"size": 3}, {"root": "00" * 32}, {"receipt": None}, {"challenge": "c3" * 32}])
def test_a_statement_changed_after_signing_is_refused(changes: dict[str, Any]) -> None:
    signed = sign()
    document = json_bytes({**json_value(base64.b64decode(signed.document)), **changes})
    forged = Signed(document=base64.b64encode(document).decode(), signature=signed.signature)
    with pytest.raises(VerificationFailed) as caught:
        verify(forged)
    assert caught.value.code == "bad-signature"


@pytest.mark.parametrize("label", ["gput/approval", "gput/tree-head", "gput/one-time-key"])
def test_a_signature_under_another_label_is_refused(label: str) -> None:
    document = base64.b64decode(sign().document)
    signature = base64.b64encode(KEY.sign(label, document)).decode()
    with pytest.raises(VerificationFailed):
        verify(Signed(document=base64.b64encode(document).decode(), signature=signature))


@pytest.mark.parametrize("document", [b"[]", b'{"session":1}', json_bytes({**ASKED, "size": -1, "root": "5f" * 32})])
def test_other_documents_of_the_same_key_are_malformed(document: bytes) -> None:
    signature = base64.b64encode(KEY.sign(LABEL, document)).decode()
    with pytest.raises(BadRequest) as caught:
        verify(Signed(document=base64.b64encode(document).decode(), signature=signature))
    assert caught.value.code == "malformed-head-statement"


def test_only_verification_makes_a_verified_statement() -> None:
    with pytest.raises(TypeError):
        VerifiedHeadStatement("north", 4, ROOT, None, sign())
    assert HeadStatement(**ASKED, size=0, root="5f" * 32).profile == "gput/head-statement/1"
