"""HOSTILE CODE (attack tour): a small demo whose services, settings and links an attack may replace, and the views from outside on it."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2

from gpu_agent.mux_register import register_of
from gput.local.attacks.platform_hand import PlatformHand
from gput.local.attacks.relay import Hook, Relay
from gput.local.attacks.result import Fact
from gput.local.demo import Demo
from gput.local.demos.plan import Plan
from gput.local.demos.texts import HOLDERS
from gput.local.installation import GPU, HolderSpec, Installation
from gput.local.job import Job, Say
from shared.claims.archive import open_archive
from shared.claims.manifest import Manifest
from shared.errors import TimedOut

PATIENCE_S = 90.0
POLL_S = 0.2
WAIT_S = 2.0
ENDED = ("COMPLETED", "FAILED", "CANCELLED")
Change = Callable[[Manifest], Manifest]


@dataclass
class HostileInstallation(Installation):
    """`modules`: what runs in a service's place; `changes`: settings that replace or join its own; both by service name."""

    modules: dict[str, str] = field(default_factory=dict)
    changes: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def _ensure(self, name: str, module: str, settings: Mapping[str, Any]) -> None:
        await super()._ensure(name, self.modules.get(name, module), {**settings, **self.changes.get(name, {})})

    def change(self, name: str, **settings: Any) -> None:
        """Add settings to a service that was not started yet."""
        self.changes.setdefault(name, {}).update(settings)


