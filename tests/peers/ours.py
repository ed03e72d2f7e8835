"""This repository's own services as a contestant: orchestrator, holders, agent and platform as processes, one session. EMULATED hardware.

Knows the launcher and the client's API.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Literal, TypeVar

from gput.client import UNATTESTED, AsyncClient
from gput.local.demos.texts import Texts
from gput.local.installation import HolderSpec, Installation
from gput.local.job import EMULATED, policy_text
from shared.claims.archive import Archive, open_archive
from shared.claims.manifest import Manifest, RosterEntry
from shared.claims.training import AdamW, TrainingOptions
from shared.errors import GputError
from tests.peers.brood import kill_tree
from tests.peers.contestant import State, plain
from tests.peers.task import Task
from tests.peers.traffic import End

T = TypeVar("T")
PAGE, MB = 4096, 1e6
PORT = 8700
"""The orchestrator's: fixed, so that the holders find a restarted one where it was."""


class Ours:
    """One session: `steps` training steps per visit, the model and its optimiser's state staying in the GPU.

    Args:
        material: the folder of the task's data and its program's archive `program.gput`.
        collect: `tour`: a round's records wait in the GPU, and it trains on their mixture.
    """

    served: tuple[End, ...] = ()

    def __init__(self, folder: Path, task: Task, material: Path, collect: Literal["visit", "tour"] = "visit") -> None:
        self.folder, self.task, self.material, self.collect = folder, task, material, collect
        names = task.names()
        policy = folder / "policy.toml"
        specs = [HolderSpec(name, {"corpus": material / f"holder-{i}.npz"}, policy) for i, name in enumerate(names)]
        self.installation = Installation(folder / "services", specs, {"port": PORT})
        self._client: AsyncClient | None = None
        self._loop = asyncio.new_event_loop()
        self._view: dict[str, Any] = {}

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def _archive(self) -> Archive:
        return open_archive((self.material / "program.gput").read_bytes())

    def prepare(self) -> None:
        """Keys, certificates, policies."""
        self.installation.prepare()
        plan = Texts(rounds=self.task.rounds, batch=self.task.batch)
        (self.folder / "policy.toml").write_text(policy_text(plan, f'digests = ["{self._archive().digest.hex()}"]'))

    def start(self) -> None:
        """Start, enrol, upload, submit."""
        self._do(self._start())

    async def _start(self) -> None:
        await self.installation.start()
        services, installation = self.installation.services, self.installation
        client = self._client = AsyncClient(services["orchestrator"].url, installation.owner_key, trust=UNATTESTED)
        for name in self.task.names():
            await client.enrol(name, installation.holder_key(name).public)
        await client.upload_program((self.material / "program.gput").read_bytes())
        self._view = await client.submit(self._manifest(self._archive()))

    def _manifest(self, archive: Archive) -> Manifest:
        task = self.task
        keys = {name: self.installation.holder_key(name).fingerprint for name in task.names()}
        length = task.steps * task.batch * archive.manifest.records.record_bytes
        return Manifest(
            name="the same training as others do",
            program=archive.digest.hex(),
            training=TrainingOptions(optimizer=AdamW(lr=task.lr), batch_size=task.batch, seed=task.seed, threads=1),
            roster=tuple(RosterEntry(holder=name, key=key, evidence=EMULATED) for name, key in keys.items()),
            gpu_evidence=EMULATED,
            orchestrator_evidence=EMULATED,
            rounds=task.rounds,
            steps_per_visit=task.steps,
            record_order="sequential",
            collect=self.collect,
            buffer_bytes=-(-length // PAGE) * PAGE,
            privacy_floor=task.batch,
        )

    def _look(self) -> dict[str, Any]:
        """The session's page; the last one seen where the orchestrator is away."""
        assert self._client is not None, "not started"
        with contextlib.suppress(GputError):
            self._view = self._do(self._client.session(self._view["id"]))
        return self._view

    def visits(self) -> int:
        """Visits that have ended, as the session's list has them; one that a restart had to begin again is in it twice."""
        return self._do(self._visits())

    async def _visits(self) -> int:
        assert self._client is not None, "not started"
        try:
            found = await self._client.items(f"sessions/{self._view['id']}/visits")
        except GputError:
            return 0
        return sum(1 for visit in found if visit["outcome"] is not None)

    def state(self) -> State:
        """By the session's phase; its model is on disk here when it is done."""
        phase = self._look()["phase"]
        if phase == "COMPLETED":
            return State.DONE
        return State.FAILED if phase in ("FAILED", "CANCELLED") else State.RUNNING

    def settled(self) -> State:
        """As `state`."""
        return self.state()

    def word(self) -> str:
        """The session's phase."""
        return plain(str(self._look()["phase"]))

    def model(self) -> Path:
        """Fetched, with its signatures verified on the way."""
        assert self._client is not None, "not started"
        path = self.folder / "model.safetensors"
        self._do(self._client.model(self._view["id"], path))
        return path

    def counters(self) -> dict[str, float]:
        """The session's own count of what went over two links: from the holders, and from the GPU to the orchestrator."""
        moved = self._look()["bytes"]
        return {"records_mb": moved["holder_to_gpu_sent"] / MB, "checkpoints_mb": moved["gpu_to_orchestrator"] / MB}

    def kill(self) -> None:
        """The orchestrator."""
        service = self.installation.services["orchestrator"]
        if service.pid is not None:
            kill_tree(service.pid)
        self._do(service.ended())

    def restart(self) -> None:
        """The launcher starts what does not run."""
        self._do(self.installation.start())

    def close(self) -> None:
        """Stop in order, as the launcher does."""
        if self._client is not None:
            self._do(self._client.close())
        self._do(self.installation.stop())
        self._loop.close()
