"""Signed opaque cursors: where a page of a list begins, not forgeable, bound to their list. Knows no table and no request."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Callable

from shared.canonical import cbor_bytes
from shared.errors import BadRequest

TAG_BYTES = 16

Position = str | int | list[str | int]
"""What the entries of a list are ordered by: one column's value, or several columns' values."""


class Cursors:
    """Makes and reads cursors under one MAC key (32 bytes, asked at each call)."""

    def __init__(self, key: Callable[[], bytes]) -> None:
        self._key = key

    def encode(self, scope: str, position: Position) -> str:
        """The cursor of the page after `position` in the list `scope` (list name and filters)."""
        payload = json.dumps(position, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._tag(scope, payload) + payload).decode().rstrip("=")

    def decode(self, scope: str, cursor: str | None) -> Position | None:
        """The position in a cursor made for `scope`; None for the first page.

        Raises:
            BadRequest: code `invalid-cursor`.
        """
        if cursor is None:
            return None
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        tag, payload = raw[:TAG_BYTES], raw[TAG_BYTES:]
        if not payload or not hmac.compare_digest(tag, self._tag(scope, payload)):
            raise BadRequest(
                "the cursor was not made for this list", code="invalid-cursor", remedy="Begin again without a cursor."
            )
        position: Position = json.loads(payload)
        return position

    def _tag(self, scope: str, payload: bytes) -> bytes:
        return hmac.digest(self._key(), cbor_bytes(["gput/cursor", scope, payload]), "sha256")[:TAG_BYTES]
