"""A model's file as an answer: opened before it begins, so that its removal in the meantime cuts nobody off. Knows no session.

What was removed is gone for who asks next; whoever is being answered gets the whole of what was released to it when it asked. What is
hashed and what is sent are one open file: whatever lies under its name by then is another.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from fastapi.responses import FileResponse
from starlette.types import Receive, Scope, Send

from orchestrator.model_file import ModelFile

MOST_DIGITS = 15
"""Of a number in a Range header: a petabyte. Python refuses to read one of thousands of digits, and not as a part that is malformed."""


class HeldFile(FileResponse):
    """`size`: in bytes. Raises: FileNotFoundError. VerificationFailed: what lies there is not what was sealed."""

    def __init__(self, model: ModelFile, sha256: str) -> None:
        found = model.open()
        self._file, self.size = found.file, found.size
        try:
            status = os.stat_result((stat.S_IFREG, 0, 0, 1, 0, 0, found.size, 0, int(found.modified), 0))
            super().__init__(
                model.path, media_type="application/octet-stream", filename="model.safetensors", headers={"etag": f'"{sha256}"'},
                stat_result=status,
            )  # fmt: skip
        except BaseException:
            self._file.close()
            raise

    def digest(self) -> str:
        """SHA-256 of what will be sent, in hex; reads the whole file, so not on the event loop's thread. Raises: OSError."""
        digest = hashlib.file_digest(self._file, "sha256").hexdigest()
        self._file.seek(0)
        return digest

    def close(self) -> None:
        """It is not sent."""
        self._file.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, or the part of it that was asked for."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()

    @asynccontextmanager
    async def _open_file(self) -> AsyncIterator[anyio.AsyncFile[bytes]]:
        yield anyio.wrap_file(self._file)


def asked_bytes(range_header: str | None, size: int) -> int:
    """How much of a file of so many bytes a request asks for; more ranges than one, or a malformed one, count as the whole."""
    unit, _, span = (range_header or "").partition("=")
    first, dash, last = (part.strip() for part in span.partition("-"))
    if unit.strip().lower() != "bytes" or not dash or not (_sound(first) and _sound(last)):
        return size
    if not first:
        return min(int(last or 0), size)
    return max(0, min(int(last) + 1 if last else size, size) - int(first))


def _sound(part: str) -> bool:
    return not part or (part.isdecimal() and len(part) <= MOST_DIGITS)
