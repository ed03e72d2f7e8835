"""A model's file as an answer: opened before it begins, so that its removal in the meantime cuts nobody off. Knows no session.

What was removed is gone for who asks next; whoever is being answered gets the whole of what was released to it when it asked.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from fastapi.responses import FileResponse
from starlette.types import Receive, Scope, Send


class HeldFile(FileResponse):
    """`size`: in bytes. Raises: FileNotFoundError."""

    def __init__(self, path: Path, sha256: str) -> None:
        self._file = path.open("rb")
        status = os.fstat(self._file.fileno())
        self.size = status.st_size
        super().__init__(
            path, media_type="application/octet-stream", filename="model.safetensors", headers={"etag": f'"{sha256}"'},
            stat_result=status,
        )  # fmt: skip

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
    """How much of a file of so many bytes a request asks for; of more ranges than one it counts as the whole."""
    unit, _, span = (range_header or "").partition("=")
    first, dash, last = (part.strip() for part in span.partition("-"))
    if unit.strip().lower() != "bytes" or not dash or not all(part.isdecimal() or not part for part in (first, last)):
        return size
    if not first:
        return min(int(last or 0), size)
    return max(0, min(int(last) + 1 if last else size, size) - int(first))
