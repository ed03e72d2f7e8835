"""A demo on this machine: an installation of its own and the demo's job on it. Knows no terminal, and no demo in particular."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2

from gput.client import UNATTESTED, AsyncClient
from gput.local.demos.catalogue import STATE, kept
from gput.local.demos.plan import HELD_OUT, Plan
from gput.local.installation import HolderSpec, Installation
from gput.local.job import Job, Say, policy_text
from gput.local.report import short
from shared.claims.archive import Archive
from shared.errors import ConfigurationError, GputError


class Demo:
    """One demo in one folder; resuming makes a new one over the same folder."""

    def __init__(self, folder: Path, plan: Plan, say: Say) -> None:
        self.folder, self.say = folder.absolute(), say
        self.plan = plan = kept(self.folder) or plan
        data, policies = plan.places(self.folder / "data"), self.folder / "policies"
        specs = [HolderSpec(name, {plan.dataset: data[name]}, policies / f"{name}.toml") for name in plan.holders]
        self.installation = self.lay_out(self.folder / "services", specs)
        self.min_parties = len(plan.holders)  # in each holder's policy
        self.session, self.options = "", ""  # options: as the command line gave them, to be said again
        self.kept = False  # it is over, and its services go on running for who wants to look
        self._client: AsyncClient | None = None
        self._job: Job | None = None

    def lay_out(self, folder: Path, holders: list[HolderSpec]) -> Installation:
        """The services that this demo runs."""
        return Installation(folder, holders)

    def task(self, keys: Mapping[str, bytes]) -> Job:
        """What this demo has them do. `keys`: each holder's raw public key, by name."""
        return Job(self.folder, self.plan, keys, self.say)

    @property
    def client(self) -> AsyncClient:
        """The owner's client. Raises ConfigurationError before `start`."""
        if self._client is None:
            raise ConfigurationError("the demo was not started", code="demo")
        return self._client

    async def start(self) -> None:
        """Data, program, processes; then submit, or find the session again."""
        await asyncio.to_thread(self.plan.split, self.folder / "data")
        await asyncio.to_thread(self.installation.prepare)
        keys = {name: self.installation.holder_key(name).public for name in self.plan.holders}
        job = self._job = self.task(keys)
        archive = await self._build_and_start_base(job, self.plan.places(self.folder / "data")[HELD_OUT])
        for spec in self.installation.holders:
            self._write_policy(spec, f'digests = ["{archive.digest.hex()}"]')
        self.say("starting the holders, submitting the session …")
        await self.installation.start()
        url = self.installation.services["orchestrator"].url
        self._client = AsyncClient(url, self.installation.owner_key, trust=UNATTESTED)
        self.session = await job.submit_or_resume(self._client, archive)

    async def _build_and_start_base(self, job: Job, held_out: Path) -> Archive:
        """The program is built while agent and platform start."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.installation.start_base())
                building = tasks.create_task(job.build(held_out))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None  # the first one ended the others
        return building.result()

    def _write_policy(self, spec: HolderSpec, programs: str) -> None:
        if spec.policy is not None:
            spec.policy.parent.mkdir(exist_ok=True)
            spec.policy.write_text(policy_text(self.plan, programs, self.min_parties))

    def continuing(self) -> str:
        """The command that goes on where this run was stopped."""
        if (self.folder / STATE).exists():
            return f"gput demo --resume --dir {short(self.folder)}"
        return f"{self.plan.command} {self.options}--dir {short(self.folder)}"  # nothing was submitted: all is to be said again

    async def stop(self) -> None:
        """Stop every process of this demo."""
        if self._client:
            await self._client.close()
        await self.installation.stop()

    async def collect(self) -> dict[str, Any]:
        """All that the final page shows; model and receipts are verified on the way. Raises GputError."""
        if self._job is None:
            raise ConfigurationError("the demo was not started", code="demo")
        found = await self._job.collect(self.client, self.session, self.installation.trust)
        return {**found, "links": [await self._links(name) for name in self.plan.holders]}

    async def _links(self, holder: str) -> dict[str, Any]:
        service = self.installation.services[f"holder-{holder}"]
        token = self.installation.operator_token(holder).read_text().strip()
        async with httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, trust_env=False) as http:
            answer = await http.get(f"{service.url}/v1/links")
        if answer.status_code != 200:
            raise GputError(f"holder {holder} did not answer for its links: {answer.status_code}", code="links")
        return {"holder": holder, **answer.json()}
