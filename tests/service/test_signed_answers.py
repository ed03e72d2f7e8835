"""Signed answers: the base written out by hand, every one thing changed, and neither signature taken for the other."""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import httpx2
import pytest

from shared.crypto.signing import PartyKey
from shared.errors import NotAuthenticated, VerificationFailed
from shared.service.signature_base import content_digest, signature_field
from shared.service.signatures import RequestParts, SignedAuth, verify_request
from shared.service.signed_answers import ACCEPT_ANSWER, AnswerParts, asks, check_answer, signed_fields, signer_of
from tests.service.service_world import OWNER, FakeClock, known_keys

IDENTITY = PartyKey.generate(random.Random(7).randbytes)
OTHER = PartyKey.generate(random.Random(8).randbytes)
CLOCK = FakeClock()
BODY = b'{"id":"s_1"}'
HEADERS = {"content-type": "application/json", "etag": '"7"', "x-request-id": "req-1"}
WHAT = "orchestrator answered GET /v1/sessions/s_1 with 200"


def request(url: str = "http://orchestrator.test/v1/sessions/s_1") -> httpx2.Request:
    made = httpx2.Request("GET", url)
    SignedAuth(OWNER, CLOCK, random.Random(url).randbytes).sign(made)
    return made


ASKED = request().headers["signature"]


def answer(
    key: PartyKey = IDENTITY, status: int = 200, headers: Mapping[str, str] = HEADERS, body: bytes = BODY,
    asked: str = ASKED,
) -> AnswerParts:  # fmt: skip
    parts = AnswerParts(status, dict(headers), asked)
    added = signed_fields(parts, hashlib.sha256(body).digest(), key=key, created=1_800_000_000)
    return replace(parts, headers={**parts.headers, **added})


def code_of(parts: AnswerParts, body: bytes = BODY, key: PartyKey = IDENTITY) -> str:
    with pytest.raises(VerificationFailed) as found:
        check_answer(parts, body, key=key.public, what=WHAT)
    assert found.value.detail.startswith(WHAT)
    assert found.value.remedy
    return found.value.code


def test_the_base_is_the_one_of_rfc_9421_written_out_by_hand() -> None:
    found = answer()
    digest = base64.b64encode(hashlib.sha256(BODY).digest()).decode()
    covered = '"@status" "content-digest" "content-type" "etag" "signature";req;key="gput"'
    params = f'({covered});created=1800000000;keyid="{IDENTITY.fingerprint}";tag="gput-answer/1"'
    base = (
        '"@status": 200\n'
        f'"content-digest": sha-256=:{digest}:\n'
        '"content-type": application/json\n'
        '"etag": "7"\n'
        f'"signature";req;key="gput": {ASKED.removeprefix("gput=")}\n'
        f'"@signature-params": {params}'
    )
    signature = base64.b64encode(IDENTITY.sign_http(base.encode())).decode()
    assert found.headers["signature-input"] == f"gput-answer={params}"
    assert found.headers["signature"] == f"gput-answer=:{signature}:"
    check_answer(found, BODY, key=IDENTITY.public, what=WHAT)
    assert signer_of(found.headers, WHAT) == IDENTITY.fingerprint


def test_an_answer_without_a_body_has_the_digest_of_none() -> None:
    found = answer(status=204, headers={}, body=b"")
    assert found.headers["content-digest"] == "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"
    check_answer(found, b"", key=IDENTITY.public, what=WHAT)
    assert code_of(found, BODY) == "answer-signature"


def header(name: str, value: str | None) -> Callable[[AnswerParts], AnswerParts]:
    def change(parts: AnswerParts) -> AnswerParts:
        kept = {known: said for known, said in parts.headers.items() if known != name}
        return replace(parts, headers=kept if value is None else {**kept, name: value})

    return change


