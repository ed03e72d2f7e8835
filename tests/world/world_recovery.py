"""An orchestrator that comes back as another: on another machine, whose keys differ, or of another release, which measures otherwise.

Knows the in-process world; no test.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from gpu_agent.platform import manufacture
from gpu_agent.platform.files import Installation
from gpu_agent.platform.measurement import measure_code
from shared.canonical import sha256
from shared.crypto.secret import Secret
from shared.service.engine import create_engine, parse_url
from shared.service.evidence import EmulatedProvider
from tests.world.world import World, url
from tests.world.world_service import Incarnation
from tests.world.world_wire import Link

ORCH = "orchestrator"


class Elsewhere(EmulatedProvider):
    """The quoting enclave of another machine: the same code is measured the same, and its keys are others."""

    async def derived_key(self, label: str) -> Secret:
        here = await super().derived_key(label)
        return Secret(sha256(b"another machine" + here.reveal()))


def on_another_machine(world: World) -> None:
    """From its next start on."""
    usual = world._evidence

    def evidence(cvm: str, owner: Incarnation) -> EmulatedProvider:
        if cvm != ORCH:
            return usual(cvm, owner)
        token = (world.folder / "cvms" / f"{cvm}.token").read_text()
        transport = Link(world.wire, cvm, "platform", owner)
        return Elsewhere(f"{url('platform')}/cvms/{cvm}", token, transport=transport)

    world._evidence = evidence  # type: ignore[method-assign]


def of_another_release(world: World, code: Path) -> None:
    """From the platform's next start on; nobody's reference values know it."""
    code.mkdir()
    (code / "orchestrator.py").write_text("print('a newer release')\n")
    world._settings["platform"] = {**world._settings.get("platform", {}), "cvms": {ORCH: [code]}}


def known_to_everybody(world: World, code: Path) -> None:
    """From each one's next start on: what their operators believe now, this release's measurement beside the one before.

    Profiles state the trust folder, too, and that is another one now.
    """
    place = Installation(world.folder)
    value = json.loads(place.reference.read_text())
    known = {role: {profile["mr_td"] for profile in profiles} for role, profiles in value["cvms"].items()}
    known[ORCH].add(measure_code([code]).hex())
    value["cvms"] = {role: [{"mr_td": mr_td} for mr_td in sorted(mr_tds)] for role, mr_tds in known.items()}
    place.reference.write_text(json.dumps(value))
    value["cvms"] = {
        role: [
            {"mr_td": mr_td, **manufacture._registers(place, role, settings)}
            for mr_td in sorted(mr_tds) for settings in manufacture.CONFIGURATIONS[role]
        ]
        for role, mr_tds in known.items()
    }  # fmt: skip
    place.reference.write_text(json.dumps(value))


def change(world: World, statement: str, **values: Any) -> list[Any]:
    """What the platform, which owns the disk, does to the orchestrator's database; it must not run."""
    engine = create_engine(parse_url(f"sqlite:///{next((world.folder / ORCH).glob('*.db'))}"), "write")
    with engine.begin() as connection:
        found = connection.execute(sa.text(statement), values)
        rows = [tuple(row) for row in found] if found.returns_rows else []
    engine.dispose()
    return rows


async def waits(world: World, session: str, condition: Callable[[str], bool]) -> str:
    """The session's waiting_for, once `condition` holds of it."""
    view = await world.until(session, lambda view: condition("; ".join(view["waiting_for"])))
    return "; ".join(view["waiting_for"])
