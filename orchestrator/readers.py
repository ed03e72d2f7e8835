"""Whom a read-only bearer token was given to, as the operator's file says now. Knows no route.

The file is looked at with each use: a token that was taken out of it is refused from then on. Nobody's token reads the finished model: that
takes the owner's own signature.
"""

from __future__ import annotations

from pathlib import Path

from shared.errors import ConfigurationError
from shared.names import Role
from shared.service.key_folder import file_state
from shared.service.logging import get_logger
from shared.service.reader_tokens import Reader, read_readers, token_digest
from shared.service.signatures import Caller
from shared.service.state import BearerResolver

_log = get_logger("readers")


def reader_tokens(path: Path | None) -> BearerResolver | None:
    """Whom a token was given to; None where no file is named. Raises: ConfigurationError."""
    return None if path is None else _Readers(path).resolve


class _Readers:
    def __init__(self, path: Path) -> None:
        self._path, self._seen = path, file_state(path)
        self._readers = read_readers(path)

    async def resolve(self, token: str) -> Caller | None:
        reader = self._now().get(token_digest(token))
        if reader is None:
            return None
        # No fingerprint: nobody signed. What wants a signature looks for it.
        return Caller("", reader.name, frozenset({Role.AUDITOR, Role(reader.role)}))

    def _now(self) -> dict[str, Reader]:
        seen = file_state(self._path)
        if seen != self._seen:
            try:
                self._readers = read_readers(self._path)
            except ConfigurationError as error:
                self._readers = {}  # whom it admitted before may be who was to be kept out
                _log.error("nobody reads by a token now", detail=error.detail, remedy=error.remedy)
            self._seen = seen
        return self._readers