def stated(old: str, new: str) -> Callable[[AnswerParts], AnswerParts]:
    def change(parts: AnswerParts) -> AnswerParts:
        assert old in parts.headers["signature-input"]
        return header("signature-input", parts.headers["signature-input"].replace(old, new))(parts)

    return change


NOT_SIGNED, WRONG = "answer-not-signed", "answer-signature"
CHANGES: dict[str, tuple[Callable[[AnswerParts], AnswerParts], str]] = {
    "no signature": (header("signature", None), NOT_SIGNED),
    "no input": (header("signature-input", None), NOT_SIGNED),
    "another status": (lambda parts: replace(parts, status=404), WRONG),
    "another type": (header("content-type", "text/event-stream"), WRONG),
    "no type": (header("content-type", None), WRONG),
    "another version": (header("etag", '"8"'), WRONG),
    "a place to go to": (header("location", "http://elsewhere.test"), WRONG),
    "a time to wait": (header("retry-after", "600000"), WRONG),
    "another digest": (header("content-digest", content_digest(bytes(32))), WRONG),
    "no digest": (header("content-digest", None), WRONG),
    "two digests": (header("content-digest", f"{content_digest(bytes(32))}, {content_digest(bytes(32))}"), WRONG),
    "another request": (lambda parts: replace(parts, asked=request("http://orchestrator.test/v1/x").headers["signature"]), WRONG),
    "signature of nothing": (header("signature", signature_field("gput-answer", bytes(64))), WRONG),
    "signature under another label": (header("signature", signature_field("gput", bytes(64))), WRONG),
    "signature not base64": (header("signature", "gput-answer=:!!:"), WRONG),
    "digest not covered": (stated(' "content-digest"', ""), WRONG),
    "status not covered": (stated('"@status" ', ""), WRONG),
    "request not covered": (stated(' "signature";req;key="gput"', ""), WRONG),
    "another order": (stated('"@status" "content-digest"', '"content-digest" "@status"'), WRONG),
    "a request's tag": (stated('tag="gput-answer/1"', 'tag="gput/1"'), WRONG),
    "a later tag": (stated('tag="gput-answer/1"', 'tag="gput-answer/2"'), WRONG),
    "another time": (stated("created=1800000000", "created=1800000001"), WRONG),
    "another's name": (stated(IDENTITY.fingerprint, OTHER.fingerprint), WRONG),
    "one more parameter": (stated(";created", ";expires=1900000000;created"), WRONG),
    "two signatures": (lambda parts: header("signature-input", f"{parts.headers['signature-input']}, x=()")(parts), WRONG),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_one_thing_changed_is_refused(name: str) -> None:
    change, code = CHANGES[name]
    assert code_of(change(answer())) == code


def test_another_body_or_another_key_is_refused() -> None:
    assert code_of(answer(), BODY + b" ") == WRONG
    assert code_of(answer(OTHER)) == WRONG
    renamed = answer(OTHER).headers["signature-input"].replace(OTHER.fingerprint, IDENTITY.fingerprint)
    assert code_of(header("signature-input", renamed)(answer(OTHER))) == WRONG


class Window:
    """Remembers nothing."""

    window_s = 60.0

    async def remember(self, fingerprint: str, nonce: bytes, created: int) -> None:
        return None


@pytest.mark.parametrize("disguise", ["as it is", "relabelled", "retagged"])
async def test_an_answers_signature_is_no_requests(disguise: str) -> None:
    """Also of a key that is enrolled, and whatever it is called by."""
    fields = answer(OWNER, headers={}).headers
    stated, signature = fields["signature-input"], fields["signature"]
    if disguise != "as it is":
        stated, signature = stated.replace("gput-answer=", "gput=", 1), signature.replace("gput-answer=", "gput=", 1)
    if disguise == "retagged":
        nonce = base64.b64encode(bytes(16)).decode()
        stated = f'gput=("@method" "@target-uri");created=1800000000;nonce="{nonce}";keyid="{OWNER.fingerprint}";tag="gput/1"'
    parts = RequestParts("GET", "http://service.test/v1/x", {"signature-input": stated, "signature": signature})
    with pytest.raises(NotAuthenticated) as found:
        await verify_request(parts, b"", keys=known_keys, now=CLOCK(), replay=Window())
    assert found.value.code == ("signature-invalid" if disguise == "retagged" else "signature-malformed")


def test_a_requests_signature_is_no_answers() -> None:
    """Also of the identity itself, which signs what it asks of the platform."""
    asked = httpx2.Request("GET", "http://platform.test/v1/gpus")
    SignedAuth(IDENTITY, CLOCK, random.Random(1).randbytes).sign(asked)
    own = {name: asked.headers[name] for name in ("signature-input", "signature")}
    relabelled = {name: value.replace("gput=", "gput-answer=", 1) for name, value in own.items()}
    for fields in (own, relabelled, {**answer().headers, "signature": relabelled["signature"]}):
        digest = content_digest(hashlib.sha256(BODY).digest())
        assert code_of(AnswerParts(200, {"content-digest": digest, **fields}, ASKED)) == WRONG


def test_what_asks_for_an_answers_signature() -> None:
    assert asks(ACCEPT_ANSWER.encode())
    assert asks(b'mine=("@status");tag="gput-answer/1";created, other=()')
    for other in ("", "gput-answer", ACCEPT_ANSWER.replace("gput-answer/1", "gput/1")):
        assert not asks(other.encode())


def test_every_field_that_somebody_acts_on_is_covered_in_one_order_whatever_order_it_came_in() -> None:
    """A field's value is without the blanks around it (RFC 9421 section 2.1)."""
    digest = content_digest(hashlib.sha256(BODY).digest())
    came = {"retry-after": " 7", "location": "/v1/x", "x-other": "x", "etag": '"7"\t', "content-type": "text/html"}
    found = answer(headers=came)
    covered = '"@status" "content-digest" "content-type" "etag" "location" "retry-after" "signature";req;key="gput"'
    params = f'({covered});created=1800000000;keyid="{IDENTITY.fingerprint}";tag="gput-answer/1"'
    base = (
        f'"@status": 200\n"content-digest": {digest}\n"content-type": text/html\n"etag": "7"\n"location": /v1/x\n"retry-after": 7\n'
        f'"signature";req;key="gput": {ASKED.removeprefix("gput=")}\n"@signature-params": {params}'
    )
    assert found.headers["signature"] == signature_field("gput-answer", IDENTITY.sign_http(base.encode()))
    check_answer(found, BODY, key=IDENTITY.public, what=WHAT)
    trimmed = {name: value.strip() for name, value in found.headers.items()}
    check_answer(replace(found, headers=trimmed), BODY, key=IDENTITY.public, what=WHAT)


def test_what_is_wrong_is_told_with_what_should_be() -> None:
    covered = '"@status" "content-digest" "content-type" "etag" "signature";req;key="gput"'
    wrong = {
        (IDENTITY.fingerprint, OTHER.fingerprint): (answer(OTHER), BODY),
        (covered, covered.replace(' "etag"', "")): (stated(' "etag"', "")(answer()), BODY),
        (hashlib.sha256(BODY).hexdigest(), hashlib.sha256(b"x").hexdigest()): (answer(), b"x"),
    }
    for said, (parts, body) in wrong.items():
        with pytest.raises(VerificationFailed) as found:
            check_answer(parts, body, key=IDENTITY.public, what=WHAT)
        assert (found.value.expected, found.value.got) == said


def test_an_answer_s_signature_is_asked_for_in_these_words() -> None:
    """Which clients of other releases and other makers write as well (docs/formats.md)."""
    assert ACCEPT_ANSWER == (
        'gput-answer=("@status" "content-digest" "content-type" "signature";req;key="gput");created;tag="gput-answer/1"'
    )
