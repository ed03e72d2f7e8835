"""A model's file as an answer: opened before it begins, so that its removal in the meantime cuts nobody off. Knows no session.

What was removed is gone for who asks next; whoever is being answered gets the whole of what was released to it when it asked. What is
hashed and what is sent are one open file: whatever lies under its name by then is another.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio
from fastapi.responses import FileResponse
from starlette.types import Receive, Scope, Send

from orchestrator.model_file import ModelFile
from shared.errors import BadRequest

MOST_DIGITS: Final = 15
"""Of a number in a Range header: a petabyte, which no file has. Python refuses to read one of thousands of digits."""
_SPAN: Final = re.compile(r"([0-9]*)\s*-\s*([0-9]*)")


class RangeNotSatisfiable(BadRequest):
    """A part was asked for that the file does not have (RFC 9110 15.5.17)."""

    status, default_code, title = 416, "range-not-satisfiable", "Range not satisfiable"


class HeldFile(FileResponse):
    """`size`: in bytes. Raises: FileNotFoundError. VerificationFailed: what lies there is not what was sealed.

    What of it is sent is decided by `choose` and nowhere else, so that what is written down of a request is what it is answered with.
    """

    def __init__(self, model: ModelFile, sha256: str) -> None:
        found = model.open()
        self._file, self.size = found.file, found.size
        self._part: range | None = None
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

    def choose(self, headers: Mapping[str, str]) -> int:
        """Settle what is sent of it by a request's headers, with lower-case names: how many bytes that is. Without it, the whole is.

        Raises:
            BadRequest: `range-malformed`; RangeNotSatisfiable. Nothing was settled.
        """
        same = headers.get("if-range") in (None, self.headers["etag"], self.headers["last-modified"])
        self._part = asked_part(headers.get("range"), self.size) if same else None
        return self.size if self._part is None else len(self._part)

    def close(self) -> None:
        """It is not sent."""
        self._file.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what was chosen."""
        # The framework judges the request's headers by rules of its own: it sees what was settled, and nothing to decide.
        headers = [(name, value) for name, value in scope["headers"] if name not in (b"range", b"if-range")]
        if self._part is not None:
            headers.append((b"range", f"bytes={self._part.start}-{self._part.stop - 1}".encode()))
        try:
            await super().__call__({**scope, "headers": headers}, receive, send)
        finally:
            self._file.close()

    @asynccontextmanager
    async def _open_file(self) -> AsyncIterator[anyio.AsyncFile[bytes]]:
        yield anyio.wrap_file(self._file)


def asked_part(said: str | None, size: int) -> range | None:
    """The bytes of a file of `size` that a Range header asks for (RFC 9110 14.2); None: the whole, also where it asks in units that are not
    known here, or for several parts: nobody has to give those.

    Raises:
        BadRequest: `range-malformed`. RangeNotSatisfiable: the file has no such part.
    """
    unit, equals, spans = (said or "").partition("=")
    if said is None or (equals and unit.strip().lower() != "bytes"):
        return None
    found = [_SPAN.fullmatch(part.strip()) for part in spans.split(",") if part.strip()]
    texts = [match.groups() for match in found if match is not None and match.group() != "-"]
    if not texts or len(texts) < len(found):
        raise _malformed()
    return _part(*texts[0], size=size) if len(texts) == 1 else None


def _part(first: str, last: str, *, size: int) -> range:
    start = _number(first) if first else size - min(_number(last), size)
    stop = _number(last) + 1 if first and last else size
    if stop <= start < size:
        raise _malformed()
    if start >= size:
        raise RangeNotSatisfiable(
            f"The file has {size} bytes, and none from {start} on", remedy="Begin before its end, or ask for the whole."
        )
    return range(start, min(stop, size))


def _number(digits: str) -> int:
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= MOST_DIGITS else 10**MOST_DIGITS


def _malformed() -> BadRequest:
    return BadRequest("The Range header asks for nothing that can be told", code="range-malformed",
                      remedy="Send one range of bytes, for instance `bytes=0-1023`, or none.")  # fmt: skip
