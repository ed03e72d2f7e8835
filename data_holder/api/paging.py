"""Cursors of this holder's lists. Knows no table."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from data_holder.api.access import holder_of
from shared.canonical import sha256
from shared.errors import BadRequest
from shared.service.pagination import Cursors


class Lists(Cursors):
    """Positions are a name, or a session with a number."""

    def text(self, scope: str, cursor: str | None) -> str | None:
        """A name position. Raises: BadRequest `invalid-cursor`."""
        position = self.decode(scope, cursor)
        if position is not None and not isinstance(position, str):
            raise BadRequest("the cursor was not made for this list", code="invalid-cursor")
        return position

    def pair(self, scope: str, cursor: str | None) -> tuple[str, int] | None:
        """A (session, number) position. Raises: BadRequest `invalid-cursor`."""
        position = self.text(scope, cursor)
        if position is None:
            return None
        session, _, number = position.partition(":")
        return session, int(number)

    def encode_pair(self, scope: str, session: str, number: int) -> str:
        """Inverse of `pair`."""
        return self.encode(scope, f"{session}:{number}")


def cursors_of(request: Request) -> Lists:
    """Cursors under a key that only this identity can make, so that they outlive a restart."""
    key = holder_of(request).foundation.key
    return Lists(lambda: sha256(key.sign("gput/cursor-key", b"")))


CursorsDep = Annotated[Lists, Depends(cursors_of)]
