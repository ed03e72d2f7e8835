"""Real processes: kill -9 of any of them in mid-session, then start again: the same model; and nothing of a record in their memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.gpu.test_gpu_scrub import descendants, held_by
from tests.gpu.test_gpu_scrub import windows as sparse_windows
from tests.processes.stage import Stage, staged
from tests.world.world import World
from tests.world.world_material import HOLDERS, Material, make_material

pytestmark = pytest.mark.processes
Act = Callable[[Stage], Awaitable[None]]
ROUNDS = 4


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return make_material(tmp_path_factory.mktemp("material") / "installation")


@pytest.fixture(scope="module")
def undisturbed(material: Material, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The model of the same session where nobody dies, and where all services are in one process."""

    async def played() -> str:
        async with World(tmp_path_factory.mktemp("undisturbed") / "world", material) as world:
            view = await world.completed(await world.submit(rounds=ROUNDS))
            return str(view["model"]["digest"])

    return asyncio.run(played())


def records_in_memory(stage: Stage) -> dict[tuple[str, str], int]:
    """Windows of records that are held by anybody but their holders: by party and process."""
    pids = stage.pids()
    watched = {"agent": [pids["agent"]], "compute": descendants(pids["agent"])}
    watched |= {name: [pids[name]] for name in ("orchestrator", "platform")}
    assert watched["compute"]
    owners = {window: holder for holder, canary in stage.material.canaries.items() for window in sparse_windows(canary)}
    return {
        (owners[window], name): count
        for name, group in watched.items() for window, count in held_by(group, owners).items()
    }  # fmt: skip


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


async def _orchestrator_dies(stage: Stage) -> None:
    stage.kill("orchestrator")
    await stage.gone("orchestrator")
    # A new orchestrator listens elsewhere; holders are told by their settings, so they start again as well.
    stage.kill(*(f"holder-{name}" for name in HOLDERS))
    await stage.gone(*(f"holder-{name}" for name in HOLDERS))
    await stage.launch()


async def _holder_dies(stage: Stage) -> None:
    stage.kill("holder-harbour")
    await stage.gone("holder-harbour")
    await stage.launch()


async def _everything_dies(stage: Stage) -> None:
    below = descendants(stage.pids()["agent"])
    stage.kill()
    await stage.gone()
    for _ in range(500):
        if not any(_runs(pid) for pid in below):
            break
        await asyncio.sleep(0.02)
    assert not [pid for pid in below if _runs(pid)], "compute processes die with their agent"
    stage.renew()  # the launcher is new as well
    await stage.launch()


@pytest.mark.parametrize(
    ("act", "visits"),
    [
        pytest.param(_everything_dies, 4, id="everything"),
        pytest.param(_orchestrator_dies, 3, id="orchestrator", marks=pytest.mark.slow),
        pytest.param(_holder_dies, 1, id="holder", marks=pytest.mark.slow),
    ],
)  # fmt: skip
async def test_killed_in_mid_session(
    act: Act, visits: int, tmp_path: Path, material: Material, undisturbed: str
) -> None:
    """The same model; and L7, processes' memory: after the rounds that follow, not only after one visit."""
    async with staged(tmp_path / "stage", material) as stage:
        await stage.submit(rounds=ROUNDS)
        await stage.until(lambda view: view["visits_closed"] >= visits)
        await act(stage)
        view = await stage.end()
        assert view["model"]["digest"] == undisturbed
        assert records_in_memory(stage) == {}
        everybody = [pid for root in stage.pids().values() for pid in (root, *descendants(root))]
    assert [pid for pid in everybody if _runs(pid)] == []
