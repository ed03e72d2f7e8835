"""The leader's process dies, or is stopped and goes on as a zombie: the standby leads, and the session ends with the same model.

How long a takeover takes is printed and recorded, not judged: that depends on the machine.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.errors import Unavailable
from tests.processes.stage import ENDED, staged
from tests.processes.standby import LEADER, STANDBY, PairStage, paired
from tests.world.world import PATIENCE_S
from tests.world.world_material import Material, make_material

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return make_material(tmp_path_factory.mktemp("material") / "installation")


@pytest.fixture(scope="module")
def undisturbed(material: Material, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Digest of the model of a session with one orchestrator that nothing happens to."""

    async def run() -> str:
        async with staged(tmp_path_factory.mktemp("undisturbed") / "stage", material) as stage:
            await stage.submit()
            return str((await stage.end())["model"]["digest"])

    return asyncio.run(run())


async def _patiently(stage: PairStage, condition: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await stage.until(condition, PATIENCE_S)
        except Unavailable:  # nobody leads at the moment
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_the_standby_takes_over(
    number: signal.Signals, tmp_path: Path, material: Material, undisturbed: str, postgres_url: str,
    record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    async with paired(tmp_path / "stage", material, postgres_url) as stage:
        assert (await stage.ready(STANDBY)).json()["checks"]["leading"].count("stands by") == 1
        await stage.submit()
        await stage.until(lambda view: view["visits_closed"] >= 3)
        pid = stage.service(LEADER).pid
        assert pid is not None
        os.kill(pid, number)
        try:
            seconds = await stage.leads(STANDBY)
            record_property("takeover_s", round(seconds, 2))
            print(f"takeover after {number.name}: {seconds:.2f} s")
            view = await _patiently(stage, lambda view: view["visits_closed"] >= 5)
        finally:
            if number is signal.SIGSTOP:
                os.kill(pid, signal.SIGCONT)
        view = await _patiently(stage, lambda view: view["phase"] in ENDED)
        assert view["phase"] == "COMPLETED", view["failure"]
        assert view["model"]["digest"] == undisturbed
        if number is signal.SIGSTOP:
            await stage.says(LEADER, "stands by")
        else:
            await stage.gone(LEADER)
            await stage.launch()  # the dead one comes back as the standby
            await stage.says(LEADER, "stands by")
