"""HTTP surface of the GPU agent: public facts and the platform's switch, beside the MUX's ports. Powers the GPU on; knows no key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, FastAPI
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from gpu_agent.boot_counter import BootCounter
from gpu_agent.bounce import BounceBuffers
from gpu_agent.crew import Crew
from gpu_agent.engines import open_engines
from gpu_agent.evidence import open_source
from gpu_agent.evidence.api import create_evidence_app
from gpu_agent.hardware.device import Device
from gpu_agent.hardware.mux import Mux
from gpu_agent.hardware.root_of_trust import RootOfTrust
from gpu_agent.leaf_crew import LeafCrew
from gpu_agent.metrics import GpuCollector
from gpu_agent.mux_interrupt import interrupt_of, interrupts
from gpu_agent.mux_register import SelectedPort, register_of
from gpu_agent.ports import DoorbellCopies, ports
from gpu_agent.settings import AgentSettings
from gpu_agent.unit import GpuUnit, unit_of
from gpu_agent.views import GpuList, GpuView, not_available
from shared.claims import Claim
from shared.crypto.signing import fingerprint, load_public
from shared.errors import BadRequest, ConfigurationError, GputError
from shared.names import PORT_PATTERN, Role
from shared.service.app import SHORT_BODY, Lifespan, add_routes, create_service_app
from shared.service.callers import caller_with
from shared.service.clock import Clock, Entropy, system_clock, system_entropy
from shared.service.data_dir import Room
from shared.service.direct import described, document
from shared.service.logging import get_logger
from shared.service.migrations import upgrade
from shared.service.replay import ReplayWindow
from shared.service.signatures import KeyResolver, KnownKey
from shared.service.state import service_state
from shared.service.store import Store

TITLE, VERSION = "GPU Travelling agent (EMULATED)", "1"

_log = get_logger("gpu")


class MuxRequest(Claim):
    """Bind to `orchestrator`, `holder-X`, or null for nobody."""

    port: Annotated[str, Field(pattern=PORT_PATTERN)] | None = Field(
        examples=["orchestrator", "holder-hospital-a", None]
    )


def build_gpu(settings: AgentSettings, clock: Clock = system_clock, entropy: Entropy = system_entropy) -> GpuUnit:
    """Power on the GPU of `settings`.

    Raises:
        ConfigurationError: the device's identity, the boot counter, or the memory that the settings name cannot be used.
    """
    device_dir, _ = settings.emulated()
    root, name = RootOfTrust.load(device_dir, entropy), device_dir.name
    boots = BootCounter(settings.data_dir / f"{name}.boot")
    crew = Crew()
    hbm, compute = open_engines(settings, entropy, crew)

    def report(error: BaseException) -> None:
        # Without the traceback's values: frames of the device may hold plaintext. Our own errors' words quote nothing (shared.errors).
        told = {"code": error.code, "detail": error.detail} if isinstance(error, GputError) else {}
        _log.error("device fault", gpu=name, fault=type(error).__name__, **told)

    device = Device(
        name, root, hbm, compute, entropy=entropy, clock=clock, timer=time.monotonic, next_boot=boots.advance,
        report=report, hash_leaves=LeafCrew(crew),
    )  # fmt: skip
    if settings.mux_registers is None:
        return GpuUnit(device, compute, Mux(tuple(settings.ports)), crew.close)
    register = SelectedPort(register_of(settings.mux_registers, name))

    def closed() -> None:
        crew.close()
        register.close()

    return GpuUnit(device, compute, Mux(tuple(settings.ports), register), closed)


def create_app(
    settings: AgentSettings,
    base_url: str,
    *,
    units: Mapping[str, GpuUnit] | None = None,
    clock: Clock = system_clock,
    entropy: Entropy = system_entropy,
) -> FastAPI:
    """The agent's application. `units` replaces the GPU that the settings name (tests).

    Raises:
        ConfigurationError: a key file, the device's identity or the real GPU that the settings name cannot be used.
    """
    source = open_source(settings.evidence)
    if source is not None:
        return create_evidence_app(settings, base_url, source, clock=clock, entropy=entropy)
    platform = _platform_key(settings.emulated()[1])
    store_url = settings.store_url  # makes data_dir
    upgrade(store_url, "gpu_agent")
    if units is None:
        unit = build_gpu(settings, clock, entropy)
        units = {unit.device.gpu_id: unit}
    store, buffers = Store(store_url), BounceBuffers(settings.bounce_bytes, entropy, settings.bounce_connections)
    app = create_service_app(
        TITLE, VERSION, settings=settings, store=store, keys=_only(platform),
        checks={"data_dir": Room(settings.data_dir).check},
        lifespan=_power(units, buffers, settings.bounce_socket, settings.mux_registers),
        # Not durable before the act: a switch that is replayed right after a crash only misroutes ciphertext, and a visit must not
        # pay for a commit here (nothing secret depends on the MUX).
        replay=ReplayWindow(store, clock), base_url=base_url, clock=clock, entropy=entropy, longest_body=SHORT_BODY,
    )  # fmt: skip
    service_state(app).registry.register(GpuCollector(units))
    add_routes(app, _public(units))
    add_routes(app, ports(units, buffers))
    add_routes(app, _platform(units))
    return app


def _platform_key(path: FilePath) -> bytes:
    try:
        return load_public(path.read_bytes())
    except (OSError, BadRequest) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigurationError(
            f"the platform's public key {path} cannot be used: {why}",
            code="platform-key",
            remedy="Point platform_key at the platform's mux.pub.",
        ) from None


@contextmanager
def _heard(units: Mapping[str, GpuUnit], registers: FilePath | None) -> Iterator[None]:
    """Inside the block whoever waits at a port hears of a switch by the interrupt of its GPU's register."""
    with ExitStack() as boxes:
        if registers is not None:
            for name, unit in units.items():
                boxes.enter_context(interrupts(interrupt_of(register_of(registers, name)), unit.presence.switched))
        yield


