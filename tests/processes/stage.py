"""One installation of real processes with its owner's client: launch, kill, submit, wait. Knows no test."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gput.client import UNATTESTED, AsyncClient
from gput.local.installation import HolderSpec, Installation
from tests.world.world import OFTEN
from tests.world.world_material import HOLDERS, Material

ENDED = ("COMPLETED", "FAILED", "CANCELLED")


class Stage:
    """One installation with its client; `launch` and `renew` play the launcher's life and death."""

    def __init__(self, folder: Path, material: Material) -> None:
        self.folder, self.material = material.copy(folder), material
        self.session = ""
        self.renew()

    def renew(self) -> None:
        """A new launcher over the same files, which knows no running process."""
        specs = [
            HolderSpec(
                name,
                {"ehr": self.folder / f"holder-{name}" / "ehr.npz"},
                self.folder / f"holder-{name}" / "policy.toml",
            )
            for name in HOLDERS
        ]
        self.installation = Installation(self.folder, specs, OFTEN)

    async def launch(self) -> None:
        """Start what does not run, over the same files."""
        await self.installation.start()

    def pids(self) -> dict[str, int]:
        return {name: service.pid for name, service in self.installation.services.items() if service.pid is not None}

    def kill(self, *names: str) -> None:
        """SIGKILL; the agent's compute processes are left to notice by themselves."""
        for name, pid in self.pids().items():
            if not names or name in names:
                os.kill(pid, signal.SIGKILL)

    async def gone(self, *names: str) -> None:
        for name, service in self.installation.services.items():
            if not names or name in names:
                async with asyncio.timeout(60):
                    await service.ended()

    async def client(self) -> AsyncClient:
        return AsyncClient(
            self.installation.services["orchestrator"].url, self.installation.owner_key, trust=UNATTESTED
        )

    async def submit(self, **changes: Any) -> None:
        """Enrol, upload, submit the usual session of four rounds."""
        async with await self.client() as owner:
            for name in HOLDERS:
                await owner.enrol(name, self.material.keys[name].public)
            await owner.upload_program(self.material.archive)
            await owner.upload_weights(self.material.weights)
            await owner.upload_validation(self.material.validation)
            self.session = (await owner.submit(self.material.manifest(**({"rounds": 4} | changes))))["id"]

    async def until(self, condition: Callable[[Any], bool], seconds: float = 60.0) -> Any:
        deadline = time.monotonic() + seconds
        async with await self.client() as owner:
            while True:
                view = await owner.session(self.session)
                if condition(view):
                    return view
                assert time.monotonic() < deadline, view
                assert view["phase"] not in ENDED, view
                await asyncio.sleep(0.02)

    async def end(self) -> Any:
        view = await self.until(lambda view: view["phase"] in ENDED)
        assert view["phase"] == "COMPLETED", view["failure"]
        return view


@asynccontextmanager
async def staged(folder: Path, material: Material) -> AsyncIterator[Stage]:
    stage = Stage(folder, material)
    try:
        await stage.launch()
        yield stage
    finally:
        await stage.installation.stop()
