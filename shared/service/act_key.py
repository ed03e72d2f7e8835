"""An Idempotency-Key as text, judged alike by who sends one and who takes one. Knows no request."""

from __future__ import annotations

import re

from shared.errors import BadRequest

_KEY = re.compile(r"[!-~]{1,128}")


def check_act_key(key: str) -> str:
    """The key. Raises: BadRequest `idempotency-key-malformed`."""
    if not _KEY.fullmatch(key):
        raise BadRequest(
            "Idempotency-Key has 1 to 128 printable ASCII characters, none of them a space",
            code="idempotency-key-malformed",
        )
    return key


__all__ = ["check_act_key"]
