"""MUX control over HTTP, for the enrolled orchestrator only. Knows no CVM and no agent.

A visit waits for two switches: they are served directly (`shared.service.direct`).
"""

from __future__ import annotations

from fastapi import APIRouter, Depends
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from gpu_agent.platform.mux_control import MuxControl, MuxState
from shared.claims import Claim
from shared.names import Role
from shared.service.callers import caller_with, require
from shared.service.direct import described, document


class MuxRequest(Claim):
    """Bind to `orchestrator`, `holder-X`, or null for nobody."""

    port: str | None = Field(examples=["orchestrator", "holder-hospital-a", None])


class MuxAnswer(Claim):
    """The state in force after a switch."""

    gpu: str
    port: str | None
    switches: int


class MuxList(Claim):
    """All GPUs of this platform."""

    items: list[MuxAnswer]


def mux_routes(control: MuxControl) -> APIRouter:
    """MUX control, by the enrolled orchestrator only."""
    router = APIRouter(prefix="/v1/gpus", tags=["mux"])

    @router.get("", dependencies=[Depends(require(Role.ORCHESTRATOR))])
    async def list_gpus() -> MuxList:
        """Which port each GPU is bound to."""
        return MuxList(items=[_answer(state) for state in control.states()])

    @router.put("/{gpu}/mux", response_class=Response, openapi_extra=described(MuxRequest))
    async def switch(gpu: str, request: Request) -> Response:
        """Bind one GPU to one port; in force when answered (with the state, JSON)."""
        await caller_with(request, Role.ORCHESTRATOR)
        wanted = await document(request, MuxRequest)
        return Response(
            _answer(await control.switch(gpu, wanted.port)).model_dump_json(), media_type="application/json"
        )

    return router


def _answer(state: MuxState) -> MuxAnswer:
    return MuxAnswer(gpu=state.gpu, port=state.port, switches=state.switches)
