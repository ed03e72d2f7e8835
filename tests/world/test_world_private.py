"""Whole sessions with differential privacy: who sees what was spent, what a crash repeats with which noise, and what is never repeated."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpu_agent.hardware.state import GpuState
from gput.receipts import Verified, save, verify
from shared.canonical import sha256
from shared.claims.accountant import epsilon_of
from shared.claims.privacy import Privacy
from shared.crypto.secret import Secret
from shared.names import TravelMode
from shared.wire.gpu import Configure
from tests.adversary.rows import attack
from tests.world.test_world_crashes import CITY, COMMANDS, ORCH, A
from tests.world.world import NewWorld, World
from tests.world.world_faults import Point, Trap, crash
from tests.world.world_material import HOLDERS, ROUNDS
from tests.world.world_recorder import recording

PRIVACY = Privacy(max_grad_norm=1.0, noise_multiplier=2.0, delta=1e-5, max_epsilon=4.0)
ONCE, TWICE = epsilon_of(1e-5, 2.0), epsilon_of(1e-5, 2.0 / 2**0.5)
"""A visit brings 24 of a holder's 40 records: after the second round some took part twice."""
SELDOM = {"orchestrator": {"checkpoint_interval_s": 3600.0}}


@contextmanager
def known_secrets() -> Iterator[None]:
    """The n-th secret drawn in here is the n-th of every other time: sessions can be compared, and a second draw differs."""
    drawn, honest = itertools.count(), GpuState.configure

    def configure(self: GpuState, command: Configure) -> Any:
        regions = honest(self, command)
        if self.session.noise is not None:
            self.session.noise = Secret(sha256(bytes([next(drawn)])))
        return regions

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GpuState, "configure", configure)
        yield


async def submitted(world: World, **changes: Any) -> str:
    """The usual session with privacy, under the same id in every world: its datasets' salts, and so their roots, are then the same."""
    await world.enrol()
    made = world.material.manifest(**({"privacy": PRIVACY, "holders": world.holders} | changes))
    return str((await world.owner.submit(made, idempotency_key="the-same-in-every-world"))["id"])


async def verified(world: World, session: str, folder: Path) -> Verified:
    await save(world.owner, session, folder, world.folder / "trust")
    return verify(folder)


async def undisturbed(new_world: NewWorld, **changes: Any) -> str:
    """The model's digest of a session that nothing happened to."""
    with known_secrets():
        async with new_world("undisturbed") as world:
            view = await world.completed(await submitted(world, **changes))
            return str(view["model"]["digest"])


REPORTED = "stopped: epsilon of each holder's records is told to all, in receipts that everybody can compute again"


@attack("C04", scoped=REPORTED, direct=REPORTED, paper=REPORTED)
@pytest.mark.parametrize(
    "mode", [m if m is not TravelMode.PAPER else pytest.param(m, marks=pytest.mark.slow) for m in TravelMode]
)
async def test_what_is_spent_is_told_everywhere_alike(mode: TravelMode, new_world: NewWorld, tmp_path: Path) -> None:
    async with new_world() as world:
        session = await submitted(world, travel_mode=mode)
        early = await world.until(session, lambda view: view["visits_closed"] >= 1)
        spent = {holder["holder"]: holder["privacy"] for holder in early["holders"]}
        assert spent["city"]["spent"] == pytest.approx(ONCE, abs=1e-4)
        assert spent["city"]["planned"] == pytest.approx(TWICE, abs=1e-4)
        assert spent["north"]["spent"] in (0.0, pytest.approx(ONCE, abs=1e-4))
        view = await world.completed(session)
        for holder in view["holders"]:
            assert holder["privacy"] == {
                "spent": pytest.approx(TWICE, abs=1e-4),
                "planned": holder["privacy"]["spent"],
                "delta": 1e-5,
            }
        found = await verified(world, session, tmp_path / "receipts")
        assert found.privacy_spent == {h["holder"]: h["privacy"]["spent"] for h in view["holders"]}
        assert found.receipts == len(HOLDERS) * ROUNDS
        asked = await world.operator("city").get(f"requests/{session}")
        assert asked["privacy"] == {"epsilon": found.privacy_spent["city"], "delta": 1e-5}
        own = (await world.operator("city").get("receipts"))["items"]
        assert [item["verified"] for item in own] == [True] * ROUNDS
        assert "receipt: privacy_spent" in {check["check"] for check in own[0]["checks"]}
        assert await world.owner.items(f"sessions/{session}/losses") == []
        visits = await world.visits(session)
        assert {(v["mean_loss"], v["losses_released"]) for v in visits} == {(None, False)}
        assert view["validation_loss"]["last"] is not None, "the owner's own records are its own"


