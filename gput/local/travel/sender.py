"""`python -m gput.local.travel.sender URL FILE LENGTH TIMES`: the holder of conventional data sharing, a process of its own.

Sends the first LENGTH bytes of FILE so many times, sealed, and prints {"seconds": [each], "sealed": records} as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from gput.local.travel.sharing import Outbound
from shared.errors import JobFailed
from shared.service.http import PeerClient, Peers

TIMEOUT_S = 600.0
OCTETS = {"content-type": "application/octet-stream"}


async def send(relay: PeerClient, file: Path, length: int) -> tuple[float, int]:
    """One transfer: seconds until all of it lies in the GPU, records sealed. Raises: JobFailed: less was taken than was sent."""
    began = time.perf_counter()
    public = bytes.fromhex((await relay.post_json("/v1/transfer", None))["public_key"])
    outbound = Outbound(public, file, length)
    await relay.request("PUT", "/v1/transfer/key", content=outbound.sealed_key, headers=OCTETS)
    records = outbound.records()
    # The next record is read and sealed while the last one travels, as a holder does on a visit.
    ahead = asyncio.ensure_future(asyncio.to_thread(_next, records))
    received = 0
    while (record := await ahead) is not None:
        ahead = asyncio.ensure_future(asyncio.to_thread(_next, records))
        received = await _post(relay, record)
    if received != length:
        raise JobFailed(f"{received} of {length} bytes arrived", code="transfer-short")
    return time.perf_counter() - began, outbound.total


def _next(records: Iterator[memoryview]) -> memoryview | None:
    return next(records, None)


async def _post(relay: PeerClient, record: memoryview) -> int:
    headers = {**OCTETS, "content-length": str(len(record))}
    answer = await relay.request(
        "POST", "/v1/transfer/records", content=_whole(record), headers=headers, timeout_s=TIMEOUT_S
    )
    return int(answer.json()["received"])


async def _whole(view: memoryview) -> AsyncIterator[bytes]:
    yield view  # type: ignore[misc]  # our transport writes any buffer


async def main(url: str, file: Path, length: int, times: int) -> dict[str, object]:
    """All transfers, one after another over the same connections."""
    async with Peers(timeout_s=TIMEOUT_S) as peers:
        relay = peers.peer(url, "the bench's relay")
        found = [await send(relay, file, length) for _ in range(times)]
    return {"seconds": [seconds for seconds, _ in found], "sealed": sum(sealed for _, sealed in found)}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))))
