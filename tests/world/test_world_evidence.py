"""Evidence decides who takes part: wrong code, wrong roots and forbidden emulation are refused, by whom it concerns, with the reason."""

from __future__ import annotations

import asyncio
import shutil
import time
import warnings
from typing import Any

import httpx2
import pytest

import data_holder
import shared
from gpu_agent.platform.device_manufacture import manufacture_device
from gput.local.installation import GPU
from orchestrator.holders import channels
from orchestrator.runner import patience
from shared.errors import EmulationWarning
from tests.adversary.rows import attack
from tests.world.world import PATIENCE_S, NewWorld, Patience, World
from tests.world.world_faults import Point, Trap
from tests.world.world_recorder import recording
from tests.world.world_wire import Call, Deliver

OTHER_CODE = [path for module in (shared,) for path in module.__path__]


async def _no_data_moves(world: World, holder: str) -> None:
    await asyncio.sleep(0.3)
    assert not world.wire.calls(f"holder-{holder}", "agent")


async def _refused_proof(world: World, holder: str) -> str:
    """The code with which the orchestrator turned the holder's proof away."""
    for _ in range(500):
        for exchange in world.wire.calls(f"holder-{holder}", "orchestrator", "/channels/"):
            if exchange.status >= 400:
                return exchange.answer.decode()
        await asyncio.sleep(0.02)
    raise AssertionError("no proof was refused")


@attack("H18 C05", any="stopped: the certificate alone opens no channel")
async def test_a_holder_with_other_code_gets_no_channel(new_world: NewWorld) -> None:
    changed = {"platform": {"cvms": {"holder-city": OTHER_CODE}}}
    async with new_world(settings=changed) as world:
        session = await world.submit()
        assert "measurement" in await _refused_proof(world, "city")
        await _no_data_moves(world, "city")
        view = await world.owner.session(session)
        assert view["phase"] == "RUNNING"
        assert any("city" in who for who in view["waiting_for"])


@attack("O02", any="stopped: holders verify the measurement before anything else")
async def test_an_orchestrator_with_other_code_is_refused_by_every_holder(new_world: NewWorld) -> None:
    changed = {"platform": {"cvms": {"orchestrator": [*data_holder.__path__]}}}
    async with new_world(settings=changed, holders=("city",)) as world:
        session = await world.submit()
        operator = world.operator("city")
        shown = await operator.request(session)
        for _ in range(500):
            if "not trusted" in str(shown["waiting_for"]):
                break
            await asyncio.sleep(0.02)
            shown = await operator.request(session)
        assert "not trusted" in shown["waiting_for"]
        assert "measurement" in shown["waiting_for"]
        await _no_data_moves(world, "city")


async def test_a_holder_that_does_not_allow_emulation_gives_nothing(new_world: NewWorld) -> None:
    """L10: allowed by the manifest is not enough."""
    strict = {"holder-city": {"allow_emulated": False}}
    async with new_world(settings=strict, holders=("city",)) as world:
        session = await world.submit()
        operator = world.operator("city")
        shown = await operator.request(session)
        for _ in range(500):
            if shown["waiting_for"] and "emulated" in str(shown["waiting_for"]).lower():
                break
            await asyncio.sleep(0.02)
            shown = await operator.request(session)
        assert "emulated" in str(shown["waiting_for"]).lower(), shown
        await _no_data_moves(world, "city")


