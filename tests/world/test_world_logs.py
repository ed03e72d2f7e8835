"""What a whole session's log lines say: session, visit and party wherever code of that visit speaks, and never another's request."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from data_holder.visits import Visits
from gpu_agent.hardware.device import Device
from gpu_agent.unit import GpuUnit
from orchestrator.visits import cycle
from shared.service.logging import configure_logging, get_logger
from tests.world.world import World
from tests.world.world_material import HOLDERS, ROUNDS, Material


def _speaks(where: str, act: Any) -> Any:
    def speaking(*words: Any, **more: Any) -> Any:
        get_logger("probe").info(where)
        return act(*words, **more)

    return speaking


async def test_every_line_of_a_visit_says_whose_it_is(
    material: Material, unit: GpuUnit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cycle, "train", _speaks("orchestrator", cycle.train))
    monkeypatch.setattr(Visits, "_provision", _speaks("holder", Visits._provision))
    monkeypatch.setattr(Device, "commands", _speaks("agent", Device.commands))
    log = io.StringIO()
    configure_logging("debug", "json", log)
    try:
        async with World(tmp_path / "world", material, unit) as world:
            session = await world.submit()
            await world.completed(session)
            visits = {visit["id"]: visit["holder"] for visit in await world.visits(session)}
    finally:
        configure_logging("warning", "json")
    told = [json.loads(line) for line in log.getvalue().splitlines()]
    probes = {where: [line for line in told if line["event"] == where] for where in ("orchestrator", "holder", "agent")}
    assert len(probes["orchestrator"]) == len(probes["holder"]) == len(HOLDERS) * ROUNDS
    for line in probes["orchestrator"]:
        assert (line["session"], line["party"]) == (session, visits[line["visit"]])
        assert "request_id" not in line  # of whoever submitted, or approved last
    for line in probes["holder"]:
        assert (line["session"], line["visit"] in visits) == (session, True)
        assert "request_id" not in line
    assert probes["agent"]
    assert {line["port"] for line in probes["agent"]} == {"orchestrator"}
    ends = [line for line in told if line["event"] == "visit over"]
    assert {line["visit"]: line["party"] for line in ends} == visits
    assert {line["outcome"] for line in ends} == {"closed"}
