"""The holder's two links, with every byte counted at the client: what went to the orchestrator, what went to the GPU. Knows no protocol.

Dataset bytes are counted where a body is handed over: only the GPU link has a call that takes record chunks; the orchestrator's link has
none, so its dataset count stays zero by construction (law L9), and a test reads both counters.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, cast

from shared.canonical import MAX_JSON_BYTES, json_bytes
from shared.service.answers import Answer
from shared.service.http import PeerClient
from shared.wire.bounce import Bounced
from shared.wire.codec import encode
from shared.wire.copy import MAX_PORT_WAIT_MS, PORT_TIMING, SERVER_TIMING

MOST_CALLS: Final = 32
"""Calls of the orchestrator that may be under way at once, but for those that wait for news: the next one waits for one of them. Each
session's worker makes its own, and how many sessions there are is the orchestrator's word."""
MOST_UNHURRIED: Final = 8
"""And so many of those that may be both many and long, apart from the others: programs that do not come must not stand before a veto."""
JSON, NO_CONTENT = {"content-type": "application/json"}, 204
_WAITED: Final = re.compile(rf"{PORT_TIMING};dur=([0-9]{{1,9}}(?:\.[0-9]{{1,9}})?)")


@dataclass
class LinkCounters:
    """Bytes of bodies since start, both ways; `dataset` counts plaintext record bytes whose chunk was acknowledged, `proofs` those of
    membership proofs (hashes, no record)."""

    sent: int = 0
    received: int = 0
    dataset: int = 0
    proofs: int = 0
    requests: int = 0


class OrchestratorLink:
    """Signed JSON calls to the orchestrator. Takes documents only, never chunks. `most`: under way at once."""

    def __init__(self, peer: PeerClient, counters: LinkCounters | None = None, most: int = MOST_CALLS) -> None:
        self._peer = peer
        self.counters = LinkCounters() if counters is None else counters
        self._free = asyncio.Semaphore(most)

    @cached_property
    def unhurried(self) -> OrchestratorLink:
        """For what is asked of sessions that nobody has decided, or that are not known here: it takes no turn of the others."""
        return OrchestratorLink(self._peer, self.counters, MOST_UNHURRIED)

    async def news(self, path: str, *, params: dict[str, str | int], timeout_s: float) -> Any:
        """GET, by a long-poll: it takes nobody's turn, and waits for none. Raises: as `get_json`."""
        return self._value(await self._sent("GET", path, params=params, timeout_s=timeout_s))

    async def get(
        self,
        path: str,
        *,
        params: dict[str, Any] | None = None,
        timeout_s: float | None = None,
        attempts: int | None = None,
    ) -> bytes:
        """GET; the answer's body. Raises: the error family as the orchestrator answered, or Unavailable."""
        answer = await self._call("GET", path, params=params, timeout_s=timeout_s, attempts=attempts)
        return bytes(answer.content)

    async def get_json(
        self,
        path: str,
        *,
        params: dict[str, Any] | None = None,
        timeout_s: float | None = None,
        attempts: int | None = None,
    ) -> Any:
        """GET; the answer's JSON value. Raises: as `send`."""
        return self._value(await self._call("GET", path, params=params, timeout_s=timeout_s, attempts=attempts))

    async def send(
        self, method: str, path: str, body: bytes, *, idempotency_key: str | None = None, attempts: int | None = None
    ) -> Any:
        """Send a JSON document's exact bytes; the answer's JSON value, None of one that says that it has none.

        Raises:
            As `get`. Unavailable `peer-unintelligible`: whoever answered is not the orchestrator, but a page of maintenance before it. That
                is nobody's verdict: what was sent may never have arrived, and is to be sent again.
        """
        answer = await self._call(
            method, path, content=body, headers=JSON, idempotency_key=idempotency_key, attempts=attempts
        )
        return self._value(answer)

    def _value(self, answer: Answer) -> Any:
        if not answer.content and answer.status_code != NO_CONTENT:
            raise self._peer.unintelligible("nothing, where there should be JSON")
        return self._peer.json_of(answer, MAX_JSON_BYTES)

    async def _call(self, method: str, path: str, **arguments: Any) -> Answer:
        async with self._free:
            return await self._sent(method, path, **arguments)

    async def _sent(self, method: str, path: str, **arguments: Any) -> Answer:
        body = arguments.get("content") or b""
        self.counters.requests += 1
        self.counters.sent += len(body)
        response = await self._peer.request(method, path, **arguments)
        self.counters.received += len(response.content)
        return response


