"""One file fetched into another, taken up where its stream broke off, and refused if it is another than was expected. Knows no session."""

from __future__ import annotations

import asyncio
import hashlib
import time
from pathlib import Path
from typing import BinaryIO

import httpx2

from shared.errors import Unavailable, VerificationFailed
from shared.service.http import PeerClient

PAUSE_S = 0.5


class Download:
    """From `path` of a service into the file `into`, which whoever asked removes if this fails.

    `expected`: its SHA-256 (hex), as an answer said that can be believed: the stream and its ETag are anybody's on the way. None: there is
    no such file, so only its refusal may come.
    """

    def __init__(self, path: str, into: Path, expected: str | None) -> None:
        self._path, self._into, self._expected = path, into, expected
        self._digest, self._tag, self._size = hashlib.sha256(), "", -1

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
                    if out.tell() == self._size:
                        break  # it broke off behind its last byte
                    if out.tell() > had:
                        deadline = time.monotonic() + patience_s
                    elif time.monotonic() > deadline:
                        raise
                await asyncio.sleep(PAUSE_S)
        self._require(self._digest.hexdigest())

    async def _more(self, peer: PeerClient, out: BinaryIO) -> None:
        # If-Range: of another file than the one that was begun, all of it comes.
        rest = {"range": f"bytes={out.tell()}-", "if-range": self._tag} if out.tell() else {}
        async with peer.stream("GET", self._path, headers=rest) as response:
            if response.status_code != httpx2.codes.PARTIAL_CONTENT:
                out.seek(0)
                out.truncate()
                self._digest = hashlib.sha256()
                self._size = int(response.headers.get("content-length", -1))
            self._tag = response.headers.get("etag", "")
            self._require(self._tag.strip('"'))  # another file is not worth its fetching
            async for chunk in response.aiter_bytes():
                self._digest.update(chunk)
                out.write(chunk)

    def _require(self, got: str) -> None:
        if got != self._expected:
            raise VerificationFailed(
                "the model that came is not the one that was exported", code="model-altered", expected=self._expected or "no model",
                got=got or "no ETag", remedy="Fetch it again.",
            )  # fmt: skip
