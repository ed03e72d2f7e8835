"""HTTP surface of an agent whose GPU is real: evidence over a caller's nonce, and nothing else. Knows no MUX, no session and no verifier.

A stock GPU has no command processor that could travel, and no statement key: every other door of the agent answers `not-available`.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Literal, TypeVar

from fastapi import APIRouter, FastAPI
from pydantic import Field

from gpu_agent.evidence.source import DriverFacts, EvidenceSource
from gpu_agent.settings import AgentSettings
from gpu_agent.views import GpuList, GpuView, not_available
from shared.claims import Claim
from shared.errors import ConfigurationError, NotFound, Unavailable
from shared.service.app import SHORT_BODY, add_routes, create_service_app
from shared.service.clock import Clock, Entropy, system_clock, system_entropy
from shared.wire.visit import Base64, Nonce

TITLE, VERSION = "GPU Travelling agent (evidence only)", "1"
MAX_WAITING = 8
WHY = "stock firmware has no travelling command processor"
Door = Literal["spdm", "commands", "copy"]
T = TypeVar("T")


class EvidenceRequest(Claim):
    """The verifier's 32 bytes, hex; they must be fresh, or the answer proves nothing."""

    nonce: Nonce = Field(examples=["5a" * 32])


class GpuEvidenceView(Claim):
    """Evidence of one GPU, unverified. `statement_key` is "" : the device has none. `driver` is what the driver says, and no evidence."""

    gpu: str
    backend: str
    report: Base64
    chain: str
    statement_key: Base64
    driver: DriverFacts


class AttestedUnit:
    """One real GPU and the one thread that may ask it: the library blocks, and the GPU answers one at a time."""

    def __init__(self, source: EvidenceSource) -> None:
        self._source, self._waiting = source, 0
        self._thread = ThreadPoolExecutor(1, "gpu-evidence")

    @property
    def gpu(self) -> str:
        """Its id."""
        return self._source.gpu_id

    def view(self) -> GpuView:
        """Public facts."""
        backend = self._source.backend.value
        return GpuView(
            gpu=self.gpu,
            backend=backend,
            port=None,
            switches=0,
            boot_counter=None,
            memory_bytes=None,
            statement_certificate="",
        )

    async def evidence(self, nonce: bytes) -> GpuEvidenceView:
        """Evidence over 32 bytes. Raises: BadRequest. Unavailable: `gpu-evidence`, `gpu-busy`."""
        made = await self._asked(lambda: self._source.attest(nonce))
        return GpuEvidenceView(
            gpu=self.gpu,
            backend=self._source.backend.value,
            report=base64.b64encode(made.report).decode(),
            chain=made.chain,
            statement_key="",
            driver=await self._asked(self._source.facts),
        )

    async def ready(self) -> None:
        """Whether the driver answers. Raises: Unavailable."""
        await self._asked(self._source.facts)

    def close(self) -> None:
        """Release the device when what runs has ended."""
        self._thread.shutdown(wait=True)
        self._source.close()

    async def _asked(self, act: Callable[[], T]) -> T:
        if self._waiting >= MAX_WAITING:
            raise Unavailable("too many requests wait for this GPU's evidence", code="gpu-busy", retry_after_s=1)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, act)
        finally:
            self._waiting -= 1


def create_evidence_app(
    settings: AgentSettings,
    base_url: str,
    source: EvidenceSource,
    *,
    clock: Clock = system_clock,
    entropy: Entropy = system_entropy,
) -> FastAPI:
    """The application of an agent that serves one real GPU's evidence.

    Raises:
        ConfigurationError: settings that only an emulated GPU has are set.
    """
    try:
        settings.refuse_emulated()
    except ConfigurationError:
        source.close()
        raise
    unit = AttestedUnit(source)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.to_thread(unit.close)

    app = create_service_app(
        TITLE, VERSION, settings=settings, lifespan=lifespan, checks={"gpu": unit.ready}, base_url=base_url, clock=clock,
        entropy=entropy, longest_body=SHORT_BODY,
    )  # fmt: skip
    add_routes(app, _evidence(unit))
    add_routes(app, _absent_doors(unit))
    return app


def _evidence(unit: AttestedUnit) -> APIRouter:
    router = APIRouter(prefix="/v1/gpus", tags=["gpus"])

    @router.get("")
    async def list_gpus() -> GpuList:
        """Public facts of the GPU."""
        return GpuList(items=[unit.view()])

    @router.get("/{gpu}")
    async def get_gpu(gpu: str) -> GpuView:
        """Public facts of one GPU."""
        _require(unit, gpu)
        return unit.view()

    @router.post("/{gpu}/evidence")
    async def evidence(gpu: str, wanted: EvidenceRequest) -> GpuEvidenceView:
        """A fresh report over the nonce, and the certificate chain."""
        _require(unit, gpu)
        return await unit.evidence(bytes.fromhex(wanted.nonce))

    return router


def _absent_doors(unit: AttestedUnit) -> APIRouter:
    router = APIRouter(tags=["not available"])

    @router.post("/v1/gpus/{gpu}/ports/{port}/{door}")
    async def port(gpu: str, port: str, door: Door) -> None:
        """No port of this GPU takes messages."""
        _require(unit, gpu)
        raise not_available(gpu, f"{door} on port {port}", WHY)

    @router.put("/v1/platform/gpus/{gpu}/mux")
    async def switch(gpu: str) -> None:
        """There is no MUX to switch."""
        _require(unit, gpu)
        raise not_available(gpu, "the MUX", WHY)

    return router


def _require(unit: AttestedUnit, gpu: str) -> None:
    if gpu != unit.gpu:
        raise NotFound(f"this agent has no GPU {gpu!r}", code="unknown-gpu")
