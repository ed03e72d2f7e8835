"""`python -m gput.local.travel.relay`: the orchestrator of conventional data sharing, for `gput bench travel` and nothing else.

It takes a holder's sealed records, opens them, and seals them again to the GPU, over the orchestrator's own command channel. So it sees
every record in the clear, which is what the bench compares travelling with; the product's orchestrator has no such route. Nobody attests it
or signs its answers: that only spares the conventional way time.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from pydantic import Field
from pydantic_settings import SettingsConfigDict

from gput.local.job import EMULATED
from gput.local.travel.sharing import Inbound
from orchestrator.gpu_session.bulk import records_of
from orchestrator.gpu_session.life import GpuLife, GpuRoom, Opening, open_spdm
from orchestrator.gpu_session.link import AgentLink
from orchestrator.platform_link import Mux
from shared.attestation.gpu_policy import GpuTrust
from shared.canonical import sha256
from shared.claims.archive import open_archive
from shared.crypto.hpke import OneTimeKey
from shared.crypto.signing import PartyKey
from shared.errors import ConfigurationError, NotFound
from shared.names import RegionKind
from shared.service.app import add_routes, create_service_app
from shared.service.clock import system_clock, system_entropy
from shared.service.http import Peers
from shared.service.server import service_main
from shared.service.settings import ServiceSettings
from shared.service.signatures import SignedAuth
from shared.wire.gpu import Configure, InitModel, InitSession, SetReady, Sweep, Upload, UploadProgram
from shared.wire.gpu_answers import Configured, Swept

GPU, PAGE, SESSION = "gpu-0", 4096, "s_conventional0000"


class RelaySettings(ServiceSettings):
    """The bench's conventional orchestrator: one GPU, one region of `region_bytes` for records."""

    model_config = SettingsConfigDict(env_prefix="GPUT_BENCH_RELAY_", extra="forbid")

    agent_url: str = Field(description="base URL of the GPU agent")
    platform_url: str = Field(description="base URL of the platform's MUX control")
    identity: Path = Field(description="the key that the platform obeys")
    program: Path = Field(description="archive of the program that the GPU is set up with")
    region_bytes: int = Field(ge=1, description="largest transfer")


class Relay:
    """One GPU with its region, and the transfer under way."""

    def __init__(self, life: GpuLife, region: int) -> None:
        self._life, self._region = life, region
        self._key: OneTimeKey | None = None
        self._inbound: Inbound | None = None
        self._uploading: asyncio.Task[None] | None = None
        self._overlap = True
        self.opened = self.sealed = 0
        self.upload_s = 0.0

    def offer(self, overlap: bool) -> bytes:
        """Begin a transfer: the public key to seal its traffic key to. Without `overlap` each record is answered when the GPU has it."""
        self._key, self._inbound, self._overlap = OneTimeKey.generate(), None, overlap
        return self._key.public

    def accept(self, sealed: bytes) -> None:
        """The traffic key. Raises: VerificationFailed, ProtocolViolation; NotFound: nothing was begun."""
        if self._key is None:
            raise NotFound("no transfer was begun")
        self._inbound = Inbound.opened(self._key, sealed)

    async def take(self, record: bytes) -> int:
        """One sealed record; bytes of the transfer so far. The last is answered when all lie in the GPU.

        Raises:
            VerificationFailed, ProtocolViolation: it is not the next one. Unavailable…: the GPU did not take the one before.
        """
        if self._inbound is None:
            raise NotFound("no transfer was begun")
        offset, plaintext, last = await asyncio.to_thread(self._inbound.open, record)
        self.opened += 1
        await self._landed()
        self._uploading = asyncio.create_task(self._upload(offset, plaintext))
        if last or not self._overlap:
            await self._landed()
        return offset + len(plaintext)

    async def digest(self) -> str:
        """BLAKE3 (hex) of the whole region, read back by the GPU."""
        return (await self._life.batch([Sweep()])).answer(0, Swept).validation

    async def _landed(self) -> None:
        uploading, self._uploading = self._uploading, None
        if uploading is not None:
            await uploading

    async def _upload(self, offset: int, plaintext: bytes) -> None:
        command = Upload(region=self._region, offset=offset, length=len(plaintext), records=1)
        began = time.perf_counter()
        await self._life.batch([command], [plaintext])
        self.upload_s += time.perf_counter() - began
        self.sealed += 1