class Stage(Demo):
    """Where one attack is played. Set everything up, then `start()`; `stop()` in any case."""

    installation: HostileInstallation

    def __init__(self, folder: Path, plan: Plan, say: Say, *, again: str) -> None:
        super().__init__(folder, plan, say)
        self._again = again
        self._relays: list[Relay] = []
        self._hand: PlatformHand | None = None
        self.manifest_change: Change = lambda manifest: manifest

    def lay_out(self, folder: Path, holders: list[HolderSpec]) -> Installation:
        return HostileInstallation(folder, holders)

    def task(self, keys: Mapping[str, bytes]) -> Job:
        job = _StageJob(self.folder, self.plan, keys, self.say)
        job.change = lambda manifest: self.manifest_change(manifest)
        return job

    def continuing(self) -> str:
        return self._again

    # ------------------------------------------------------------ tools of the attackers

    async def relay(self, service: str, hook: Hook) -> str:
        """Put a man in the middle in front of a service, which may start later; his address."""
        relay = Relay(lambda: self.installation.services[service].url, hook)
        self._relays.append(relay)
        await relay.start()
        return relay.url

    def between_machines(self) -> None:
        """Have the holders' records travel over HTTP, as between machines: a relay sees nothing of what passes through shared memory."""
        self.installation.bounce = False

    @property
    def hand(self) -> PlatformHand:
        """The platform's hand on the MUX. The installation must have been prepared."""
        if self._hand is None:
            key = self.installation.folder / "platform" / "mux.pem"
            register = register_of(self.installation.registers, GPU)
            self._hand = PlatformHand(key, lambda: self.installation.services["agent"].url, GPU, register)
        return self._hand

    def turn(self, holder: str, deed: str) -> None:
        """Let a holder's process be started by the launcher that patches it."""
        config = self.installation.folder / "config"
        config.mkdir(parents=True, exist_ok=True)
        orders = {"deed": deed, "program": str(self.folder / "gpt2.gput"), "deeds": str(self._deeds(holder))}
        (config / f"holder-{holder}.orders.json").write_text(json.dumps(orders))
        self.installation.modules[f"holder-{holder}"] = "gput.local.attacks.hostile_holder"

    def deeds(self, holder: str) -> list[dict[str, Any]]:
        """What the hostile holder wrote down about what it did, in order."""
        path = self._deeds(holder)
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def _deeds(self, holder: str) -> Path:
        return self.installation.folder / f"holder-{holder}.deeds.jsonl"

    def poison(self, holder: str, write: Callable[[Path], None]) -> None:
        """Give a holder other data, written by `write` into a folder of its own."""
        folder = self.folder / "poison"
        write(folder)
        own = self.installation.holders
        self.installation.holders = [replace(h, datasets={"corpus": folder}) if h.name == holder else h for h in own]

    async def restart(self, service: str) -> None:
        """Start what was killed again, where it was: everybody else knows its address."""
        address = self.installation.services[service].url
        self.installation.change(service, port=int(address.rpartition(":")[2]))
        await self.installation.start()

    async def kill(self, service: str) -> None:
        """Take the process away without a word."""
        await self.installation.services[service].stop(signal.SIGKILL)

    async def stop(self) -> None:
        """Every process, and the attackers' own."""
        await super().stop()
        for relay in self._relays:
            await relay.stop()
        if self._hand is not None:
            await self._hand.close()

    # ------------------------------------------------------------ views from outside

    async def until(self, true: Callable[[Any], bool], session: str | None = None) -> Any:
        """The session's public view once `true` says so. Raises: TimedOut."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        view = await self.client.session(session or self.session)
        while not true(view):
            if asyncio.get_running_loop().time() > deadline:
                what = f"after {PATIENCE_S:.0f} s the session is {view['phase']}, waiting for {view['waiting_for']}"
                raise TimedOut(what, code="attack-too-slow", remedy=f"Logs: {self.folder}/services/logs.")
            view = await self.client.session(session or self.session, wait=WAIT_S, version=view["version"])
        return view

    async def ended(self, session: str | None = None) -> Any:
        """The session's view at its end. Raises: TimedOut."""
        return await self.until(lambda view: view["phase"] in ENDED, session)

    async def visits(self) -> list[Any]:
        """All visits of the session, attempts that did not close too."""
        return await self.client.items(f"sessions/{self.session}/visits")

    async def waiting(self, holder: str, words: str) -> str:
        """For what a holder's own service says that the session waits, once these words occur in it. Raises: TimedOut."""
        for _ in range(int(PATIENCE_S / POLL_S)):
            told = str((await self.operator(holder, f"requests/{self.session}"))["waiting_for"])
            if words in told:
                return told
            await asyncio.sleep(POLL_S)
        raise TimedOut(
            f"{holder} did not say {words!r}", code="attack-too-slow", remedy=f"Logs: {self.folder}/services/logs."
        )

    async def facts(self, visit: str) -> list[str]:
        """What the session's public events say of one visit, in order. The session has ended."""
        return [
            str(e.data["fact"])
            async for e in self.client.events(self.session)
            if e.data.get("visit") == visit and "fact" in e.data
        ]

    async def operator(self, holder: str, path: str) -> Any:
        """What a holder's own service tells its operator."""
        token = self.installation.operator_token(holder).read_text().strip()
        url = f"{self.installation.services[f'holder-{holder}'].url}/v1/{path}"
        async with httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, trust_env=False) as http:
            return (await http.get(url)).raise_for_status().json()

    async def switches(self) -> int:
        """How often the GPU's MUX was switched so far, as the agent says publicly: no visit begins without a switch."""
        async with httpx2.AsyncClient(trust_env=False) as http:
            answer = await http.get(f"{self.installation.services['agent'].url}/v1/gpus/{GPU}")
        return int(answer.raise_for_status().json()["switches"])

    async def undisturbed(self) -> str:
        """The model's digest of the same session without any attack, run on the same services."""
        archive = open_archive((self.folder / "gpt2.gput").read_bytes())
        keys = {name: self.installation.holder_key(name).public for name in HOLDERS}
        manifest = self.task(keys).manifest(archive).model_copy(update={"name": "the same without an attack"})
        calm = await self.client.submit(manifest)
        return str(((await self.ended(calm["id"]))["model"] or {}).get("digest"))

    async def same_model(self, view: Any) -> Fact:
        """Whether the attacked session ended in the model of an undisturbed one."""
        digest, calm = (view["model"] or {}).get("digest", "none"), await self.undisturbed()
        return Fact(f"model {digest[:12]}…, undisturbed session {calm[:12]}…", digest == calm)


class _StageJob(Job):
    """The demo's job under the attack's manifest."""

    change: Change

    def manifest(self, archive: Any) -> Manifest:
        return self.change(super().manifest(archive))


def completed(view: Any) -> Fact:
    """Whether the session went on to its end."""
    return Fact(
        f"session {view['phase']}, {view['position']} of {view['visits_total']} visits gone through",
        view["phase"] == "COMPLETED",
    )
