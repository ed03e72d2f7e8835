"""The MUX's ports over HTTP, and holders' by doorbell: SPDM, command frames, copy records, staging. Knows no key and looks into no body.

Ports authenticate by SPDM records and visit-key AEAD, never by HTTP.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpu_agent.bodies import taken
from gpu_agent.bounce import BounceBuffers
from gpu_agent.frame_bodies import FrameBodies
from gpu_agent.unit import GpuUnit, unit_of
from shared.errors import BadRequest, NotPermitted
from shared.names import ORCHESTRATOR_PORT
from shared.service.changes import Stopping
from shared.service.middleware import BELIEVED
from shared.service.state import service_state
from shared.wire.bounce import Bounced, Rung
from shared.wire.codec import decode, encode
from shared.wire.copy import (
    HEADER_BYTES,
    MAX_CLOSING_BYTES,
    MAX_PORT_WAIT_MS,
    MAX_TAGS_BYTES,
    PORT_TIMING,
    SERVER_TIMING,
    Copied,
    CopyAck,
)
from shared.wire.gpu import MAX_FRAME_BYTES
from shared.wire.stock import MAX_STOCK_FRAME

SPDM_LIMIT = 0x1200  # the transport's shared surface (reference h100.md 4.1)
BOUNCED_LIMIT = 64 * 1024
_PORT: Final = re.compile(r"orchestrator|holder-[a-z0-9][a-z0-9-]{0,62}")


def ports(units: Mapping[str, GpuUnit], buffers: BounceBuffers) -> APIRouter:
    """Routes of every GPU's ports. They take the request as it is, so that none waits for the framework (`shared.service.direct`)."""
    router, frames = APIRouter(prefix="/v1/gpus/{gpu}/ports/{port}", tags=["ports"]), FrameBodies()

    @router.post("/spdm", response_class=Response)
    async def spdm(gpu: str, port: str, request: Request) -> Response:
        """One SPDM message or secured record."""
        unit, body = _orchestrators(units, gpu, port), await _body(request, SPDM_LIMIT)
        return _bytes(await unit.act("spdm", port, lambda: unit.device.spdm(body)), "application/octet-stream")

    @router.post("/commands", response_class=Response)
    async def commands(gpu: str, port: str, request: Request) -> Response:
        """One command frame (CBOR). On a holder's port: a command of stock firmware, in travel mode `paper` only."""
        unit = _unit(units, gpu, port)
        async with frames.whole(request, _frame_limit(unit, port)) as body:
            if port == ORCHESTRATOR_PORT:
                answer = await unit.act("commands", port, lambda: unit.obey(body))
            else:
                answer = await unit.act("copy", port, lambda: unit.device.stock(port, body))
        request.scope[BELIEVED] = True
        return _bytes(answer, "application/cbor")

    @router.post("/copy", response_class=Response)
    async def copy(gpu: str, port: str, request: Request) -> Response:
        """Copy records end to end; the last one's acknowledgement. `wait_ms` (0 to 10000): how long the GPU may take to appear there."""
        unit = _holders(units, gpu, port)
        waited_s = await _arrived(unit, port, request)
        ack = await taken(request, lambda record: unit.copied(port, record))
        request.scope[BELIEVED] = True
        return _acknowledged(ack, waited_s)

    @router.post("/staging", response_class=Response)
    async def staging(gpu: str, port: str, request: Request) -> Response:
        """Copy records end to end, for staging (travel mode `direct`); the MUX need not be switched."""
        unit = _holders(units, gpu, port)
        ack = await taken(request, lambda record: unit.stage(lambda: unit.device.stage(port, record)))
        return _bytes(encode(ack), "application/cbor")

    _bounced(router, units, buffers)
    return router


def _bounced(router: APIRouter, units: Mapping[str, GpuUnit], buffers: BounceBuffers) -> None:
    @router.post("/bounce", response_class=Response)
    async def bounced(gpu: str, port: str, request: Request) -> Response:
        """Copy records that lie in a bounce buffer, by their places (CBOR); the last one's acknowledgement. `wait_ms` as for `copy`."""
        named = decode(Bounced, await _body(request, BOUNCED_LIMIT))
        unit = _holders(units, gpu, port)
        waited_s = await _arrived(unit, port, request)
        ack = await _copied(unit, port, buffers, named)
        request.scope[BELIEVED] = True
        return _acknowledged(ack, waited_s)