class Answered(bytes):
    """The agent's answer. `waited_s`: how long the records waited for the GPU to appear at the port, as the agent says."""

    waited_s = 0.0


class GpuLink:
    """The copy port of one GPU. Bodies are sealed copy records, sent from the caller's own buffer without a copy."""

    def __init__(self, peer: PeerClient, counters: LinkCounters) -> None:
        self._peer = peer
        self.counters = counters

    async def leave(
        self, door: str, gpu: str, port: str, *records: memoryview, timeout_s: float, wait_s: float = 0
    ) -> Answered:
        """As `stream`, of records that are at hand."""
        length = sum(len(record) for record in records)
        return await self.stream(door, gpu, port, _pieces(records), length, timeout_s=timeout_s, wait_s=wait_s)

    async def stream(
        self, door: str, gpu: str, port: str, records: AsyncIterator[memoryview], length: int, *, timeout_s: float,
        wait_s: float = 0,
    ) -> Answered:  # fmt: skip
        """POST copy records once, end to end, to a port's `copy` or `staging`; the last one's acknowledgement, CBOR. No retry: the caller
        owns the bytes. `length`: of all of them. `wait_s`: how long the GPU may take to appear at the port before that is refused.

        Raises:
            ProtocolViolation/Conflict: as the GPU answered (`port-not-bound`, `copy-refused`…). Unavailable: no answer. What `records`
                raises: the connection ends, and the GPU has some of them.
        """
        self.counters.requests += 1
        # As they lie, so that the transport writes straight from the sealed buffers; httpx types a stream as bytes, ours takes any buffer.
        body = cast(AsyncIterator[bytes], self._counted(records))
        response = await self._peer.request(
            "POST", f"/v1/gpus/{gpu}/ports/{port}/{door}{_waiting(wait_s)}", content=body, attempts=1, timeout_s=timeout_s,
            headers={"content-type": "application/octet-stream", "content-length": str(length)},
        )  # fmt: skip
        self.counters.received += len(response.content)
        return _answered(response.content, response.headers)

    async def _counted(self, records: AsyncIterator[memoryview]) -> AsyncIterator[memoryview]:
        """Who is refused, or not heard, did not send the rest."""
        async for record in records:
            self.counters.sent += len(record)
            yield record

    async def bounced(self, gpu: str, port: str, places: Bounced, *, timeout_s: float, wait_s: float = 0) -> Answered:
        """POST the places of copy records in a bounce buffer; the last one's acknowledgement. Raises: as `leave`; NotFound
        `unknown-bounce-buffer`."""
        body = encode(places)
        self.counters.requests += 1
        self.counters.sent += len(body) + sum(length for _, length in places.places)
        response = await self._peer.request(
            "POST", f"/v1/gpus/{gpu}/ports/{port}/bounce{_waiting(wait_s)}", content=body, attempts=1, timeout_s=timeout_s,
            headers={"content-type": "application/cbor"},
        )  # fmt: skip
        self.counters.received += len(response.content)
        return _answered(response.content, response.headers)

    def rung(self, length: int) -> None:
        """Count sealed records of so many bytes that a doorbell brought."""
        self.counters.sent += length

    def delivered(self, plaintext_bytes: int, proof_bytes: int) -> None:
        """Count bytes of records and of their proof that the GPU acknowledged."""
        self.counters.dataset += plaintext_bytes
        self.counters.proofs += proof_bytes


def _answered(content: bytes, headers: Mapping[str, str]) -> Answered:
    answer, said = Answered(content), _WAITED.fullmatch(headers.get(SERVER_TIMING, ""))
    answer.waited_s = float(said[1]) / 1000 if said else 0.0
    return answer


def _waiting(wait_s: float) -> str:
    return f"?wait_ms={min(int(wait_s * 1000), MAX_PORT_WAIT_MS)}" if wait_s > 0 else ""


async def _pieces(views: Sequence[memoryview]) -> AsyncIterator[memoryview]:
    for view in views:
        yield view


def document(model: Any) -> bytes:
    """Canonical JSON of a wire model: the exact bytes that are sent."""
    return json_bytes(model.model_dump(mode="json"))
