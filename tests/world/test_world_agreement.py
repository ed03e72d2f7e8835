"""Holders who mean different things: a session held, corrected at the command line, run; and the next one's estimate told from it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shared.service.http import Peers
from tests.world.test_world_commands import held
from tests.world.world import NewWorld, World
from tests.world.world_hand import Across, Hand, at_hand
from tests.world.world_wire import Link

GPU_ACTS = "/commands"
UNLIKE = ["city, north, harbour (dataset-classes-differ)"]


async def decided(world: World, session: str, *names: str) -> None:
    for name in names:
        await world.operator(name).decide(session, "approve", dataset="ehr")


def speak_as_harbour(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """`gput party` speaks to harbour's service."""
    there = Across(Link(world.wire, "operator", "holder-harbour"), asyncio.get_running_loop())

    def peers(**more: Any) -> Peers:
        return Peers(transports={"http://holder-harbour.test": there})

    monkeypatch.setattr("gput.commands.operator.Peers", peers)
    monkeypatch.setenv("GPUT_HOLDER_URL", "http://holder-harbour.test")
    monkeypatch.setenv("GPUT_HOLDER_TOKEN", str(world.folder / "holder-harbour" / "operator.token"))


async def read(world: World, session: str) -> Any:
    """What harbour's operator is asked, with its program: every request keeps it, also the second one of a program."""
    async with asyncio.timeout(60):
        while True:
            asked = await world.operator("harbour").request(session)
            if asked["program"] is not None:
                return asked


async def declare(hand: Hand, names: str) -> None:
    words = ("--unit", "features=mg", "--class", f"label={names}", "--format", "json")
    code, out, said = await hand("party", "declare", "ehr", *words)
    assert (code, held("party declare", out)["classes"]) == (0, [f"label={names}"]), said


async def test_a_held_session_is_corrected_and_the_next_one_is_estimated_from_it(
    new_world: NewWorld, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with new_world(approve="manual") as world:
        hand = at_hand(world, tmp_path, capsys, monkeypatch)
        speak_as_harbour(world, monkeypatch)
        session = await world.submit()
        for name in ("city", "north"):
            said = {"units": {"features": ["mg"]}, "classes": {"label": ["a", "b", "c", "d"]}}
            assert (await world.operator(name).say("datasets/ehr/declaration", said, "PUT")).status_code == 200
        await declare(hand, "b,a,c,d")
        await decided(world, session, "city", "north", "harbour")
        view = await world.until(session, lambda v: v["agreement"]["held"], seconds=20)
        assert (view["phase"], view["waiting_for"]) == ("AWAITING_APPROVAL", UNLIKE)
        [found] = view["agreement"]["findings"]
        assert "the same classes under other numbers" in found["detail"]
        assert not [e for e in world.wire.transcript if e.call.path.endswith(GPU_ACTS)], (
            "the GPU was not asked for anything"
        )

        code, out, _ = await hand("session", "show", session, "--gpu-hour-price", "2", "--format", "json")
        told = held("session show", out)["estimate"]
        assert (code, told["seconds"], told["cost"], told["visits"]) == (0, None, None, 6)
        await declare(hand, "a,b,c,d")
        words = ("party", "approve", session, "--manifest", view["manifest_digest"], "--anew", "--format", "json")
        code, out, said_by = await hand(*words)
        assert (code, held("party approve", out)["state"]) == (0, "approved"), said_by
        done = await world.completed(session)
        assert done["agreement"] == {"compared": ["city", "harbour", "north"], "held": False, "findings": []}
        code, out, _ = await hand("party", "datasets", "--format", "json")
        assert (code, [row["units"] for row in held("party datasets", out)]) == (0, [["features=mg"]])

        second = await world.submit(name="again", rounds=4)
        asked = await read(world, second)
        assert asked["estimate"]["seconds"] > 0
        assert (asked["estimate"]["visits"], asked["estimate"]["unknown"]) == (4, [])
        code, out, _ = await hand("session", "show", second, "--gpu-hour-price", "3600", "--format", "json")
        told = held("session show", out)["estimate"]
        assert told["cost"] == pytest.approx(told["seconds"])
        await world.owner.act(second, "cancel")
