"""A detached EAT bundle as NVIDIA's remote attestation service gives it: another verifier's verdict, read and compared with itself.

Form: `[["JWT", platform token], {name: submodule token}]` (RFC 9711 section 4.2.19, detached EAT bundles, in NVIDIA's JSON); the platform
token names each submodule's SHA-256. Tokens are signed with ES384 by keys that only NVIDIA's service publishes, on line and for a short
time; none is pinned here, so the signature is not judged and nothing in it is ever believed. Knows no trust and no policy.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from shared.attestation.results import Expired
from shared.canonical import json_value, sha256
from shared.errors import BadRequest, VerificationFailed

MAX_BUNDLE_BYTES: Final = 1024 * 1024
MAX_SUBMODULES: Final = 64
SIGNATURE_BYTES: Final = 96  # ES384: r and s
LAST_MOMENT: Final = 1 << 33


def is_bundle(value: Any) -> bool:
    """Whether parsed JSON has a bundle's outer form."""
    return (
        isinstance(value, list) and len(value) == 2 and isinstance(value[0], list)
        and value[0][:1] == ["JWT"] and isinstance(value[1], dict)
    )  # fmt: skip


@dataclass(frozen=True)
class NvidiaBundle:
    """What a bundle says. `platform`: claims over all; `submodules`: claims by name ("GPU-0"); `digests`: their tokens' SHA-256, hex."""

    header: Mapping[str, str]
    platform: Mapping[str, Any]
    submodules: Mapping[str, Mapping[str, Any]]
    digests: Mapping[str, str]

    def check_digests(self) -> None:
        """Every submodule is the one that the platform token names, and none is missing. Raises: VerificationFailed `eat-digest`."""
        named = self.platform.get("submods")
        expected = {name: ["DIGEST", ["SHA-256", digest]] for name, digest in self.digests.items()}
        if not isinstance(named, dict) or not named or named != expected:
            differ = sorted(set(expected) ^ set(named)) if isinstance(named, dict) else []
            raise VerificationFailed(
                "the submodules are not those that the platform token names", code="eat-digest",
                expected=str(named)[:300], got=str(expected)[:300] if not differ else f"differ: {', '.join(differ)}"[:300],
            )  # fmt: skip

    def check_time(self, at: float) -> None:
        """Every token valid at `at` (seconds since 1970). Raises: Expired `eat-expired`; VerificationFailed `eat-time`, no time named."""
        for claims in (self.platform, *self.submodules.values()):
            begin, end = claims.get("nbf"), claims.get("exp")
            if type(begin) is not int or type(end) is not int:
                raise VerificationFailed(
                    "a token names no time", code="eat-time", expected="nbf and exp, whole seconds"
                )
            if not begin <= at <= end:
                raise Expired(
                    "a token is not valid at this time", code="eat-expired", expected=f"{begin} to {end}", got=str(int(at)),
                    remedy="verify at the time when it was issued (--at), or ask for a new one",
                )  # fmt: skip

    def check_verdict(self) -> None:
        """Its verifier accepted all. Raises: VerificationFailed `eat-refused`."""
        if self.platform.get("x-nvidia-overall-att-result") is not True:
            raise VerificationFailed("its verifier refused this evidence", code="eat-refused", expected="true",
                                     got=str(self.platform.get("x-nvidia-overall-att-result"))[:40])  # fmt: skip

    @property
    def validity(self) -> str:
        """Until when it is valid, for people; "" where it does not say."""
        end = self.platform.get("exp")
        if type(end) is not int or not 0 <= end < LAST_MOMENT:
            return ""
        return f"valid until {datetime.fromtimestamp(end, UTC):%Y-%m-%d %H:%M:%S}"


def parse_eat(data: bytes) -> NvidiaBundle:
    """A bundle, unverified. Raises: BadRequest `malformed-eat`."""
    value = json_value(data, MAX_BUNDLE_BYTES)
    if not is_bundle(value) or len(value[0]) != 2 or len(value[1]) > MAX_SUBMODULES:
        raise _malformed(f'it is not [["JWT", token], {{name: token}}] with at most {MAX_SUBMODULES} submodules')
    tokens: dict[str, Any] = value[1]
    header, platform = _claims(value[0][1])
    return NvidiaBundle(
        header,
        platform,
        {name: _claims(token)[1] for name, token in tokens.items()},
        {name: sha256(token.encode("ascii")).hex() for name, token in tokens.items()},
    )


def _claims(token: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """Header and payload of one token (RFC 7519). Raises: BadRequest `malformed-eat`."""
    parts = token.split(".") if isinstance(token, str) else []
    if len(parts) != 3:
        raise _malformed("a token is not three parts")
    header, payload, signature = (_decoded(part) for part in parts)
    if len(signature) != SIGNATURE_BYTES:
        raise _malformed(f"a token's signature has {len(signature)} bytes and not {SIGNATURE_BYTES}")
    found = [json_value(part, MAX_BUNDLE_BYTES) for part in (header, payload)]
    if not all(isinstance(part, dict) for part in found):
        raise _malformed("a part of a token is not a JSON object")
    if found[0].get("alg") != "ES384":
        raise _malformed("a token is not signed with ES384")
    return {name: str(said) for name, said in found[0].items()}, found[1]


def _decoded(part: str) -> bytes:
    try:
        return base64.b64decode(part.encode("ascii") + b"=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _malformed("a part of a token is not base64url") from None


def _malformed(why: str) -> BadRequest:
    return BadRequest(f"detached EAT bundle: {why}", code="malformed-eat")
