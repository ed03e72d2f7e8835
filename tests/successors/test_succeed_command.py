"""The successor as its owner makes it: at the command line and from Python, with what they say of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gput.client import UNATTESTED
from gput.waiting import Client
from tests.successors.successor_world import CAME, FIRST, LEFT, NewWorld, Rested
from tests.world.world import url
from tests.world.world_hand import across, at_hand


async def test_another_holder_by_one_command(
    again: NewWorld, rested: Rested, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with again() as world:
        hand = at_hand(world, tmp_path, capsys, monkeypatch)
        wanted, both = tmp_path / "next.json", tmp_path / "both"
        swap = ("session", "succeed", rested.session, "--replace", f"{LEFT}={CAME}", "-o", str(wanted))
        code, out, err = await hand(*swap)
        assert code == 0, err
        assert "roster.0.holder" in out
        assert f"records of {', '.join(sorted(FIRST))} are in that model" in err
        assert f"without {LEFT}, which agreed" in err
        assert f"{CAME} for the first time" in err
        assert json.loads(wanted.read_text())["predecessor"]["session"] == rested.session
        code, out, err = await hand("session", "submit", str(wanted), "--format", "json")
        assert code == 0, err
        after = json.loads(out)["id"]
        view = await world.completed(after)
        assert view["model"]["digest"] == rested.model["digest"]
        for name in (rested.session, after):
            code, _, err = await hand(
                "session", "receipts", name, "-o", str(both / name), "--trust", str(world.folder / "trust")
            )
            assert code == 0, err
        verify = ("receipts", "verify", str(both / after))
        code, out, _ = await hand(*verify, "--predecessor", str(both / rested.session), "--format", "json")
        assert (code, json.loads(out)["predecessor"]) == (0, rested.session)
        code, _, err = await hand(*verify, "--predecessor", str(both / after))
        assert code == 2
        assert "predecessor-mismatch" in err
        code, _, err = await hand("session", "succeed", rested.session, "--replace", LEFT)
        assert code == 2
        assert "bad-swap" in err


async def test_the_client_writes_the_same_manifest(again: NewWorld, rested: Rested) -> None:
    async with again() as world:
        peers = across(world)

        def ask() -> tuple[str, str]:
            with Client(url("orchestrator"), world.key("owner"), trust=UNATTESTED, peers=peers) as client:
                made = client.sessions.successor(rested.session[:8], replace={LEFT: CAME})
                after = client.sessions.submit(made)
                return after.id, str(after.predecessor)

        after, before = await asyncio.to_thread(ask)
        assert before == rested.session
        assert (await world.completed(after))["model"]["digest"] == rested.model["digest"]
