"""One file fetched into another, taken up where its stream broke off, and believed when its digest is its ETag. Knows no session."""

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
    """From `path` of a service into the file `into`, which whoever asked removes if this fails."""

    def __init__(self, path: str, into: Path) -> None:
        self._path, self._into = path, into
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
        self._check()

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
            async for chunk in response.aiter_bytes():
                self._digest.update(chunk)
                out.write(chunk)

    def _check(self) -> None:
        expected, got = self._tag.strip('"'), self._digest.hexdigest()
        if got != expected:
            raise VerificationFailed(
                "the model that came is not the one that was exported", code="model-altered", expected=expected, got=got,
                remedy="Fetch it again.",
            )  # fmt: skip
