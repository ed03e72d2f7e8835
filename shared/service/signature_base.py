"""What signed requests and signed answers have in common: RFC 9421's base and fields, RFC 9530's digest. Knows neither of the two.

Every reader here gives None for what has another form; whoever asked says what that means where it asked.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Final

DIGEST_HEADER: Final = "content-digest"

_SIGNATURE = re.compile(r"([a-z-]+)=(:[A-Za-z0-9+/=]{88}:)")
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/=]{44}):")


def content_digest(digest: bytes) -> str:
    """Value of the Content-Digest field for a SHA-256 digest (RFC 9530)."""
    return f"sha-256=:{base64.b64encode(digest).decode()}:"


def digest_in(field: str) -> bytes | None:
    """The SHA-256 digest, 32 bytes, that a Content-Digest field consists of."""
    found = _DIGEST.fullmatch(field)
    return None if found is None else unbase64(found[1])


def signature_base(components: Iterable[tuple[str, str]], params: str) -> bytes:
    """The bytes that are signed (RFC 9421 section 2.5). `components`: identifiers as they are written, and values."""
    lines = [f"{name}: {value}" for name, value in components]
    return "\n".join([*lines, f'"@signature-params": {params}']).encode()


def signature_field(label: str, signature: bytes) -> str:
    """Value of the Signature field with one signature (64 bytes) under this label."""
    return f"{label}=:{base64.b64encode(signature).decode()}:"


def signature_in(field: str, label: str) -> bytes | None:
    """The one signature, labelled so, that a Signature field consists of."""
    found = _SIGNATURE.fullmatch(field)
    return unbase64(found[2].strip(":")) if found is not None and found[1] == label else None


def unbase64(text: str) -> bytes | None:
    """The bytes."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