async def open_gpu(settings: RelaySettings, peers: Peers) -> Relay:
    """Attest the GPU, open a life on it and set it up: as the product's orchestrator does, with its parts.

    Raises:
        VerificationFailed: evidence. Unavailable: agent or platform. ConfigurationError: trust folder or program.
    """
    if settings.trust_dir is None:
        raise ConfigurationError("No trust folder is set", remedy="Set trust_dir.")
    key = PartyKey.load(settings.identity)
    auth = SignedAuth(key, system_clock, system_entropy)
    await Mux(peers.peer(settings.platform_url, "platform", auth=auth), GPU).home()
    link = AgentLink(peers.peer(settings.agent_url, "GPU agent"), GPU)
    facts = await link.facts()
    opening = Opening(1, facts.boot_counter + 1, None)
    spdm = await open_spdm(link, opening, key.public, system_entropy)
    room = GpuRoom(GpuTrust.load(settings.trust_dir), settings.allow_emulated)
    life = GpuLife(
        link, spdm, opening, room, EMULATED, system_clock, system_entropy, facts.certificate
    )  # fmt: skip
    await life.attest(key.public, 0, None)
    await life.open()
    return Relay(life, await _set_up(life, settings))


async def _set_up(life: GpuLife, settings: RelaySettings) -> int:
    content = settings.program.read_bytes()
    program = open_archive(content).manifest
    room = -(-program.records.record_bytes * program.defaults.batch_size // PAGE) * PAGE  # for a visit that never comes
    configure = Configure(
        options=program.defaults, total_steps=1, buffer_bytes=room, validation_bytes=settings.region_bytes, loss_decimals=4,
        privacy_floor=1,
    )  # fmt: skip
    pieces = records_of(content)
    upload = UploadProgram(length=len(content), records=len(pieces))
    init = InitSession(session=SESSION, manifest=sha256(content).hex())
    regions = (await life.batch([init, upload, configure], pieces)).answer(2, Configured).regions
    await life.batch([InitModel(source="uploaded"), SetReady()])  # of zeros: no transfer asks for the model
    return next(region.handle for region in regions if region.kind is RegionKind.VALIDATION)


def create_app(settings: RelaySettings, base_url: str) -> FastAPI:
    """The relay as an application; it sets the GPU up before it listens."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with Peers(timeout_s=60.0) as peers:
            app.state.relay = await open_gpu(settings, peers)
            yield

    app = create_service_app("bench relay", "1", settings=settings, lifespan=lifespan, base_url=base_url)
    add_routes(app, _routes())
    return app


def _routes() -> APIRouter:
    router = APIRouter(prefix="/v1")

    def relay(request: Request) -> Relay:
        found: Relay = request.app.state.relay
        return found

    @router.post("/transfer")
    async def begin(request: Request, overlap: bool = True) -> dict[str, str]:
        """A transfer begins; one at a time."""
        return {"public_key": relay(request).offer(overlap).hex()}

    @router.put("/transfer/key", status_code=204)
    async def key(request: Request) -> None:
        """Its traffic key, sealed."""
        relay(request).accept(await request.body())

    @router.post("/transfer/records")
    async def record(request: Request) -> dict[str, int]:
        """Its next record, sealed."""
        return {"received": await relay(request).take(await request.body())}

    @router.get("/counts")
    async def counts(request: Request) -> dict[str, Any]:
        """Records opened, and sealed again; seconds that the GPU took for these."""
        found = relay(request)
        return {"opened": found.opened, "sealed": found.sealed, "upload_s": found.upload_s}

    @router.get("/digest")
    async def digest(request: Request) -> dict[str, str]:
        """What lies in the GPU."""
        return {"digest": await relay(request).digest()}

    return router


if __name__ == "__main__":
    sys.exit(service_main(RelaySettings, create_app))
