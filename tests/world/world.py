"""The whole system in one process: agent, platform, orchestrator and holders with real keys and files, joined by a programmable wire.

Knows the services by their factories and settings only. A test steers it through the owner's client, the operators' APIs and the wire.
"""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2
from fastapi import FastAPI

from data_holder.api import create_app as holder_app
from data_holder.carriers import HttpCarrier
from data_holder.settings import HolderSettings
from gpu_agent.api import GpuUnit, build_gpu
from gpu_agent.api import create_app as agent_app
from gpu_agent.platform.api import create_platform_app
from gpu_agent.platform.settings import PlatformSettings
from gpu_agent.settings import AgentSettings
from gput.client import UNATTESTED, AsyncClient
from gput.local.installation import GPU
from orchestrator.app import create_app as orchestrator_app
from orchestrator.sessions.succession import ROLLED_BACK
from orchestrator.settings import OrchestratorSettings
from shared.canonical import cbor_value
from shared.crypto.signing import PartyKey
from shared.service.clock import Clock, system_clock
from shared.service.evidence import EmulatedProvider
from shared.service.http import Peers
from shared.wire.copy import MAX_RECORDS_AT_ONCE
from tests.schemas import lay
from tests.world.world_files import contents_below
from tests.world.world_material import HOLDERS, Material
from tests.world.world_operator import AsyncOperator
from tests.world.world_service import Incarnation, Service
from tests.world.world_tasks import PATIENCE_S as PATIENCE_S
from tests.world.world_tasks import Patience, waiting
from tests.world.world_wire import Exchange, Link, Wire

ENDED = ("COMPLETED", "FAILED", "CANCELLED")
OFTEN = {"checkpoint_interval_s": 0.2, "checkpoint_share": 1e6}  # whatever share of these short trainings
UNLIMITED = {"refusals_per_s": 0.0}
"""Everybody has one address here, the attackers too."""
HBM_BYTES = 1 << 30


def url(service: str) -> str:
    return f"http://{service}.test"


def agent_settings(folder: Path, **changes: Any) -> AgentSettings:
    options: dict[str, Any] = {
        "data_dir": folder / "agent", "device_dir": folder / "devices" / GPU, "platform_key": folder / "platform" / "mux.pub",
        "hbm_bytes": HBM_BYTES, **UNLIMITED,
    }  # fmt: skip
    return AgentSettings(**(options | changes))


def shared_unit(folder: Path, clock: Clock = system_clock) -> GpuUnit:
    """A GPU for many worlds after one another: each opens a session without a resume proof, which wipes it."""
    unit = build_gpu(agent_settings(folder), clock)
    unit.compute.spawn()
    return unit


class _Lent:
    """A GPU that stays powered when its world ends."""

    def __init__(self, unit: GpuUnit) -> None:
        self._unit = unit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._unit, name)

    def power_off(self) -> None:
        self._unit.compute.wake()


_standing: list[World] = []
"""Worlds that were entered and not left, in any order: how many records share a request is the process's."""