def _power(
    units: Mapping[str, GpuUnit], buffers: BounceBuffers, socket: FilePath | None, registers: FilePath | None
) -> Lifespan:
    @asynccontextmanager
    async def power(app: FastAPI) -> AsyncIterator[None]:
        copies = DoorbellCopies(units, buffers, service_state(app).stopping)
        for unit in units.values():
            unit.compute.spawn()
        try:
            with _heard(units, registers):
                async with buffers.served(socket, copies) if socket is not None else nullcontext():
                    yield
        finally:
            for unit in units.values():
                await asyncio.to_thread(unit.power_off)

    return power


def _only(platform: bytes) -> KeyResolver:
    known = KnownKey(platform, "platform", frozenset({Role.PLATFORM}))

    async def resolve(keyid: str) -> KnownKey | None:
        return known if keyid == fingerprint(platform) else None

    return resolve


def _public(units: Mapping[str, GpuUnit]) -> APIRouter:
    router = APIRouter(prefix="/v1/gpus", tags=["gpus"])

    @router.get("")
    async def list_gpus() -> GpuList:
        """Public facts of all GPUs."""
        return GpuList(items=[unit.view() for unit in units.values()])

    @router.get("/{gpu}")
    async def get_gpu(gpu: str) -> GpuView:
        """Public facts of one GPU."""
        return unit_of(units, gpu).view()

    @router.post("/{gpu}/evidence")
    async def evidence(gpu: str) -> None:
        """Not here: an emulated GPU has no driver that would ask it for others; see port `orchestrator`."""
        unit_of(units, gpu)
        raise not_available(gpu, "evidence outside a session", "it reports inside its SPDM session only")

    return router


def _platform(units: Mapping[str, GpuUnit]) -> APIRouter:
    router = APIRouter(prefix="/v1/platform/gpus", tags=["platform"])

    @router.put("/{gpu}/mux", response_class=Response, openapi_extra=described(MuxRequest))
    async def switch(gpu: str, request: Request) -> Response:
        """Bind one GPU to one port; in force when answered."""
        await caller_with(request, Role.PLATFORM)
        wanted, unit = await document(request, MuxRequest), unit_of(units, gpu)
        unit.mux.bind(wanted.port)
        unit.presence.switched()
        return Response(unit.view().model_dump_json(), media_type="application/json")

    return router
