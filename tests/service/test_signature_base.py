"""The texts of RFC 9421 and RFC 9530 that both sides sign, letter by letter, and every other form that is read as none. Knows no key."""

from __future__ import annotations

import hashlib

import pytest

from shared.service.signature_base import (
    content_digest,
    digest_in,
    signature_base,
    signature_field,
    signature_in,
    unbase64,
)

ZEROS = "A" * 86 + "=="
EMPTY = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
DIGEST = hashlib.sha256(b"").digest()


def test_the_base_has_its_components_in_the_order_given_and_the_parameters_last() -> None:
    components = [('"etag"', '"7"'), ('"@status"', "200"), ('"signature";req;key="gput"', ":x:")]
    assert signature_base(components, '("etag");created=1') == (
        b'"etag": "7"\n"@status": 200\n"signature";req;key="gput": :x:\n"@signature-params": ("etag");created=1'
    )
    assert signature_base((), "()") == b'"@signature-params": ()'


def test_a_signature_and_a_digest_are_written_and_read_back() -> None:
    assert signature_field("gput-answer", bytes(64)) == f"gput-answer=:{ZEROS}:"
    assert signature_in(f"gput-answer=:{ZEROS}:", "gput-answer") == bytes(64)
    assert content_digest(DIGEST) == f"sha-256=:{EMPTY}:"
    assert digest_in(f"sha-256=:{EMPTY}:") == DIGEST


@pytest.mark.parametrize("field", [
    "", f"gput=:{ZEROS}:", f"gput-answers=:{ZEROS}:", f"=:{ZEROS}:", f"gput-answer={ZEROS}", f" gput-answer=:{ZEROS}:",
    f"gput-answer=:{ZEROS}: ", f"gput-answer=:{ZEROS}:, gput=:{ZEROS}:", f"gput=:{ZEROS}:, gput-answer=:{ZEROS}:",
    f"gput-answer=:{ZEROS[1:]}:", f"gput-answer=:A{ZEROS}:", f"gput-answer=:AAAA{ZEROS}:", f"gput-answer=:{ZEROS[:-4]}:",
    f"gput-answer=:{'=' * 88}:", f"gput-answer=:{'A' * 85}===:", f"gput-answer=:{'A' * 87}!:", f"gput-answer=:{'-' * 86}==:",
])  # fmt: skip
def test_a_field_of_another_form_or_under_another_label_has_no_signature(field: str) -> None:
    assert signature_in(field, "gput-answer") is None


@pytest.mark.parametrize("field", [
    "", EMPTY, f"sha-256={EMPTY}", f"sha-512=:{EMPTY}:", f" sha-256=:{EMPTY}:", f"sha-256=:{EMPTY}: ",
    f"sha-256=:{EMPTY}:, sha-256=:{EMPTY}:", f"sha-256=:{EMPTY[1:]}:", f"sha-256=:AAAA{EMPTY}:", f"sha-256=:{'=' * 44}:",
])  # fmt: skip
def test_a_field_of_another_form_has_no_digest(field: str) -> None:
    assert digest_in(field) is None


@pytest.mark.parametrize("text", ["A", "AA", "AA=A", "AA==!", "A A==", "=", "===="])
def test_what_is_no_base64_has_no_bytes(text: str) -> None:
    assert unbase64(text) is None


def test_base64_is_read_as_it_is_written() -> None:
    assert [unbase64(text) for text in ("", "AA==", "AAAA")] == [b"", b"\0", b"\0\0\0"]
