"""Signed requests and answers as docs/formats.md words them: what the product signs, and what another implementation signs for it."""

from __future__ import annotations

import base64
import hashlib
import re

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import NotAuthenticated
from shared.names import Role
from shared.service.signatures import KnownKey, RequestParts, SignedAuth, verify_request
from shared.service.signed_answers import AnswerParts, check_answer, signed_fields
from tests.conformance.independent import page_signed
from tests.conformance.independent.test_page import part
from tests.orchestrator.orchestrator_samples import key

NOW = 1_800_000_000
OWNER = key(21)
PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes([21]) * 32)
URLS = st.sampled_from(
    ["https://host.test/v1/sessions", "http://host.test:8080/v1/inbox?after=3&wait=25", "https://h/a%20b?c"]
)
METHODS = st.sampled_from(["GET", "POST", "PUT", "DELETE"])
KEYS = st.one_of(st.none(), st.text("abcXYZ0189-_", min_size=1, max_size=20))


class Memory:
    """Nonces of one test."""

    window_s = 60.0

    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes, int]] = []

    async def remember(self, fingerprint: str, nonce: bytes, created: int) -> None:
        self.seen.append((fingerprint, nonce, created))


async def known(fingerprint: str) -> KnownKey | None:
    return KnownKey(OWNER.public, "owner", frozenset({Role.OWNER})) if fingerprint == OWNER.fingerprint else None


def headers_of(
    method: str, target: str, body: bytes, idempotency: str | None, nonce: bytes = bytes(16), backwards: bool = False, at: int = NOW
) -> dict[str, str]:  # fmt: skip
    """A request's fields, signed by the page's rule."""
    extra = {"content-digest": page_signed.body_digest(body)} if body else {}
    extra |= {"idempotency-key": idempotency} if idempotency is not None else {}
    covered = [("@method", method), ("@target-uri", target), *extra.items()]
    covered = covered[::-1] if backwards else covered
    names = [name for name, _ in covered]
    parameters = page_signed.http_parameters(names, at, nonce, page_signed.fingerprint(OWNER.public))
    signature = PRIVATE.sign(page_signed.http_base(covered, parameters))
    return {**extra, "signature-input": f"gput={parameters}", "signature": f"gput=:{page_signed.b64(signature)}:"}


@given(METHODS, URLS, st.binary(max_size=50), KEYS, st.binary(min_size=16, max_size=16))
def test_the_product_signs_as_the_page_says(
    method: str, url: str, body: bytes, idempotency: str | None, nonce: bytes
) -> None:
    auth = SignedAuth(OWNER, lambda: NOW + 0.9, lambda count: nonce[:count])
    stated = {} if idempotency is None else {"idempotency-key": idempotency}
    made = auth.fields(method, httpx2.URL(url), stated, body)
    assert made | stated == headers_of(method, url, body, idempotency, nonce)


@pytest.mark.parametrize("backwards", [False, True], ids=["in order", "backwards"])
@pytest.mark.parametrize(("body", "idempotency"), [(b"", None), (b"{}", None), (b"{}", "k1"), (b"", "k1")])
@pytest.mark.parametrize("nonce", [bytes(16), bytes(range(64))], ids=["16", "64"])
async def test_the_product_takes_what_the_page_says(
    body: bytes, idempotency: str | None, nonce: bytes, backwards: bool
) -> None:
    target, memory = "https://host.test/v1/sessions?a=b", Memory()
    headers = headers_of("POST", target, body, idempotency, nonce, backwards)
    parts = RequestParts("POST", target, headers)
    caller = await verify_request(parts, body, keys=known, now=NOW, replay=memory)
    assert (caller.name, memory.seen) == ("owner", [(OWNER.fingerprint, nonce, NOW)])


@pytest.mark.parametrize(
    ("nonce", "at", "code"),
    [(bytes(15), NOW, "signature-malformed"), (bytes(65), NOW, "signature-malformed"), (bytes(16), NOW - 61, "signature-stale"),
     (bytes(16), NOW + 61, "signature-stale")],
    ids=["short nonce", "long nonce", "old", "ahead"],
)  # fmt: skip
async def test_limits_are_the_pages(nonce: bytes, at: int, code: str) -> None:
    headers = headers_of("GET", "https://host.test/v1/inbox", b"", None, nonce, at=at)
    parts = RequestParts("GET", "https://host.test/v1/inbox", headers)
    with pytest.raises(NotAuthenticated) as caught:
        await verify_request(parts, b"", keys=known, now=NOW, replay=Memory())
    assert caught.value.code == code


async def test_several_lines_of_one_header_are_joined_and_blanks_around_it_are_none() -> None:
    headers = headers_of("GET", "https://host.test/", b"", "k1, k2") | {"idempotency-key": "  k1, k2 "}
    caller = await verify_request(
        RequestParts("GET", "https://host.test/", headers), b"", keys=known, now=NOW, replay=Memory()
    )
    assert caller.fingerprint == page_signed.fingerprint(OWNER.public)


STATED = st.fixed_dictionaries(
    {},
    optional={
        name: st.text('abc/;="0', min_size=1, max_size=9)
        for name in ("content-type", "etag", "location", "retry-after", "x-request-id")
    },
)
ASKED = st.binary(min_size=64, max_size=64).map(lambda signature: f"gput=:{page_signed.b64(signature)}:")


@given(st.integers(200, 599), STATED, st.binary(max_size=50), ASKED)
def test_the_product_signs_answers_as_the_page_says_and_takes_such(
    status: int, stated: dict[str, str], body: bytes, asked: str
) -> None:
    parameters, base = page_signed.answer_base(status, stated, body, asked, NOW, page_signed.fingerprint(OWNER.public))
    made = {
        "content-digest": page_signed.body_digest(body), "signature-input": f"gput-answer={parameters}",
        "signature": f"gput-answer=:{page_signed.b64(PRIVATE.sign(base))}:",
    }  # fmt: skip
    digest = hashlib.sha256(body).digest()
    assert signed_fields(AnswerParts(status, stated, asked), digest, key=OWNER, created=NOW) == made
    check_answer(AnswerParts(status, {**stated, **made}, asked), body, key=OWNER.public, what="it answered")


def test_the_pages_own_answer_is_one() -> None:
    """Both of its ends, and the base between them."""
    blocks = re.findall(r"(?:^    .*\n)+", part("HTTP answers"), re.MULTILINE)
    _, request, fields, base = [[line[4:] for line in block.splitlines()] for block in blocks]
    target, asked = (
        request[0].removeprefix("GET "),
        {k.lower(): v for k, _, v in (line.partition(": ") for line in request[1:])},
    )
    caller, identity = key(1), key(2)
    assert (
        SignedAuth(caller, lambda: NOW, lambda count: b"\x03" * count).fields("GET", httpx2.URL(target), {}, b"")
        == asked
    )
    body, stated = b'{"name":"olga","role":"owner"}', {"content-type": "application/json"}
    signed = {name.lower(): value for name, _, value in (line.partition(": ") for line in fields)}
    assert (
        signed_fields(
            AnswerParts(200, stated, asked["signature"]), hashlib.sha256(body).digest(), key=identity, created=NOW + 1
        )
        == signed
    )
    identity_print = page_signed.fingerprint(identity.public)
    _, lines = page_signed.answer_base(200, stated, body, asked["signature"], NOW + 1, identity_print)
    assert "\n".join(base).encode() == lines
    signature = base64.b64decode(signed["signature"].removeprefix("gput-answer=").strip(":"))
    Ed25519PublicKey.from_public_bytes(identity.public).verify(signature, lines)
