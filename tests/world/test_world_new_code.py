"""Holders restart with other measured code in mid-session: one goes on by its operator's recovery key, one by its former release."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import httpx2

from gpu_agent.platform.measurement import installed_package, measure_code
from shared.claims.manifest import EvidencePolicy, RosterEntry
from shared.service.key_file import make_key_file
from tests.world.world import NewWorld, World, url
from tests.world.world_material import EMULATED, HOLDERS
from tests.world.world_recording import Recording
from tests.world.world_wire import Link

CITY, NORTH = "holder-city", "holder-north"


class Code:
    """A holder's installed packages, copied; their measurement as they were and with one byte more."""

    def __init__(self, folder: Path) -> None:
        self.trees = [folder / "shared", folder / "data_holder"]
        for tree in self.trees:
            shutil.copytree(installed_package(tree.name), tree, ignore=shutil.ignore_patterns("__pycache__"))
        self._file = self.trees[1] / "fitting.py"
        self._old = self._file.read_bytes()
        self.measured = [measure_code(self.trees).hex()]
        self.update()
        self.measured.append(measure_code(self.trees).hex())
        self.go_back()

    def update(self) -> None:
        self._file.write_bytes(self._old + b"\n")

    def go_back(self) -> None:
        self._file.write_bytes(self._old)


def roster(world: World, code: Code) -> tuple[RosterEntry, ...]:
    """What the parties agreed on: holders' code as it is, and as the next release will be."""
    both = EvidencePolicy(roots=EMULATED.roots, measurements=tuple(code.measured))
    return tuple(RosterEntry(holder=name, key=world.key(name).fingerprint, evidence=both) for name in HOLDERS)


async def agree(world: World, name: str, code: Code) -> None:
    """What an operator does who has read that roster: the other holders' next release counts, too."""
    await world[f"holder-{name}"].kill()
    with (world.folder / f"holder-{name}" / "policy.toml").open("a") as policy:
        policy.write(f"\nholder_measurements = {json.dumps(code.measured)}\n")
    await world[f"holder-{name}"].start()


async def refuses(world: World, holder: str, code: str) -> None:
    async with httpx2.AsyncClient(transport=Link(world.wire, "somebody", holder), base_url=url(holder)) as http:
        while "stopped serving" not in (answer := await http.get("/readyz")).text:
            assert "journal is locked" in answer.text
    assert code in answer.text


def runs(world: World, holder: str) -> Any:
    """The measurement that its quotes carry."""
    return json.loads((world.folder / "platform" / "cvms" / f"{holder}.json").read_text())["mr_td"]


async def closed(world: World, session: str, visits: int) -> Any:
    return await world.until(session, lambda view: view["visits_closed"] >= visits)


async def test_a_session_outlives_its_holders_code(new_world: NewWorld, recorded: Recording, tmp_path: Path) -> None:
    code, key = Code(tmp_path / "code"), tmp_path / "recovery.key"
    make_key_file(key)
    settings = {
        "platform": {"cvms": {CITY: code.trees, NORTH: code.trees}}, CITY: {"recovery_key_file": key},
    }  # fmt: skip
    async with new_world(settings=settings) as world:
        for name in HOLDERS:
            await agree(world, name, code)
        session = await world.submit(roster=roster(world, code))
        await closed(world, session, 1)
        for holder in (CITY, NORTH):
            await world[holder].kill()
        code.update()
        await world[CITY].start()
        await world[NORTH].start()
        await refuses(world, NORTH, "holder-keys-sealed")
        code.go_back()
        await world[NORTH].restart()
        view = await world.completed(session)
        assert view["model"]["digest"] == recorded.view["model"]["digest"]
        assert view["visits_closed"] == recorded.view["visits_closed"]
        await world.operator("city").request(session, phase="COMPLETED")  # its receipts are proven by then
        assert [runs(world, holder) for holder in (CITY, NORTH)] == [code.measured[1], code.measured[0]]
