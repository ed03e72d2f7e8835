"""Real processes: kill -9 of any of them in mid-session, then start again: the same model; and nothing of a record in their memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.gpu.test_gpu_scrub import descendants, held_by
from tests.gpu.test_gpu_scrub import windows as sparse_windows
from tests.processes.stage import Stage, staged
from tests.world.world_material import HOLDERS, Material, make_material

pytestmark = pytest.mark.processes
Act = Callable[[Stage], Awaitable[None]]


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return make_material(tmp_path_factory.mktemp("material") / "installation")


@dataclass
class Undisturbed:
    """A session that nothing happened to: its model, windows of records found afterwards (by party and process), who was left."""

    digest: str
    found: dict[tuple[str, str], int]
    left: list[int]


@pytest.fixture(scope="module")
def undisturbed(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return asyncio.run(_undisturbed(tmp_path_factory.mktemp("undisturbed") / "stage", material))


async def _undisturbed(folder: Path, material: Material) -> Undisturbed:
    async with staged(folder, material) as stage:
        await stage.submit()
        view = await stage.end()
        pids = stage.pids()
        watched = {"agent": [pids["agent"]], "compute": descendants(pids["agent"])}
        watched |= {name: [pids[name]] for name in ("orchestrator", "platform")}
        assert watched["compute"]
        owners = {window: holder for holder, canary in material.canaries.items() for window in sparse_windows(canary)}
        found = {
            (owners[window], name): count
            for name, group in watched.items() for window, count in held_by(group, owners).items()
        }  # fmt: skip
        everybody = [pid for root in pids.values() for pid in (root, *descendants(root))]
    return Undisturbed(view["model"]["digest"], found, [pid for pid in everybody if _runs(pid)])


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_no_record_is_left_in_any_process_but_its_holders(undisturbed: Undisturbed) -> None:
    """L7, processes' memory: after whole sessions, not only after one visit."""
    assert undisturbed.found == {}


def test_nothing_is_left_running(undisturbed: Undisturbed) -> None:
    assert undisturbed.left == []


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
    async with staged(tmp_path / "stage", material) as stage:
        await stage.submit()
        await stage.until(lambda view: view["visits_closed"] >= visits)
        await act(stage)
        view = await stage.end()
        assert view["model"]["digest"] == undisturbed.digest
