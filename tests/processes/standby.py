"""A stage with two orchestrators over one PostgreSQL, each a process of its own. Knows no test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from gput.client import AsyncClient, Trust
from gput.local.installation import HolderSpec, Installation
from gput.local.process import Service
from tests.processes.stage import Stage
from tests.world.world_material import Material

LEADER, STANDBY = "orchestrator", "standby"


class PairInstallation(Installation):
    """As Installation, with a standby beside the orchestrator."""

    database_url = ""

    async def start_base(self) -> None:
        await super().start_base()
        own = self.folder / STANDBY
        shared = {"data_dir": own, "shared_dir": self.folder / LEADER}
        await self._ensure(STANDBY, "orchestrator", {**self._orchestrator(), **shared})

    @property
    def both(self) -> str:
        return ",".join(self.services[name].url for name in (LEADER, STANDBY))

    def _orchestrator(self) -> dict[str, Any]:
        return {**super()._orchestrator(), "database_url": self.database_url}

    def _holder(self, holder: HolderSpec) -> dict[str, Any]:
        # Who waits for a process that was stopped hears nothing until the long-poll's own time is over.
        return {**super()._holder(holder), "orchestrator_url": self.both, "inbox_wait_s": 1}


class PairStage(Stage):
    """As Stage; its client knows both addresses."""

    def __init__(self, folder: Path, material: Material, database_url: str) -> None:
        self._database_url = database_url
        super().__init__(folder, material)

    def renew(self) -> None:
        super().renew()
        plain = self.installation
        self.installation = PairInstallation(plain.folder, plain.holders, plain.tuning)
        self.installation.database_url = self._database_url

    async def client(self) -> AsyncClient:
        assert isinstance(self.installation, PairInstallation)
        trust = Trust(self.installation.trust, allow_emulated=True)
        return AsyncClient(self.installation.both, self.installation.owner_key, trust=trust)

    def service(self, name: str) -> Service:
        return self.installation.services[name]

    async def leads(self, name: str, seconds: float = 60.0) -> float:
        """Wait until it does; for how long, in seconds."""
        began = time.monotonic()
        while (await self.ready(name)).status_code != 200:
            assert time.monotonic() - began < seconds, (await self.ready(name)).text
            await asyncio.sleep(0.02)
        return time.monotonic() - began

    async def says(self, name: str, words: str, seconds: float = 60.0) -> None:
        """Wait until its readiness says so."""
        deadline = time.monotonic() + seconds
        while words not in (said := (await self.ready(name)).text):
            assert time.monotonic() < deadline, said
            await asyncio.sleep(0.05)

    async def ready(self, name: str) -> httpx2.Response:
        async with httpx2.AsyncClient(trust_env=False, timeout=10) as http:
            return await http.get(f"{self.service(name).url}/readyz")


@asynccontextmanager
async def paired(folder: Path, material: Material, database_url: str) -> AsyncIterator[PairStage]:
    stage = PairStage(folder, material, database_url)
    try:
        await stage.launch()
        yield stage
    finally:
        await stage.installation.stop()
