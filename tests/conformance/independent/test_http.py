"""Signed requests as docs/formats.md words them: what the product signs, and what another implementation signs for it."""

from __future__ import annotations

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import NotAuthenticated
from shared.names import Role
from shared.service.signatures import KnownKey, RequestParts, SignedAuth, verify_request
from tests.conformance.independent import page_signed
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
