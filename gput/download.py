"""One file fetched into another, taken up where its stream broke off, and refused if it is another than was expected. Knows no session."""

from __future__ import annotations

import asyncio
import hashlib
import time
from pathlib import Path
from typing import BinaryIO

import httpx2
from pydantic import BaseModel, ConfigDict

from shared.errors import Unavailable, VerificationFailed
from shared.service.http import PeerClient
from shared.service.printable import printable

PAUSE_S = 0.5


class Exported(BaseModel):
    """A file as an answer said that can be believed: SHA-256 (hex) and length. The stream and its headers are anybody's on the way."""

    model_config = ConfigDict(strict=True, frozen=True)

    sha256: str
    size_bytes: int


class Download:
    """From `path` of a service into the file `into`, which whoever asked removes if this fails.

    `expected`: what it is; None: there is no such file, so only its refusal may come. No more than that is ever written.
    """

    def __init__(self, path: str, into: Path, expected: Exported | None) -> None:
        self._path, self._into, self._expected = path, into, expected
        self._digest, self._tag = hashlib.sha256(), ""

    async def run(self, peer: PeerClient, patience_s: float) -> None:
        """The whole file. `patience_s`: for how long a broken stream may bring nothing more.

        Raises:
            Unavailable. VerificationFailed `model-altered`. Else as the service answered.
        """
        with self._into.open("wb") as out:
            deadline = time.monotonic() + patience_s
            while True:
                had = out.tell()
                try:
                    await self._more(peer, out)
                    break
                except Unavailable:
                    if not self._tag:
                        raise  # it did not even begin
                    if self._expected is not None and out.tell() == self._expected.size_bytes:
                        break  # it broke off behind its last byte
                    if out.tell() > had:
                        deadline = time.monotonic() + patience_s
                    elif time.monotonic() > deadline:
                        raise
                await asyncio.sleep(PAUSE_S)
        self._require_digest(self._digest.hexdigest())

    async def _more(self, peer: PeerClient, out: BinaryIO) -> None:
        # If-Range: of another file than the one that was begun, all of it comes.
        rest = {"range": f"bytes={out.tell()}-", "if-range": self._tag} if out.tell() else {}
        async with peer.stream("GET", self._path, headers=rest) as response:
            if response.status_code != httpx2.codes.PARTIAL_CONTENT:
                out.seek(0)
                out.truncate()
                self._digest = hashlib.sha256()
                self._require_size(response.headers.get("content-length"))
            self._tag = response.headers.get("etag", "")
            self._require_digest(self._tag.strip('"'))  # another file is not worth its fetching
            async for chunk in response.aiter_bytes():
                self._refuse_beyond(out.tell() + len(chunk))
                self._digest.update(chunk)
                out.write(chunk)

    def _require_digest(self, got: str) -> None:
        if self._expected is None or got != self._expected.sha256:
            raise _altered("no model" if self._expected is None else self._expected.sha256, got or "no ETag")

    def _require_size(self, told: str | None) -> None:
        if self._expected is not None and told is not None and told != str(self._expected.size_bytes):
            raise _altered(f"{self._expected.size_bytes} bytes", f"Content-Length {printable(told)}")

    def _refuse_beyond(self, size: int) -> None:
        """Whoever goes on behind the file's end must not fill a disk."""
        if self._expected is not None and size > self._expected.size_bytes:
            raise _altered(f"{self._expected.size_bytes} bytes", "more")


def _altered(expected: str, got: str) -> VerificationFailed:
    return VerificationFailed(
        "the model that came is not the one that was exported", code="model-altered", expected=expected, got=got,
        remedy="Fetch it again.",
    )  # fmt: skip
