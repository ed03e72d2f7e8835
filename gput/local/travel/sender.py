"""`python -m gput.local.travel.sender URL FILE LENGTH TIMES overlap|turns`: the holder of conventional data sharing, a process of its own.

Sends the first LENGTH bytes of FILE so many times, sealed, and prints what each transfer took (`Sent`) as a JSON list.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from gput.local.travel.sharing import Outbound
from shared.crypto.hpke import OneTimeKey, seal
from shared.errors import JobFailed
from shared.service.http import PeerClient, Peers

TIMEOUT_S = 600.0
OCTETS = {"content-type": "application/octet-stream"}


@dataclass(frozen=True)
class Sent:
    """One transfer: seconds until all of it lies in the GPU; of these in sealing and in requests with records; records."""

    seconds: float
    seal_s: float
    post_s: float
    records: int


async def send(relay: PeerClient, file: Path, length: int, overlap: bool) -> Sent:
    """One transfer. Without `overlap` nothing is sealed while a record travels. Raises: JobFailed: less was taken than was sent."""
    began = time.perf_counter()
    public = await relay.post_json("/v1/transfer", None, params={"overlap": int(overlap)})
    outbound = Outbound(bytes.fromhex(public["public_key"]), file, length)
    await relay.request("PUT", "/v1/transfer/key", content=outbound.sealed_key, headers=OCTETS)
    stages, records, received = Stopwatch(), outbound.records(), 0
    # The next record is read and sealed while the last one travels, as a holder does on a visit.
    ahead = asyncio.ensure_future(asyncio.to_thread(stages.sealed, records))
    while (record := await ahead) is not None:
        if overlap:
            ahead = asyncio.ensure_future(asyncio.to_thread(stages.sealed, records))
        received = await stages.posted(relay, record)
        if not overlap:
            ahead = asyncio.ensure_future(asyncio.to_thread(stages.sealed, records))
    if received != length:
        raise JobFailed(f"{received} of {length} bytes arrived", code="transfer-short")
    return Sent(time.perf_counter() - began, stages.seal_s, stages.post_s, outbound.total)


class Stopwatch:
    """Does what one record needs, and adds up how long that took."""

    def __init__(self) -> None:
        self.seal_s = self.post_s = 0.0

    def sealed(self, records: Iterator[memoryview]) -> memoryview | None:
        """The next record; None: there is none."""
        began = time.perf_counter()
        found = next(records, None)
        self.seal_s += time.perf_counter() - began
        return found

    async def posted(self, relay: PeerClient, record: memoryview) -> int:
        """How many bytes have arrived."""
        began = time.perf_counter()
        headers = {**OCTETS, "content-length": str(len(record))}
        answer = await relay.request(
            "POST", "/v1/transfer/records", content=_whole(record), headers=headers, timeout_s=TIMEOUT_S
        )
        self.post_s += time.perf_counter() - began
        return int(answer.json()["received"])


async def _whole(view: memoryview) -> AsyncIterator[bytes]:
    yield view  # type: ignore[misc]  # our transport writes any buffer


async def main(url: str, file: Path, length: int, times: int, overlap: bool) -> list[Sent]:
    """All transfers, one after another over the same connections."""
    seal(OneTimeKey.generate().public, b"", b"warm-up")  # the library's first sealing takes as long as a short transfer
    async with Peers(timeout_s=TIMEOUT_S) as peers:
        relay = peers.peer(url, "the bench's relay")
        return [await send(relay, file, length, overlap) for _ in range(times)]


if __name__ == "__main__":
    url, file, length, times, overlap = sys.argv[1:]
    sent = asyncio.run(main(url, Path(file), int(length), int(times), overlap == "overlap"))
    print(json.dumps([asdict(one) for one in sent]))
