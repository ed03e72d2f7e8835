"""The MUX's ports over HTTP: SPDM, command frames, copy records, staging. Knows no key and looks into no body.

Ports authenticate by SPDM records and visit-key AEAD, never by HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response

from gpu_agent.unit import GpuUnit, unit_of
from shared.errors import NotPermitted
from shared.names import ORCHESTRATOR_PORT
from shared.wire.codec import encode
from shared.wire.copy import HEADER_BYTES, TAG_BYTES
from shared.wire.gpu import MAX_BULK_RECORD, MAX_FRAME_BYTES

SPDM_LIMIT = 0x1200  # the transport's shared surface (reference h100.md 4.1)
COPY_LIMIT = MAX_BULK_RECORD + HEADER_BYTES + TAG_BYTES
PortName = Annotated[str, Path(pattern=r"^(orchestrator|holder-[a-z0-9][a-z0-9-]{0,62})$")]


def ports(units: Mapping[str, GpuUnit]) -> APIRouter:
    """Routes of every GPU's ports."""
    router = APIRouter(prefix="/v1/gpus/{gpu}/ports/{port}", tags=["ports"])

    @router.post("/spdm", response_class=Response)
    async def spdm(gpu: str, port: PortName, body: Annotated[bytes, Depends(_body(SPDM_LIMIT))]) -> Response:
        """One SPDM message or secured record."""
        unit = _orchestrators(units, gpu, port)
        return _bytes(await unit.act("spdm", port, lambda: unit.device.spdm(body)), "application/octet-stream")

    @router.post("/commands", response_class=Response)
    async def commands(gpu: str, port: PortName, body: Annotated[bytes, Depends(_body(MAX_FRAME_BYTES))]) -> Response:
        """One command frame (CBOR). On a holder's port: a command of stock firmware, in travel mode `paper` only."""
        unit = unit_of(units, gpu)
        if port == ORCHESTRATOR_PORT:
            answer = await unit.act("commands", port, lambda: unit.device.commands(body))
        else:
            answer = await unit.act("copy", port, lambda: unit.device.stock(port, body))
        return _bytes(answer, "application/cbor")

    @router.post("/copy", response_class=Response)
    async def copy(gpu: str, port: PortName, body: Annotated[bytes, Depends(_body(COPY_LIMIT))]) -> Response:
        """One copy record."""
        unit = _holders(units, gpu, port)
        ack = await unit.act("copy", port, lambda: unit.device.copy(port, body))
        return _bytes(encode(ack), "application/cbor")

    @router.post("/staging", response_class=Response)
    async def staging(gpu: str, port: PortName, body: Annotated[bytes, Depends(_body(COPY_LIMIT))]) -> Response:
        """One copy record for staging (travel mode `direct`); the MUX need not be switched."""
        unit = _holders(units, gpu, port)
        return _bytes(encode(await unit.stage(lambda: unit.device.stage(port, body))), "application/cbor")

    return router


def _orchestrators(units: Mapping[str, GpuUnit], gpu: str, port: str) -> GpuUnit:
    if port != ORCHESTRATOR_PORT:
        raise NotPermitted("SPDM comes on the orchestrator's port only", code="wrong-port")
    return unit_of(units, gpu)


def _holders(units: Mapping[str, GpuUnit], gpu: str, port: str) -> GpuUnit:
    if port == ORCHESTRATOR_PORT:
        raise NotPermitted("copy records come on holders' ports only", code="wrong-port")
    return unit_of(units, gpu)


def _body(limit: int) -> Callable[[Request], Any]:
    """A dependency: the body, at most `limit` bytes."""

    async def read(request: Request) -> bytes:
        request.scope["gput.body_limit"].bytes = limit
        return await request.body()

    return read


def _bytes(content: bytes, media_type: str) -> Response:
    return Response(content, media_type=media_type)
