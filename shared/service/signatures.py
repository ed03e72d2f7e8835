"""Signed HTTP requests: RFC 9421 signatures with RFC 9530 content digests, Ed25519. Knows no web framework and no database.

One signature per request, label `gput`, over `@method`, `@target-uri`, `content-digest` when there is a body and `idempotency-key` when
there is one. Parameters: `created`, `nonce`, `keyid` (the key's fingerprint), `tag="gput/1"`. Anything else is refused rather than ignored.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Protocol

import httpx2

from shared.canonical import sha256
from shared.crypto.signing import fingerprint, verify_http
from shared.errors import NotAuthenticated, VerificationFailed
from shared.names import Role
from shared.service.clock import Clock, Entropy
from shared.service.signature_base import (
    DIGEST_HEADER,
    content_digest,
    digest_in,
    signature_base,
    signature_field,
    signature_in,
    unbase64,
)

LABEL = "gput"
TAG = "gput/1"
NONCE_BYTES = 16
MAX_NONCE_BYTES = 64
KEY_HEADER = "idempotency-key"
VERIFIED = "gput.signature"
"""In a request's scope: its Signature field, once that was verified."""
ACCEPT_SIGNATURE = f'{LABEL}=("@method" "@target-uri" "content-digest");created;nonce;keyid;tag="{TAG}"'
"""What a 401 answer asks for (RFC 9421 section 5.1)."""

_COMPONENTS = ("@method", "@target-uri", DIGEST_HEADER, KEY_HEADER)
_INPUT = re.compile(
    r'gput=(?P<params>\((?P<covered>"[a-z@-]+"(?: "[a-z@-]+")*)\)(?P<rest>(?:;[a-z]+=(?:"[!#-~]*"|[0-9]{1,15}))+))'
)
_PARAM = re.compile(r';([a-z]+)=(?:"([!#-~]*)"|([0-9]{1,15}))')


class RequestKey(Protocol):
    """The private key a request is signed with (`shared.crypto.signing.PartyKey`)."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the raw public key, 64 hex digits."""

    def sign_http(self, base: bytes) -> bytes:
        """Ed25519 signature (64 bytes) over a signature base."""


@dataclass(frozen=True)
class KnownKey:
    """An enrolled or attested public key (32 raw bytes) and what its holder may do."""

    public_key: bytes
    name: str
    roles: frozenset[Role]


@dataclass(frozen=True)
class Caller:
    """Who sent a request. Made only by `verify_request` and by the check of a bearer token."""

    fingerprint: str
    name: str
    roles: frozenset[Role]


KeyResolver = Callable[[str], Awaitable[KnownKey | None]]
"""Fingerprint (hex) -> the key enrolled under it."""


@dataclass(frozen=True)
class RequestParts:
    """What of a request is signed. `headers` has lower-case names; repeated fields are joined with ", " (RFC 9421 2.1)."""

    method: str
    target_uri: str
    headers: Mapping[str, str]


class NonceMemory(Protocol):
    """Remembers the nonces of the window (`shared.service.replay.ReplayWindow`)."""

    @property
    def window_s(self) -> float:
        """How far `created` may lie from now, either way, in seconds."""

    async def remember(self, fingerprint: str, nonce: bytes, created: int) -> None:
        """Raises: NotAuthenticated (code `signature-replayed`) when it was seen before."""