class World:
    """`async with World(...) as world`. `settings` holds changes by service name; `unit` lends a GPU, None powers one of its own.
    `at_once`: records that holders bring by one request over HTTP; all of a visit's would leave nothing between two of them for a test to
    cut, to kill or to hold back. It is the process's while the world stands: one that other tests run beside takes the default's."""

    def __init__(
        self, folder: Path, material: Material, unit: GpuUnit | None = None, *, holders: Sequence[str] = HOLDERS,
        approve: str = "policy", settings: Mapping[str, Mapping[str, Any]] | None = None, at_once: int = 1,
    ) -> None:  # fmt: skip
        self.folder, self.material, self.holders = material.copy(folder), material, tuple(holders)
        self.unit, self._approve, self._settings = unit, approve, dict(settings or {})
        self.offset, self._at_once = 0.0, at_once
        self.skew: dict[str, float] = {}
        self.wire = Wire()
        builders: dict[str, Callable[[Incarnation], FastAPI]] = {
            "agent": self._agent, "platform": self._platform, "orchestrator": self._orchestrator,
        }  # fmt: skip
        for name in self.holders:
            builders[f"holder-{name}"] = lambda incarnation, name=name: self._holder(name, incarnation)
        for name, build in builders.items():
            self.wire.services[name] = Service(name, build)
        peers = Peers(transports={url("orchestrator"): Link(self.wire, "owner", "orchestrator")})
        key, clock = material.keys["owner"], self.clock_of("owner")
        self.owner = AsyncClient(url("orchestrator"), key, trust=UNATTESTED, peers=peers, clock=clock)

    # ------------------------------------------------------------------ doors

    def clock_of(self, party: str) -> Callable[[], float]:
        """A party's clock: the machine's, moved by `offset` as all are, and by the party's own `skew`."""
        return lambda: time.time() + self.offset + self.skew.get(party, 0.0)

    def _links(self, client: str, owner: Incarnation) -> dict[str, httpx2.AsyncBaseTransport]:
        return {url(server): Link(self.wire, client, server, owner) for server in self.wire.services}

    def _evidence(self, cvm: str, owner: Incarnation) -> EmulatedProvider:
        token = (self.folder / "cvms" / f"{cvm}.token").read_text()
        return EmulatedProvider(
            f"{url('platform')}/cvms/{cvm}", token, transport=Link(self.wire, cvm, "platform", owner)
        )

    # --------------------------------------------------------------- services

    def _agent(self, incarnation: Incarnation) -> FastAPI:
        lent: Any = {GPU: _Lent(self.unit)} if self.unit is not None else None
        settings = agent_settings(self.folder, **self._settings.get("agent", {}))
        return agent_app(settings, url("agent"), units=lent, clock=self.clock_of("agent"), entropy=os.urandom)

    def _platform(self, incarnation: Incarnation) -> FastAPI:
        settings = PlatformSettings(
            data_dir=self.folder, agent_url=url("agent"), orchestrator_key=self.folder / "orchestrator" / "orchestrator.pub",
            **{**UNLIMITED, **self._settings.get("platform", {})},
        )  # fmt: skip
        transports = self._links("platform", incarnation)
        return create_platform_app(settings, url("platform"), transports=transports, clock=self.clock_of("platform"))

    def _orchestrator(self, incarnation: Incarnation) -> FastAPI:
        options: dict[str, Any] = {
            "data_dir": self.folder / "orchestrator", "trust_dir": self.folder / "trust", "allow_emulated": True,
            "owner_keys": self.folder / "owners", "agent_url": url("agent"), "platform_url": url("platform"),
            "evidence": f"emulated:{url('platform')}/cvms/orchestrator",
            "evidence_token_file": self.folder / "cvms" / "orchestrator.token", **OFTEN, **UNLIMITED,
        }  # fmt: skip
        settings = OrchestratorSettings(**(options | dict(self._settings.get("orchestrator", {}))))
        lay(settings.store_url, "orchestrator")
        return orchestrator_app(
            settings, url("orchestrator"),
            clock=self.clock_of("orchestrator"), transports=self._links("orchestrator", incarnation),
            evidence=self._evidence("orchestrator", incarnation),
        )  # fmt: skip

    def _holder(self, name: str, incarnation: Incarnation) -> FastAPI:
        cvm, folder = f"holder-{name}", self.folder / f"holder-{name}"
        options: dict[str, Any] = {
            "name": name, "data_dir": folder, "trust_dir": self.folder / "trust", "allow_emulated": True,
            "orchestrator_url": url("orchestrator"), "evidence": f"emulated:{url('platform')}/cvms/{cvm}",
            "evidence_token_file": self.folder / "cvms" / f"{cvm}.token", "datasets": {"ehr": folder / "ehr.npz"},
            "dataset": "ehr", "approve": self._approve, "policy": folder / "policy.toml", "inbox_wait_s": 5.0, **UNLIMITED,
        }  # fmt: skip
        settings = HolderSettings(**(options | dict(self._settings.get(cvm, {}))))
        lay(settings.store_url, "data_holder")
        return holder_app(
            settings, url(cvm), clock=self.clock_of(cvm),
            peers=Peers(transports=self._links(cvm, incarnation)), evidence=self._evidence(cvm, incarnation),
        )  # fmt: skip

    def __getitem__(self, service: str) -> Service:
        return self.wire.services[service]

    # ------------------------------------------------------------------- life

    async def __aenter__(self) -> Self:
        for name in ("agent", "platform", "orchestrator"):
            await self[name].start()
        await asyncio.gather(*(self[f"holder-{name}"].start() for name in self.holders))
        _standing.append(self)
        HttpCarrier.limit = self._at_once
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        _standing.remove(self)
        HttpCarrier.limit = _standing[-1]._at_once if _standing else MAX_RECORDS_AT_ONCE
        self.wire.hooks.clear()
        await self.owner.close()
        for name in ("orchestrator", *(f"holder-{n}" for n in self.holders), "platform", "agent"):
            # A test that failed must show its own failure, not what its half-dead services say while they stop.
            try:
                await self[name].stop()
            except Exception:
                if error is None:
                    raise

    # ------------------------------------------------------------------ doings

    async def enrol(self) -> None:
        """Holders and files that every session needs."""
        for name in self.holders:
            await self.owner.enrol(name, self.material.keys[name].public)
        await self.owner.upload_program(self.material.archive)
        await self.owner.upload_weights(self.material.weights)
        await self.owner.upload_validation(self.material.validation)

    async def submit(self, **changes: Any) -> str:
        """Enrol, upload, submit the usual session; its id."""
        await self.enrol()
        changes.setdefault("holders", self.holders)
        view = await self.owner.submit(self.material.manifest(**changes))
        return str(view["id"])

    async def until(self, session: str, condition: Callable[[Any], Any], seconds: float = PATIENCE_S) -> Any:
        """The session's view once `condition` holds of it."""
        patience = Patience(seconds)
        while True:
            # A test may have the orchestrator away for as long as a start takes here.
            view = await self.owner.patiently(session)
            if condition(view):
                return view
            if patience.over or (view["phase"] in ENDED and not condition(view)):
                visits = await self.owner.items(f"sessions/{session}/visits")
                story = [(v["index"], v["attempt"], v["holder"], v["phase"], v["outcome"], v["reason"]) for v in visits]
                raise AssertionError(
                    f"it did not happen in {seconds} s: {view}\nvisits: {story}\n{waiting()}\n{self.wire.story()}"
                )
            await asyncio.sleep(0.04)  # each look is a signed request that the same processor answers

    async def finish(self, session: str, seconds: float = PATIENCE_S) -> Any:
        """The view of the session once it has ended, and every visit with it, but for a log that was not this session's."""
        view = await self.until(session, lambda view: view["phase"] in ENDED, seconds)
        if (view["failure"] or {}).get("code") not in ROLLED_BACK:
            left_open = [visit for visit in await self.visits(session) if visit["outcome"] is None]
            assert not left_open, "an ended session's visits have an outcome"
        return view

    async def completed(self, session: str, seconds: float = PATIENCE_S) -> Any:
        """The view of the session, which must complete."""
        view = await self.finish(session, seconds)
        assert view["phase"] == "COMPLETED", view["failure"]
        return view

    async def visits(self, session: str) -> list[Any]:
        """All visits with their attempts, oldest first."""
        return await self.owner.items(f"sessions/{session}/visits")

    async def events(self, session: str) -> list[str]:
        """Facts of the log's leaves that are not receipts, in order."""
        leaves = await self.owner.items(f"sessions/{session}/log/leaves")
        return [str(cbor_value(base64.b64decode(leaf["leaf"]))) for leaf in leaves if leaf["kind"] == "event"]

    def operator(self, holder: str) -> AsyncOperator:
        """The holder's operator, with full rights."""
        name = f"holder-{holder}"
        return AsyncOperator(self.wire, name, self.folder / name, url(name))

    def key(self, name: str) -> PartyKey:
        return self.material.keys[name]

    @property
    def canaries(self) -> tuple[bytes, ...]:
        """A record of each holder's, which nobody else may ever see."""
        return tuple(self.material.canaries.values())

    def files(self) -> list[bytes]:
        """What services keep on disk, but the holders' own data."""
        return [data for _, data in contents_below(self.folder, {"ehr.npz"})]

    async def seen(self, client: str, server: str, part: str, count: int = 1, seconds: float = PATIENCE_S) -> Exchange:
        """The count-th exchange on a link whose path contains `part`, once it is there."""
        patience = Patience(seconds)
        while len(found := self.wire.calls(client, server, part)) < count:
            assert not patience.over, f"no {part} from {client} to {server}"
            await asyncio.sleep(0.002)
        return found[count - 1]


NewWorld = Callable[..., AbstractAsyncContextManager[World]]
"""Makes a world: `async with new_world(...) as world`."""
