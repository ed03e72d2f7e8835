"""A whole installation on this machine: keys, trust folder, configuration files, and its processes in their order.

Knows the services by their settings only. Everything lives under one folder, so a later start continues where this one stopped.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gput.local.process import Service
from gput.trust import KNOWN
from shared.canonical import sha256
from shared.crypto.private_file import write_private
from shared.crypto.signing import PartyKey
from shared.errors import EmulationWarning
from shared.names import ORCHESTRATOR_PORT, holder_port
from shared.service.key_file import make_key_file

GPU = "gpu-0"
SIDE_BY_SIDE = 8
"""Holders that start at a time: of many more the last would have no processor before patience with it ends."""


@dataclass(frozen=True)
class HolderSpec:
    """One data holder: its name, its datasets by name, its policy file."""

    name: str
    datasets: Mapping[str, Path]
    policy: Path | None = None


@dataclass
class Installation:
    """All services of one folder. `start()` and `stop()` may be called again and again. `tuning`: the orchestrator's settings that
    differ from its defaults; with `public_url` the holders reach it there. `agent`: the GPU agent's; `bounce`: whether holders share
    memory with it, as on one machine they do."""

    folder: Path
    holders: Sequence[HolderSpec]
    tuning: Mapping[str, float | str] = field(default_factory=dict)
    services: dict[str, Service] = field(default_factory=dict)
    agent: Mapping[str, Any] = field(default_factory=dict)
    bounce: bool = True

    # ------------------------------------------------------------------ keys

    @property
    def owner_key(self) -> Path:
        """The session owner's private key (0600)."""
        return self.folder / "owner" / "owner.pem"

    @property
    def reader_token(self) -> Path:
        """A file (0600) with a token that reads what the owner may read, for the dashboard; it changes nothing and fetches no model."""
        return self.folder / "owner" / "reader.token"

    def operator_token(self, holder: str) -> Path:
        """The file (0600) with the token by which `holder`'s operator reads and decides at its service; written when that first starts."""
        return self.folder / f"holder-{holder}" / "operator.token"

    @property
    def trust(self) -> Path:
        """Roots and reference values, public."""
        return self.folder / "trust"

    @property
    def registers(self) -> Path:
        """The MUX's select register: the platform writes it, the agent reads it."""
        return self.folder / "mux"

    def prepare(self) -> None:
        """Make keys, device, quoting enclave and trust folder; keeps what is there."""
        from gpu_agent.platform.device_manufacture import manufacture_device
        from gpu_agent.platform.manufacture import manufacture

        for part in ("owner", "orchestrator", *(f"holder-{h.name}" for h in self.holders)):
            (self.folder / part).mkdir(mode=0o700, parents=True, exist_ok=True)
        owners = self.folder / "owners"
        owners.mkdir(exist_ok=True)
        (owners / "owner.pub").write_bytes(PartyKey.load_or_generate(self.owner_key).public_pem)
        self._make_reader()
        orchestrator = PartyKey.load_or_generate(self.folder / "orchestrator" / "identity.pem")
        (self.folder / "orchestrator" / "orchestrator.pub").write_bytes(orchestrator.public_pem)
        cvms = ["orchestrator", *(f"holder-{h.name}" for h in self.holders)]
        with warnings.catch_warnings():
            # Whoever uses this class says EMULATED to people in words; a warning with a code line would add nothing.
            warnings.simplefilter("ignore", EmulationWarning)
            manufacture(self.folder, [GPU], cvms, make_device=manufacture_device, at=time.time())
        (self.trust / KNOWN).write_bytes(orchestrator.public_pem)
        for holder in self.holders:
            if not self.recovery_key(holder.name).exists():
                make_key_file(self.recovery_key(holder.name))

    def _make_reader(self) -> None:
        if not self.reader_token.exists():
            write_private(self.reader_token, f"{secrets.token_urlsafe(32)}\n".encode())
        token = self.reader_token.read_text().strip()
        readers = {sha256(token.encode()).hex(): {"name": "owner", "role": "owner"}}
        self._readers.write_text(json.dumps(readers))

    @property
    def _readers(self) -> Path:
        return self.folder / "orchestrator" / "reader-tokens.json"

    def recovery_key(self, name: str) -> Path:
        """A holder's recovery key: with it a new release reads what that holder kept. Its records lie beside it in the clear."""
        return self.folder / f"holder-{name}" / "recovery.key"

    def holder_key(self, name: str) -> PartyKey:
        """A holder's enrolled key, made here because this launcher plays every party."""
        return PartyKey.load_or_generate(self.folder / f"holder-{name}" / "identity.pem")

    # ------------------------------------------------------------- processes

    async def start_gpu(self) -> None:
        """Start the agent, then the platform."""
        await self._ensure("agent", "gpu_agent", self._agent())
        await self._ensure("platform", "gpu_agent.platform", self._platform())

    async def start_base(self) -> None:
        """Start the agent, then the platform, then the orchestrator: each needs the address of the one before."""
        await self.start_gpu()
        await self._ensure("orchestrator", "orchestrator", self._orchestrator())

    def _bounce(self) -> dict[str, Any]:
        return {"bounce_socket": self.folder / "agent-bounce.sock"} if self.bounce else {}

    async def start(self) -> None:
        """Start what does not run; the holders side by side."""
        await self.start_base()
        places = asyncio.Semaphore(SIDE_BY_SIDE)

        async def start(holder: HolderSpec) -> None:
            async with places:
                await self._ensure(f"holder-{holder.name}", "data_holder", self._holder(holder))

        starting = [asyncio.ensure_future(start(holder)) for holder in self.holders]
        try:
            await asyncio.gather(*starting)
        finally:  # when one fails, none may come up after `stop`
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)

    async def stop(self) -> None:
        """Stop everything: the orchestrator first, while it can still seal a checkpoint, then all others together."""
        if orchestrator := self.services.get("orchestrator"):
            await orchestrator.stop()
        await asyncio.gather(*(service.stop() for service in self.services.values()))

    async def first_failure(self) -> Service:
        """The first service to end."""
        watches = {asyncio.create_task(service.ended()): service for service in self.services.values()}
        try:
            done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
            return watches[done.pop()]
        finally:
            for watch in watches:
                watch.cancel()

    async def _ensure(self, name: str, module: str, settings: Mapping[str, Any]) -> None:
        service = self.services.get(name)
        if service is not None and service.alive:
            return
        config = self.folder / "config" / f"{name}.toml"
        config.parent.mkdir(exist_ok=True)
        config.write_text(to_toml({"die_with_parent": True, "log_format": "json", **settings}))
        service = Service(name, ["-m", module, "--config", str(config)], {}, self.folder / "logs" / f"{name}.log")
        self.services[name] = service
        await service.start()

    def _agent(self) -> dict[str, Any]:
        return {
            "data_dir": self.folder / "agent",
            "device_dir": self.folder / "devices" / GPU,
            "platform_key": self.folder / "platform" / "mux.pub",
            **self._bounce(),
            "mux_registers": self.registers,
            "ports": [ORCHESTRATOR_PORT, *(holder_port(h.name) for h in self.holders)],
            **self.agent,
        }

    def _platform(self) -> dict[str, Any]:
        return {
            "data_dir": self.folder,
            "agent_url": self.services["agent"].url,
            "mux_registers": self.registers,
            "orchestrator_key": self.folder / "orchestrator" / "orchestrator.pub",
        }

    def _orchestrator(self) -> dict[str, Any]:
        return {
            "data_dir": self.folder / "orchestrator",
            "trust_dir": self.trust,
            "allow_emulated": True,
            "owner_keys": self.folder / "owners",
            "reader_tokens": self._readers,
            "agent_url": self.services["agent"].url,
            "platform_url": self.services["platform"].url,
            **self.tuning,
            **self._evidence("orchestrator"),
        }

    def _holder(self, holder: HolderSpec) -> dict[str, Any]:
        name = f"holder-{holder.name}"
        policy = {"policy": holder.policy, "approve": "policy"} if holder.policy else {}
        return {
            "name": holder.name,
            "data_dir": self.folder / name,
            "trust_dir": self.trust,
            "allow_emulated": True,
            "orchestrator_url": self.tuning.get("public_url") or self.services["orchestrator"].url,
            "datasets": dict(holder.datasets),
            "recovery_key_file": self.recovery_key(holder.name),
            **self._bounce(),
            **self._evidence(name),
            **policy,
        }

    def _evidence(self, cvm: str) -> dict[str, Any]:
        return {
            "evidence": f"emulated:{self.services['platform'].url}/cvms/{cvm}",
            "evidence_token_file": self.folder / "cvms" / f"{cvm}.token",
        }


def to_toml(settings: Mapping[str, Any]) -> str:
    """Flat settings as TOML; JSON's strings, numbers and lists are TOML's, a mapping becomes an inline table."""
    return "".join(f"{key} = {_toml(value)}\n" for key, value in settings.items())


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_text(str(k))} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(entry) for entry in value) + "]"
    return _text(str(value.absolute()) if isinstance(value, Path) else value)


def _text(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # "no limit" of several settings, which JSON has no word for
    # TOML has no surrogate pairs, so characters stand as they are; of those only DEL is one that TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