async def test_without_privacy_nothing_speaks_of_it(new_world: NewWorld, tmp_path: Path) -> None:
    async with new_world() as world:
        session = await world.submit()
        view = await world.completed(session)
        assert {holder["privacy"] for holder in view["holders"]} == {None}
        assert (await verified(world, session, tmp_path / "receipts")).privacy_spent == {}
        receipts = await world.owner.items(f"sessions/{session}/receipts")
        assert all("privacy_spent" not in item["receipt"] for item in receipts)


async def test_a_killed_orchestrator_repeats_with_the_same_noise(new_world: NewWorld, tmp_path: Path) -> None:
    digest = await undisturbed(new_world)
    with known_secrets(), recording() as recorder:
        async with new_world() as world:
            point = Point(ORCH, A, COMMANDS, "after", 2, command="Train")
            trap = Trap(world, point, crash(world, ORCH), recorder)
            session = await submitted(world)
            await trap.done()
            view = await world.completed(session)
            assert view["model"]["digest"] == digest
            assert (await verified(world, session, tmp_path / "receipts")).receipts == view["visits_closed"]


@pytest.mark.slow
async def test_a_wiped_gpu_repeats_with_the_same_noise(new_world: NewWorld, tmp_path: Path) -> None:
    """Before any checkpoint by time: the one that is made before the first visit holds the secret."""
    digest = await undisturbed(new_world)
    with known_secrets(), recording() as recorder:
        async with new_world(own_gpu=True, settings=SELDOM) as world:
            point = Point(ORCH, A, COMMANDS, "after", 3, command="Train")
            trap = Trap(world, point, crash(world, A), recorder)
            session = await submitted(world)
            await trap.done()
            view = await world.completed(session)
            assert view["model"]["digest"] == digest
            found = await verified(world, session, tmp_path / "receipts")
            assert found.receipts == view["visits_total"] + 2, "two visits were closed twice, with the same result"
            assert found.privacy_spent["city"] == pytest.approx(TWICE, abs=1e-4)


async def test_without_its_secret_a_session_does_not_go_on(new_world: NewWorld) -> None:
    """The platform takes the checkpoints away and resets the GPU: what follows would be the same records under other noise."""
    with recording() as recorder:
        async with new_world(own_gpu=True, settings=SELDOM) as world:

            async def lose_everything() -> None:
                for path in (world.folder / "orchestrator").rglob("*.sealed"):
                    if path.parent.name == "checkpoints":
                        path.unlink()
                await crash(world, A)()

            trap = Trap(world, Point(ORCH, A, COMMANDS, "after", 3, command="Train"), lose_everything, recorder)
            session = await submitted(world)
            await trap.done()
            view = await world.finish(session)
            assert (view["phase"], view["failure"]["code"]) == ("FAILED", "noise-secret-lost")


@pytest.mark.slow
async def test_what_was_spent_in_vain_is_not_spent_again(new_world: NewWorld, tmp_path: Path) -> None:
    """Reset after three visits, and the first one's holder says no meanwhile: the others' first visits would begin with another model."""
    with recording() as recorder:
        async with new_world(own_gpu=True, settings=SELDOM) as world:
            session = ""

            async def veto_and_reset() -> None:
                await world.operator("city").decide(session, "veto")
                await crash(world, A)()

            trap = Trap(world, Point(CITY, A, "/copy", "after", 3), veto_and_reset, recorder)
            session = await submitted(world, quorum=2)
            await trap.done()
            view = await world.completed(session)
            visits = await world.visits(session)
            passed = [(v["index"], v["outcome"]) for v in visits if "spent their privacy" in (v["reason"] or "")]
            assert passed == [(2, "recalled"), (3, "recalled")]
            assert [v["index"] for v in visits if v["outcome"] == "closed"] == [1, 2, 3, 5, 6]
            found = await verified(world, session, tmp_path / "receipts")
            assert found.privacy_spent["harbour"] == pytest.approx(TWICE, abs=1e-4)
            assert view["step"] == 6
