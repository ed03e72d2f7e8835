"""The id of a session, which follows from its submission: whoever submitted can tell it from any other. Knows no storage."""

from __future__ import annotations

import hashlib
from base64 import b32encode

ID_BYTES = 10


def session_id(owner: str, act: str) -> str:
    """`s_` and 80 bits in lower-case base32: the same owner and Idempotency-Key (`act`) give the same session, also after a crash.

    SHA-256(number of owner's characters, 8 bytes big-endian ‖ owner ‖ act), its first 10 bytes; both texts in UTF-8, of which so many
    characters are the owner's and nobody else's
    """
    digest = hashlib.sha256(len(owner).to_bytes(8, "big") + owner.encode() + act.encode()).digest()
    return f"s_{b32encode(digest[:ID_BYTES]).decode().lower()}"
