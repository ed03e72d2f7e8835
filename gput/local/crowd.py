"""A session of many holders and a tiny program, in separate processes on this machine: where what a visit itself costs is all there is.

Knows the launcher and the client; measures nothing.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from gput.client import AsyncClient
from gput.local.installation import HolderSpec, Installation
from gput.local.job import EMULATED, Plan, Say, policy_text, run_module
from shared.claims.archive import Archive, open_archive
from shared.claims.manifest import Manifest, RosterEntry
from shared.claims.training import AdamW, TrainingOptions

FEATURES, CLASSES, BATCH, RECORDS = 8, 2, 4, 64
OPTIONS = {"features": FEATURES, "classes": CLASSES, "hidden": "8"}


class Crowd:
    """`holders` holders and one session of at least `visits` visits, one step of four records each."""

    def __init__(self, folder: Path, visits: int, holders: int, say: Say) -> None:
        self.folder, self.say = folder.absolute(), say
        self.names = [f"h{number:03}" for number in range(holders)]
        self.rounds = -(-visits // holders)
        policy = self.folder / "policy.toml"
        specs = [HolderSpec(name, {"corpus": self.folder / "data" / f"{name}.npz"}, policy) for name in self.names]
        self.installation = Installation(self.folder / "services", specs)
        self.session = ""
        self.client: AsyncClient | None = None

    async def start(self) -> AsyncClient:
        """Data, program, processes, submission; the owner's client, which ends with `stop`."""
        self.say("making data and program …")
        await asyncio.to_thread(self._write_data)
        await asyncio.to_thread(self.installation.prepare)
        archive = await self._build()
        (self.folder / "policy.toml").write_text(
            policy_text(Plan(batch=BATCH), f'digests = ["{archive.digest.hex()}"]')
        )
        self.say(f"starting {len(self.names)} holders …")
        await self.installation.start()
        client = self.client = AsyncClient(self.installation.services["orchestrator"].url, self.installation.owner_key)
        for name in self.names:
            await client.enrol(name, self.installation.holder_key(name).public)
        await client.upload_program((self.folder / "program.gput").read_bytes())
        await client.upload_weights((self.folder / "program.safetensors").read_bytes())
        self.session = str((await client.submit(self._manifest(archive)))["id"])
        return client

    async def stop(self) -> None:
        """Stop every process."""
        if self.client is not None:
            await self.client.close()
        await self.installation.stop()

    def processes(self) -> dict[str, int]:
        """Ids of the processes that run, by service."""
        return {name: service.pid for name, service in self.installation.services.items() if service.pid}

    def folders(self) -> dict[str, Path]:
        """Where services keep their state."""
        place = self.installation.folder
        return {
            "orchestrator": place / "orchestrator",
            "holder": place / f"holder-{self.names[0]}",
            "agent": place / "agent",
        }

    def _write_data(self) -> None:
        import numpy as np  # here: every command would pay for it

        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(self.names):
            features = np.random.default_rng(number).standard_normal((RECORDS, FEATURES)).astype("<f4")
            label = (features[:, 0] > 0).astype("<i8")
            np.savez(self.folder / "data" / f"{name}.npz", features=features, label=label)

    async def _build(self) -> Archive:
        path = self.folder / "program.gput"
        options = [f"--option={name}={value}" for name, value in OPTIONS.items()]
        await run_module("gput", "program", "build", "classifier", "-o", str(path), *options)
        return open_archive(path.read_bytes())

    def _manifest(self, archive: Archive) -> Manifest:
        keys = {name: self.installation.holder_key(name).fingerprint for name in self.names}
        fields: dict[str, Any] = {
            "name": "bench: a long life", "program": archive.digest.hex(), "gpu_evidence": EMULATED,
            "orchestrator_evidence": EMULATED, "rounds": self.rounds, "steps_per_visit": 1, "privacy_floor": BATCH,
            "buffer_bytes": 4096, "training": TrainingOptions(optimizer=AdamW(lr=1e-3), batch_size=BATCH, seed=1),
            "roster": tuple(RosterEntry(holder=name, key=key, evidence=EMULATED) for name, key in keys.items()),
        }  # fmt: skip
        return Manifest(**fields)