class SignedAuth(httpx2.Auth):
    """Signs every request of an httpx2 client, with a fresh nonce each."""

    def __init__(self, key: RequestKey, clock: Clock, entropy: Entropy) -> None:
        self._key, self._keyid = key, key.fingerprint
        self._clock = clock
        self._entropy = entropy

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Adds Content-Digest, Signature-Input and Signature.

        Raises:
            ValueError: the body is a stream and carries no Content-Digest field.
        """
        self.sign(request)
        yield request

    def sign(self, request: httpx2.Request) -> None:
        """As `auth_flow`, in place."""
        present = {name: request.headers[name] for name in (DIGEST_HEADER, KEY_HEADER) if name in request.headers}
        try:
            body: bytes | None = request.content
        except httpx2.RequestNotRead:
            body = None
        request.headers.update(self.fields(request.method, request.url, present, body))

    def fields(self, method: str, url: httpx2.URL, headers: Mapping[str, str], body: bytes | None) -> dict[str, str]:
        """What a request has to have besides `headers` (lower-case names). `body`: empty for none, None for a stream.

        Raises:
            ValueError: the body is a stream and carries no Content-Digest field.
        """
        added: dict[str, str] = {}
        if DIGEST_HEADER not in headers:
            if body is None:
                raise ValueError("a streamed body is signed by its Content-Digest field; set it beforehand")
            if body:
                added[DIGEST_HEADER] = content_digest(sha256(body))
        target = f"{url.scheme}://{url.netloc.decode()}{url.raw_path.decode()}"
        covered = ["@method", "@target-uri"]
        covered += [name for name in (DIGEST_HEADER, KEY_HEADER) if name in headers or name in added]
        nonce = base64.b64encode(self._entropy(NONCE_BYTES)).decode()
        components = " ".join([f'"{name}"' for name in covered])
        params = f'({components});created={int(self._clock())};nonce="{nonce}";keyid="{self._keyid}";tag="{TAG}"'
        base = _base(RequestParts(method, target, {**headers, **added}), covered, params)
        added["signature-input"] = f"{LABEL}={params}"
        added["signature"] = signature_field(LABEL, self._key.sign_http(base))
        return added


async def verify_request(
    parts: RequestParts, body: bytes | None, *, keys: KeyResolver, now: float, replay: NonceMemory
) -> Caller:
    """Who sent this request.

    1. the fields parse and cover what they must; 2. the signature is recent; 3. the key is known and named by its own
    fingerprint; 4. the signature verifies; 5. the body has the signed digest; 6. the nonce is new. The nonce comes last: only a
    genuine request may take room in the memory.

    Args:
        body: the buffered body; None for a stream, whose reader must compare it with Content-Digest.

    Raises:
        NotAuthenticated: codes `signature-missing`, `-malformed`, `-stale`, `-key-unknown`, `-invalid`, `-replayed`,
            `content-digest-mismatch`.
    """
    claim, name, roles = await _believed(parts, body is None or len(body) > 0, keys, now, replay.window_s)
    if body is not None and DIGEST_HEADER in parts.headers:  # also when empty: a body cut off must not pass for none
        check_digest(signed_digest(parts), sha256(body))
    await replay.remember(claim.keyid, claim.nonce, claim.created)
    return Caller(claim.keyid, name, roles)


async def check_before_body(parts: RequestParts, *, keys: KeyResolver, now: float, window_s: float) -> None:
    """The first four steps of `verify_request`, of a request with a body of which nothing was read: whose it is stands in its head.

    Raises:
        NotAuthenticated: as `verify_request`, but for the body and the nonce.
    """
    await _believed(parts, True, keys, now, window_s)


async def _believed(
    parts: RequestParts, has_body: bool, keys: KeyResolver, now: float, window_s: float
) -> tuple[_Claim, str, frozenset[Role]]:
    """What the head claims, and whose it is."""
    claim = _parse(parts, has_body=has_body)
    _check_age(claim.created, now, window_s)
    known = await keys(claim.keyid)
    if known is None or fingerprint(known.public_key) != claim.keyid:
        raise NotAuthenticated(
            f"no party is enrolled under key {claim.keyid[:16]}…",
            code="signature-key-unknown",
            remedy="Enrol the party's public key at this service, or sign with the enrolled one.",
        )
    try:
        verify_http(known.public_key, claim.base, claim.signature)
    except VerificationFailed:
        raise NotAuthenticated(
            "the signature does not verify over this method, address and body",
            code="signature-invalid",
            remedy="Sign exactly what is sent; a proxy must not rewrite the request.",
        ) from None
    return claim, known.name, known.roles


def _check_age(created: int, now: float, window_s: float) -> None:
    if abs(now - created) > window_s:
        raise NotAuthenticated(
            "the request was signed too long ago, or by a clock that runs ahead",
            code="signature-stale",
            remedy="Sign the request again; compare the clocks of both machines.",
            expected=f"created within {window_s:.0f} s of {int(now)}",
            got=str(created),
        )


def signed_digest(parts: RequestParts) -> bytes:
    """The SHA-256 digest that the Content-Digest field states, 32 bytes. Raises: NotAuthenticated."""
    found = digest_in(parts.headers.get(DIGEST_HEADER, ""))
    if found is None:
        raise _malformed("Content-Digest is not one sha-256 digest")
    return found


def check_digest(signed: bytes, got: bytes) -> None:
    """Raises: NotAuthenticated (code `content-digest-mismatch`) unless both are equal; digests of a body are public."""
    if signed != got:
        raise NotAuthenticated(
            "the body is not the one that was signed",
            code="content-digest-mismatch",
            remedy="Send the body unchanged.",
            expected=signed.hex(),
            got=got.hex(),
        )


@dataclass(frozen=True)
class _Claim:
    """A parsed signature, not yet believed."""

    keyid: str
    created: int
    nonce: bytes
    base: bytes
    signature: bytes


def _parse(parts: RequestParts, *, has_body: bool) -> _Claim:
    headers = parts.headers
    if "signature-input" not in headers or "signature" not in headers:
        raise NotAuthenticated(
            "the request is not signed",
            code="signature-missing",
            remedy=f"Sign it as Accept-Signature says: {ACCEPT_SIGNATURE}",
        )
    stated = _INPUT.fullmatch(headers["signature-input"])
    signature = signature_in(headers["signature"], LABEL)
    if stated is None or signature is None:
        raise _malformed("Signature-Input or Signature is not one signature labelled gput")
    covered = [name.strip('"') for name in stated["covered"].split(" ")]
    needed = {"@method", "@target-uri"}
    needed |= {DIGEST_HEADER} if has_body else set()
    needed |= {KEY_HEADER} & headers.keys()
    if not needed <= set(covered) <= set(_COMPONENTS) or len(set(covered)) != len(covered):
        raise _malformed(f"the signature must cover {', '.join(sorted(needed))}, each once, and nothing unknown")
    for name in covered:
        if not name.startswith("@") and name not in headers:
            raise _malformed(f"the signature covers {name}, which the request does not have")
    params = [(name, text or number) for name, text, number in _PARAM.findall(stated["rest"])]
    values = dict(params)
    if len(values) != len(params) or values.keys() != {"created", "nonce", "keyid", "tag"} or values["tag"] != TAG:
        raise _malformed(f'the parameters are created, nonce, keyid and tag="{TAG}", each once')
    if not values["created"].isdigit():
        raise _malformed("created is not a whole number of seconds")
    nonce = unbase64(values["nonce"])
    if nonce is None or not NONCE_BYTES <= len(nonce) <= MAX_NONCE_BYTES:
        raise _malformed(f"the nonce is base64 of {NONCE_BYTES} to {MAX_NONCE_BYTES} bytes")
    base = _base(parts, covered, stated["params"])
    return _Claim(values["keyid"], int(values["created"]), nonce, base, signature)


def _base(parts: RequestParts, covered: list[str], params: str) -> bytes:
    derived = {"@method": parts.method, "@target-uri": parts.target_uri}
    values = [derived[name] if name in derived else parts.headers[name].strip() for name in covered]
    return signature_base(zip([f'"{name}"' for name in covered], values, strict=True), params)


def _malformed(detail: str) -> NotAuthenticated:
    return NotAuthenticated(
        detail, code="signature-malformed", remedy=f"Sign as Accept-Signature says: {ACCEPT_SIGNATURE}"
    )
