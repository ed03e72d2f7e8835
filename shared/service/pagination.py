"""Pages of a list by signed opaque cursors: stable under insertion, not forgeable, bound to their list. Knows no table."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Callable
from typing import Annotated

from fastapi import Query, Request

from shared.canonical import cbor_bytes
from shared.errors import BadRequest

TAG_BYTES = 16

Limit = Annotated[int, Query(ge=1, le=500, description="Entries per page.")]
CursorParam = Annotated[str | None, Query(max_length=1024, description="Where the page begins; from Link rel=next.")]

Position = str | int


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


def link_next(request: Request, cursor: str) -> str:
    """Value of the Link field that leads to the next page (RFC 8288)."""
    return f'<{request.url.include_query_params(cursor=cursor)}>; rel="next"'