@attack("V09", scoped="stopped: the session is bound to the device it began with")
async def test_another_genuine_gpu_does_not_continue_a_session(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device of the same maker with good evidence, put into the first one's place for good: the session began with the first."""
    monkeypatch.setattr(patience, "MAX_CONFLICTS", 2)
    async with new_world(own_gpu=True, holders=("city",)) as world:

        async def exchange() -> None:
            await world["agent"].kill()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", EmulationWarning)
                manufacture_device(world.folder, "gpu-1")
            shutil.copytree(world.folder / "devices" / "gpu-1", world.folder / "devices" / GPU, dirs_exist_ok=True)
            await world["agent"].start()

        with recording() as recorder:
            point = Point("orchestrator", "agent", "/ports/orchestrator/commands", "after", command="Train")
            trap = Trap(world, point, exchange, recorder)
            session = await world.submit()
            await trap.done()
            view = await world.finish(session)
        assert (view["phase"], view["failure"]["code"]) == ("FAILED", "gpu-device")


async def test_everything_that_people_see_names_the_backend(new_world: NewWorld) -> None:
    """L10."""
    async with new_world(holders=("city",)) as world:
        session = await world.submit(rounds=1)
        view = await world.completed(session)
        assert view["backend"] == "EMULATED"
        for gpu in await world.owner.items("gpus"):
            assert gpu["backend"] in ("EMULATED", None), "unknown until a session has attested it"
        for receipt in await world.owner.items(f"sessions/{session}/receipts"):
            assert receipt["receipt"]["profile"] == "gput/receipt/1"
        assert (await world.operator("city").get("identity"))["backend"].upper() == "EMULATED"
        roots = ("gpu-roots.pem", "rim-roots.pem", "cpu-roots.pem")
        trust = b"".join((world.folder / "trust" / name).read_bytes() for name in roots)
        from cryptography.x509 import load_pem_x509_certificates

        assert all("EMULATED" in c.subject.rfc4514_string() for c in load_pem_x509_certificates(trust))


async def test_a_proof_that_comes_again_while_it_is_verified_opens_one_channel(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the holder's connection breaks meanwhile: one of them counts, neither is a fault, and the session goes on."""
    tasks: list[asyncio.Task[httpx2.Response]] = []
    verify = channels.verify_holder

    def slowly(*arguments: Any, **options: Any) -> Any:
        time.sleep(1.0 if len(tasks) < 3 else 0.0)
        return verify(*arguments, **options)

    monkeypatch.setattr(channels, "verify_holder", slowly)

    async def broken(call: Call, deliver: Deliver) -> httpx2.Response:
        if call.method != "PUT" or "/channels/" not in call.path:
            return await deliver(call)
        tasks.append(asyncio.create_task(deliver(call)))
        if len(tasks) == 1:
            raise httpx2.ReadError("the connection broke")
        return await tasks[-1]

    async with new_world(holders=("city",)) as world:
        world.wire.hooks.append(broken)
        await world.completed(await world.submit())
        answers = [await task for task in tasks]
    first, second = answers[:2]
    assert sorted((first.status_code, second.status_code)) == [200, 409]
    assert "channel-expired" in (first.text + second.text)


async def test_a_holder_that_waits_for_evidence_is_answered_when_the_life_breaks(new_world: NewWorld) -> None:
    """The GPU is with another holder, and does not come home in this life any more: whoever waited was never answered."""
    holds, waits = "city", "harbour"
    let_go = asyncio.Event()

    async def held(call: Call, deliver: Deliver) -> httpx2.Response:
        if call.link == (f"holder-{holds}", "agent"):
            await let_go.wait()
        return await deliver(call)

    async with new_world(own_gpu=True, holders=(holds, waits)) as world:
        world.wire.hooks.append(held)
        session = await world.submit(rounds=1)
        await world.until(session, lambda view: any("records" in whom for whom in view["waiting_for"]))
        app = world["orchestrator"].app
        assert app is not None
        home = app.state.orchestrator.supervisor.runner(session).run.life.home
        assert home.locked()
        await world[f"holder-{waits}"].restart()  # its keys are gone: it asks for a new channel
        patience = Patience(PATIENCE_S)
        while not home._waiters:
            assert not patience.over
            await asyncio.sleep(0.02)
        asked = world.wire.calls(f"holder-{waits}", "orchestrator", "/channels")[-1]
        assert asked.status == 0
        await world["agent"].restart()
        let_go.set()
        await world.completed(session)
        assert (asked.status, "channel-broken" in asked.answer.decode()) == (409, True)