class DoorbellCopies:
    """What bounce buffers' doorbells do: the same as their door over HTTP (`gpu_agent.doorbell.Copies`)."""

    def __init__(self, units: Mapping[str, GpuUnit], buffers: BounceBuffers, stopping: Stopping) -> None:
        self._units, self._buffers, self._stopping = units, buffers, stopping
        self._loop = asyncio.get_running_loop()

    def arrives(self, rung: Rung) -> None:
        """As `Copies`."""
        unit = _holders(self._units, rung.gpu, rung.port)
        if unit.mux.selected.port != rung.port:
            wait_s = min(rung.wait_ms, MAX_PORT_WAIT_MS) / 1000
            arriving = unit.presence.arrives(rung.port, wait_s, self._stopping)
            asyncio.run_coroutine_threadsafe(arriving, self._loop).result()

    def copy(self, name: str, rung: Rung) -> Copied:
        """As `Copies`. Raises: GputError: the first refusal."""
        return _copies(_holders(self._units, rung.gpu, rung.port), rung.port, self._buffers, name, rung.places)


async def _copied(unit: GpuUnit, port: str, buffers: BounceBuffers, named: Bounced) -> Copied:
    """Copy what a request names. Raises: GputError: the first refusal."""

    def copies() -> Copied:
        buffers.named(named.buffer, named.number)
        return _copies(unit, port, buffers, named.buffer, named.places)

    return await unit.act("copy", port, copies)


def _copies(unit: GpuUnit, port: str, buffers: BounceBuffers, name: str, places: Sequence[tuple[int, int]]) -> Copied:
    """Copy records at these places of a buffer, one after another; the last one's acknowledgement. Raises: GputError: the first refusal."""
    ack = None
    for offset, length in places:
        unit.mux.require(port)
        ack = unit.device.copy(port, _record(buffers.record(name, offset, length)))
    assert ack is not None  # there is at least one place
    return ack


def _unit(units: Mapping[str, GpuUnit], gpu: str, port: str) -> GpuUnit:
    if _PORT.fullmatch(port) is None:
        raise BadRequest(
            "no port has such a name", code="invalid-port", expected="orchestrator or holder-NAME", got=port[:100]
        )
    return unit_of(units, gpu)


def _orchestrators(units: Mapping[str, GpuUnit], gpu: str, port: str) -> GpuUnit:
    if port != ORCHESTRATOR_PORT:
        raise NotPermitted("SPDM comes on the orchestrator's port only", code="wrong-port")
    return _unit(units, gpu, port)


def _holders(units: Mapping[str, GpuUnit], gpu: str, port: str) -> GpuUnit:
    if port == ORCHESTRATOR_PORT:
        raise NotPermitted("copy records come on holders' ports only", code="wrong-port")
    return _unit(units, gpu, port)


def _frame_limit(unit: GpuUnit, port: str) -> int:
    """How many bytes a command frame on this port may have.

    Raises:
        Conflict `port-not-bound`, NotPermitted `wrong-port`: nobody commands anything on this holder's port now. Nothing was read: nobody
            had to sign it.
    """
    if port == ORCHESTRATOR_PORT:
        return MAX_FRAME_BYTES
    unit.mux.require(port)
    unit.device.require_stock(port)
    return MAX_STOCK_FRAME


async def _body(request: Request, limit: int) -> bytes:
    """The body, at most `limit` bytes."""
    request.scope["gput.body_limit"].bytes = limit
    return await request.body()


async def _arrived(unit: GpuUnit, port: str, request: Request) -> float:
    """Wait for the GPU to appear at the port, as long as the request asks for (`wait_ms`); the seconds that it took.

    Raises:
        BadRequest: code `invalid-wait`.
    """
    said = request.query_params.get("wait_ms", "0")
    if not (said.isascii() and said.isdigit() and len(said) <= 5 and int(said) <= MAX_PORT_WAIT_MS):
        raise BadRequest(
            "wait_ms is no such wait", code="invalid-wait", expected=f"0 to {MAX_PORT_WAIT_MS}", got=said[:100]
        )
    if said == "0":
        return 0.0
    began = time.monotonic()
    await unit.presence.arrives(port, int(said) / 1000, service_state(request.app).stopping)
    return time.monotonic() - began


def _acknowledged(copied: Copied, waited_s: float) -> Response:
    """With how long the GPU was waited for, in the form of W3C Server Timing: to the holder that is no time of writing."""
    waited = {SERVER_TIMING: f"{PORT_TIMING};dur={waited_s * 1000:.3f}"} if waited_s else None
    ack = CopyAck(index=copied.index, received=copied.received, published=copied.published)
    return Response(encode(ack), media_type="application/cbor", headers=waited)


def _record(lying: memoryview) -> bytes | memoryview:
    # What is small is read once: a closing record that changes while it opens would state two things. Data are held to its commitment.
    return bytes(lying) if len(lying) <= MAX_CLOSING_BYTES + HEADER_BYTES + MAX_TAGS_BYTES else lying


def _bytes(content: bytes, media_type: str) -> Response:
    return Response(content, media_type=media_type)
