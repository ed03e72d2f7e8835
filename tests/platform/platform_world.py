"""The platform as an application over an emulated installation, and an agent that obeys its MUX orders."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gpu_agent.platform.api import create_platform_app
from gpu_agent.platform.files import Installation
from gpu_agent.platform.manufacture import manufacture
from gpu_agent.platform.settings import PlatformSettings
from shared.attestation.collateral_store import CollateralStore
from shared.attestation.cpu_verifier import CpuPolicy, CpuReference, CpuRoots, VerifiedCvm, verify_cpu_evidence
from shared.crypto.signing import PartyKey
from shared.errors import (
    EmulationWarning,
)
from shared.names import CvmRole
from shared.service.clock import system_clock
from shared.service.configuration import configuration
from shared.service.evidence import EmulatedProvider
from shared.service.guest import Guest
from shared.wire.visit import Evidence

URL, AGENT = "http://127.0.0.1:4801", "http://127.0.0.1:4802"


DATA = bytes(range(64))


class Agent:
    """Stands for the GPU agent's MUX: records what it is told and who signed."""

    def __init__(self) -> None:
        self.requests: list[httpx2.Request] = []
        self.status = 200

    def transport(self) -> httpx2.MockTransport:
        return httpx2.MockTransport(self.answer)

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        return httpx2.Response(self.status, json={})


class World:
    def __init__(self, directory: Path) -> None:
        self.place = Installation(directory / "installation")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EmulationWarning)
            manufacture(
                self.place.root,
                ["gpu-0"],
                ["orchestrator", "holder-north", "holder-south"],
                make_device=lambda root, gpu: (root / "devices" / gpu).mkdir(parents=True, exist_ok=True),
                at=system_clock(),
            )
        self.orchestrator, self.agent = PartyKey.generate(), Agent()
        self.public = directory / "orchestrator.pub"
        self.public.write_bytes(self.orchestrator.public_pem)
        self.directory = directory

    def settings(self, **changes: Any) -> PlatformSettings:
        values = {
            "data_dir": self.directory / "data",
            "agent_url": AGENT,
            "state_dir": self.place.root,
            "orchestrator_key": self.public,
        }
        return PlatformSettings.load(**{**values, **changes})

    @asynccontextmanager
    async def running(self, **changes: Any) -> AsyncIterator[httpx2.ASGITransport]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EmulationWarning)
            app = create_platform_app(self.settings(**changes), URL, transports={AGENT: self.agent.transport()})
        async with app.router.lifespan_context(app):
            yield httpx2.ASGITransport(app=app)

    def cvm(self, name: str, transport: httpx2.AsyncBaseTransport, token: str | None = None) -> EmulatedProvider:
        with pytest.warns(EmulationWarning):
            return EmulatedProvider(
                f"{URL}/cvms/{name}", token or self.place.token(name).read_text(), transport=transport
            )

    def guest(self, role: CvmRole, cvm: EmulatedProvider, **changes: Any) -> Guest:
        """A service of this role in that CVM, configured as manufactured or otherwise."""
        settings = {"allow_emulated": True, "approve": "manual", **changes}
        return Guest(cvm, configuration(role, backend="emulated", trust_dir=self.place.trust, settings=settings))

    def judge(self, evidence: Evidence, role: CvmRole) -> VerifiedCvm:
        """What a peer with this installation's trust folder says."""
        roots = CpuRoots.load(self.place.cpu_roots)
        return verify_cpu_evidence(
            evidence, role=role, report_data=DATA, roots=roots, reference=CpuReference.load(self.place.reference),
            policy=CpuPolicy(roots=("EMULATED",), allow_emulated=True), at=system_clock(),
            collateral=CollateralStore.load(self.place.collateral_cache, roots.certificates),
        )  # fmt: skip


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
