"""A session of many holders over made-up records, in separate processes on this machine: by default of a tiny program, where what a visit
itself costs is all there is.

Knows the launcher and the client; measures nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from gput.client import AsyncClient
from gput.files import content
from gput.local.installation import HolderSpec, Installation
from gput.local.job import EMULATED, Say, policy_file, run_module
from gput.local.made_up import arrays
from gput.local.opening import opened, weights_beside
from shared.claims.archive import Archive, open_archive
from shared.claims.manifest import Manifest, RosterEntry
from shared.claims.records import RecordSchema
from shared.claims.training import AdamW, TrainingOptions
from shared.names import TravelMode

CLASSES, HIDDEN, PAGE = 2, 8, 4096
LEAST_RECORDS = 64


@dataclass(frozen=True)
class Load:
    """What visits carry and train. `steps`: of a visit, by turns of the holders; `program`: an archive, its weights beside it where it
    names any, None: a classifier of so many `features`; `training`: other options than the program's own; `mode`: how it travels."""

    steps: tuple[int, ...] = (1,)
    program: Path | None = None
    training: TrainingOptions | None = None
    features: int = 8
    mode: TravelMode = TravelMode.SCOPED


TINY = Load(training=TrainingOptions(optimizer=AdamW(lr=1e-3), batch_size=4, seed=1))


class Crowd:
    """`holders` holders and one session of at least `visits` visits; one step of four records each, if `load` says nothing else."""

    def __init__(
        self, folder: Path, visits: int, holders: int, say: Say, load: Load = TINY,
        tuning: Mapping[str, float | str] | None = None,
    ) -> None:  # fmt: skip
        self.folder, self.say, self._load = folder.absolute(), say, load
        self.names = [f"h{number:03}" for number in range(holders)]
        self.rounds = -(-visits // holders)
        policy = self.folder / "policy.toml"
        specs = [HolderSpec(name, {"corpus": self.folder / "data" / f"{name}.npz"}, policy) for name in self.names]
        self.installation = Installation(self.folder / "services", specs, tuning or {})
        self.session = ""
        self._program_of: tuple[Archive, TrainingOptions] | None = None
        self.client: AsyncClient | None = None

    async def start(self) -> AsyncClient:
        """Data, program, processes, submission; the owner's client, which ends with `stop`.

        Raises:
            BadRequest: the load's program cannot be read, or its weights do not lie beside it.
        """
        client = await self.open()
        await self.submit(self._load.steps)
        return client

    async def open(self) -> AsyncClient:
        """As `start`, up to the submission."""
        self.say("making data and program …")
        archive, weights = await self._program()
        training = self._load.training or archive.manifest.defaults
        await asyncio.to_thread(self._write_data, archive.manifest.records, training.batch_size)
        await asyncio.to_thread(self.installation.prepare)
        (self.folder / "policy.toml").write_text(
            policy_file(
                "corpus", f'digests = ["{archive.digest.hex()}"]', rounds=self.rounds, floor=training.batch_size,
                parties=len(self.names), mode=self._load.mode,
            )
        )  # fmt: skip
        self.say(f"starting {len(self.names)} holders …")
        program = (self.folder / "program.gput").read_bytes()
        self.client = await opened(self.installation, program, [] if weights is None else [weights])
        self._program_of = archive, training
        return self.client

    async def submit(self, steps: tuple[int, ...]) -> str:
        """Submit a session whose visits train so many steps, by turns of the holders; at most as many as the load's. After `open`."""
        if self.client is None or self._program_of is None:
            raise RuntimeError("nothing runs that a session could be submitted to")
        self.session = str((await self.client.submit(self._manifest(*self._program_of, steps)))["id"])
        return self.session

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

    def _write_data(self, schema: RecordSchema, batch: int) -> None:
        import numpy as np  # here: every command would pay for it

        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        count = max(LEAST_RECORDS, max(self._load.steps) * batch)
        for number, name in enumerate(self.names):
            made: dict[str, Any] = arrays(schema, count, number)
            np.savez(self.folder / "data" / f"{name}.npz", **made)

    async def _program(self) -> tuple[Archive, bytes | None]:
        """The archive, which then lies in the folder, and the weights that it names."""
        path, given = self.folder / "program.gput", self._load.program
        self.folder.mkdir(parents=True, exist_ok=True)
        if given is None:
            sizes = {"features": self._load.features, "classes": CLASSES, "hidden": HIDDEN}
            options = [f"--option={name}={value}" for name, value in sizes.items()]
            await run_module("gput", "program", "build", "classifier", "-o", str(path), *options)
        else:
            path.write_bytes(await asyncio.to_thread(content, given, "no-program"))
        archive = open_archive(path.read_bytes())
        return archive, await asyncio.to_thread(weights_beside, archive, given or path)

    def _manifest(self, archive: Archive, training: TrainingOptions, lengths: tuple[int, ...]) -> Manifest:
        keys = {name: self.installation.holder_key(name).fingerprint for name in self.names}
        roster = tuple(
            RosterEntry(holder=name, key=key, evidence=EMULATED, steps_per_visit=steps)
            for (name, key), steps in zip(keys.items(), cycle(lengths), strict=False)
        )
        longest = max(lengths) * training.batch_size * archive.manifest.records.record_bytes
        fields: dict[str, Any] = {
            "name": "bench", "program": archive.digest.hex(), "gpu_evidence": EMULATED, "orchestrator_evidence": EMULATED,
            "rounds": self.rounds, "steps_per_visit": lengths[0], "privacy_floor": training.batch_size,
            "roster": roster, "buffer_bytes": max(PAGE, -(-longest // PAGE) * PAGE), "training": training,
            "travel_mode": self._load.mode,
        }  # fmt: skip
        return Manifest(**fields)
