"""JSON Web Signature, compact form (RFC 7515), with EdDSA over Ed25519 (RFC 8037). Knows no claim, no token and no party.

Strict profile: the protected header holds `alg`, `kid` and `typ` and nothing else; header and payload are canonical JSON (RFC 8785);
base64url without padding, in its one form. One signed value therefore has one encoding.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from shared.canonical import json_bytes, json_value
from shared.crypto.signing import PartyKey, fingerprint, verify_jws
from shared.errors import BadRequest, VerificationFailed

ALGORITHM: Final = "EdDSA"
MAX_TOKEN_BYTES: Final = 1024 * 1024


def sign_compact(payload: dict[str, Any], key: PartyKey, *, typ: str) -> str:
    """header.payload.signature by `key`; `kid` is its fingerprint. Raises: BadRequest: the payload has no canonical JSON form."""
    header = {"alg": ALGORITHM, "kid": key.fingerprint, "typ": typ}
    signed = f"{_encoded(json_bytes(header))}.{_encoded(json_bytes(payload))}"
    return f"{signed}.{_encoded(key.sign_jws(signed.encode('ascii')))}"


def verify_compact(token: str, public: bytes, *, typ: str) -> dict[str, Any]:
    """The payload of a token by exactly this key (raw Ed25519).

    Raises:
        BadRequest: `malformed-token`, not of the strict profile.
        VerificationFailed: `token-type`, `token-algorithm`, `token-key`, `bad-signature`.
    """
    header, payload, signature = parse_compact(token)
    for name, expected in (("typ", typ), ("alg", ALGORITHM), ("kid", fingerprint(public))):
        if header[name] != expected:
            code = {"typ": "token-type", "alg": "token-algorithm", "kid": "token-key"}[name]
            raise VerificationFailed(
                f"the token's {name} is another", code=code, expected=expected, got=str(header[name])[:100]
            )
    verify_jws(public, token.rpartition(".")[0].encode("ascii"), signature)
    return payload


def parse_compact(token: str) -> tuple[dict[str, str], dict[str, Any], bytes]:
    """Header, payload and signature, *unverified*: only good to look at. Raises: BadRequest `malformed-token`."""
    if len(token) > MAX_TOKEN_BYTES:
        raise _malformed(f"{len(token)} characters are too many")
    parts = token.split(".")
    if len(parts) != 3:
        raise _malformed("it is not three parts")
    header, payload = (_object(part) for part in parts[:2])
    if header.keys() != {"alg", "kid", "typ"} or not all(isinstance(value, str) for value in header.values()):
        raise _malformed("its header must be the texts alg, kid and typ")
    return header, payload, _decoded(parts[2])


def _object(part: str) -> dict[str, Any]:
    raw = _decoded(part)
    try:
        value = json_value(raw, MAX_TOKEN_BYTES)
        canonical = json_bytes(value)
    except BadRequest as error:
        raise _malformed(error.detail) from None
    except RecursionError:
        raise _malformed("a part of it is nested too deeply") from None
    if not isinstance(value, dict) or canonical != raw:
        raise _malformed("a part of it is not a JSON object in canonical form")
    return value


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decoded(text: str) -> bytes:
    try:
        data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _malformed("a part of it is not base64url") from None
    # The last character of a part may carry bits that decode to nothing: one value has one text.
    if _encoded(data) != text:
        raise _malformed("a part of it is not base64url in its one form")
    return data


def _malformed(why: str) -> BadRequest:
    return BadRequest(f"token: {why}", code="malformed-token")
