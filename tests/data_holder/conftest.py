"""Fixtures of the holder's tests: a running holder between an orchestrator and a GPU of `holder_world`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from data_holder.api import create_app
from data_holder.assembly import Holder
from data_holder.settings import HolderSettings
from shared.service import steady_clock
from shared.service.http import Peers
from shared.service.store import Store
from tests.data_holder.holder_gpu import Gpu
from tests.data_holder.holder_orchestrator import Orchestrator
from tests.data_holder.holder_world import (
    AGENT,
    NAME,
    ORCHESTRATOR,
    SESSION,
    FakeClock,
    LocalEvidence,
    Machine,
    Verifier,
    make_manifest,
    write_dataset,
)
from tests.schemas import lay

MACHINE = Machine()


@pytest.fixture(autouse=True)
def settle_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that a test sets is believed at once."""
    monkeypatch.setattr(steady_clock, "SETTLE_S", 0.0)


POLICY = """
dataset = "ehr"
[programs]
operators = ["arithmetic", "reductions"]
[limits]
max_rounds = 10
min_privacy_floor = 4
[output]
release_to = ["owner"]
[evidence]
allow_emulated = true
"""


@dataclass
class Running:
    """One start of the holder, and its operator's client."""

    app: FastAPI
    holder: Holder
    client: httpx2.AsyncClient
    orchestrator: Orchestrator
    gpu: Gpu
    clock: FakeClock

    async def until(self, condition: Callable[[], Any], seconds: float = 60.0) -> None:
        """Wait for something the runner does on its own."""
        for _ in range(int(seconds / 0.005)):
            if condition():
                return
            await asyncio.sleep(0.005)
        raise AssertionError("it did not happen in time")

    async def approved_with_channel(self) -> None:
        """Bring the session to where offers may come."""
        self.orchestrator.ask_approval(make_manifest(self.orchestrator_key()))
        await self.until(lambda: self.orchestrator.approvals)
        self.orchestrator.post("channel_wanted")
        await self.until(lambda: self.orchestrator.proven)
        await self.until(self.open_channel)

    def open_channel(self) -> str | None:
        """The name of the channel that the holder would serve offers under now."""
        channel = self.holder.visits._channels._open.get(SESSION)
        return channel.orchestrator.channel if channel else None

    def orchestrator_key(self) -> str:
        return self.holder.foundation.key.fingerprint

    def attempt_phase(self, epoch: int) -> str | None:
        attempt = self.holder.ledger.state(SESSION).attempts.get(epoch)
        return attempt.phase.value if attempt else None

    async def get(self, path: str) -> Any:
        answer = await self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()


Start = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """A holder's database without a holder, of the newest schema and empty."""
    store = Store(lay(f"sqlite:///{tmp_path / 'holder.db'}", "data_holder"))
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """A context manager that runs the holder; entered again it is a restart on the same folder, orchestrator and GPU."""
    clock = FakeClock()
    orchestrator, gpu = Orchestrator(MACHINE, clock), Gpu()
    write_dataset(tmp_path / "ehr.npz")
    (tmp_path / "policy.toml").write_text(POLICY)
    (tmp_path / "cvm.token").write_text("secret\n")

    @asynccontextmanager
    async def run(*, unlock: bool = True, code: bytes = b"", **changes: Any) -> AsyncIterator[Running]:
        options: dict[str, Any] = {
            "data_dir": tmp_path / "state", "name": NAME, "orchestrator_url": ORCHESTRATOR, "evidence": "emulated:test",
            "evidence_token_file": tmp_path / "cvm.token", "datasets": {"ehr": tmp_path / "ehr.npz"}, "approve": "policy",
            "policy": tmp_path / "policy.toml", "inbox_wait_s": 1.0, "allow_emulated": True,
        }  # fmt: skip
        settings = HolderSettings(**{**options, **changes})
        lay(settings.store_url, "data_holder")
        peers = Peers(transports={ORCHESTRATOR: orchestrator, AGENT: gpu})
        app = create_app(
            settings, "http://holder.test", clock=clock, entropy=os.urandom, peers=peers, verifier=Verifier(MACHINE),
            evidence=LocalEvidence(MACHINE, code=code),
        )  # fmt: skip
        holder: Holder = app.state.holder
        orchestrator.holder_key = holder.foundation.key.public
        token = (settings.data_dir / "operator.token").read_text().strip()
        async with app.router.lifespan_context(app):
            client = httpx2.AsyncClient(
                transport=httpx2.ASGITransport(app=app), base_url="http://holder.test",
                headers={"authorization": f"Bearer {token}"},
            )  # fmt: skip
            running = Running(app, holder, client, orchestrator, gpu, clock)
            if unlock:
                await running.until(lambda: holder.ledger.is_open and holder.catalogue.is_open)
            yield running
            await client.aclose()

    return run


@pytest.fixture
async def running(start: Start) -> AsyncIterator[Running]:
    async with start() as holder:
        yield holder
