"""An id that an answer names goes into addresses and names of files: one that is none is refused before anything is sent or written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gput.__main__ import main
from gput.client import UNATTESTED, AsyncClient
from gput.receipt_folder import TRUST
from shared.crypto.signing import PartyKey
from shared.errors import NotFound
from tests.gput.forgery import ORCHESTRATOR, Forged, Forger, forger
from tests.world.world_material import Material

__all__ = ["forger"]

SESSION, OTHER = "s_aaaaaaaaaaaaaaaa", "s_bbbbbbbbbbbbbbbb"
FORGED = [f"s_7f/../{OTHER}", "s_7f/..", "s_7f?x=1", "s_7f/../../prod-trust", "s_7f\x00", "s_7fabc"]
COMMANDS = [
    "session cancel s_7f --yes",
    "session pause s_7f",
    "session delete s_7f --yes",
    "session export s_7f -o model.safetensors",
    "session receipts s_7f --trust demo-trust",
    "session export-metrics s_7f --tensorboard curves",
    "session succeed s_7f -o next.json",
    "party request s_7f",
    f"party approve s_7f --manifest {'ab' * 32}",
]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a key, a token and a trust folder."""
    desk = tmp_path / "desk"
    (desk / "demo-trust").mkdir(parents=True)
    (tmp_path / "prod-trust").mkdir()
    for name in TRUST:
        (desk / "demo-trust" / name).write_text("believed in a demo")
        (tmp_path / "prod-trust" / name).write_text("believed")
    PartyKey.generate().save(desk / "key.pem")
    (desk / "operator.token").write_text("00" * 32)
    monkeypatch.chdir(desk)
    monkeypatch.setenv("GPUT_KEY", "key.pem")
    monkeypatch.setenv("GPUT_HOLDER_TOKEN", "operator.token")
    return desk


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_beginning_leads_to_an_id_or_nowhere(
    command: str, forged: str, desk: Path, forger: Callable[[Forged], Forger], capsys: pytest.CaptureFixture[str]
) -> None:
    key = "session" if command.startswith("party") else "id"
    stranger = forger(lambda request: (200, {"items": [{key: forged, "phase": "RUNNING"}], "next": None}))
    before = files(desk.parent)
    assert main(command.split()) == 6
    assert "[peer-unintelligible]" in capsys.readouterr().err
    assert (len(stranger.heard), stranger.told) == (1, [])
    assert files(desk.parent) == before


@pytest.mark.parametrize("forged", ["v_7f/../x", "v_7f", 7, ["v_7f"]])
def test_a_beginning_of_a_visit_leads_to_an_id_or_nowhere(
    forged: object, desk: Path, forger: Callable[[Forged], Forger], capsys: pytest.CaptureFixture[str]
) -> None:
    stranger = forger(lambda request: (200, {"items": [{"id": forged}], "next": None}))
    assert main(["session", "logs", SESSION, "--visit", "v_7f"]) == 6
    assert "[peer-unintelligible]" in capsys.readouterr().err
    assert len(stranger.heard) == 1


@pytest.mark.parametrize("forged", [OTHER, "/etc/somewhere", f"../{OTHER}", ""])
@pytest.mark.parametrize("command", [
    "session export-metrics SESSION --tensorboard curves", "session show SESSION", "session wait SESSION", "session pause SESSION",
])  # fmt: skip
def test_what_is_told_of_another_session_is_not_taken_for_this_ones(
    command: str, forged: str, desk: Path, forger: Callable[[Forged], Forger], capsys: pytest.CaptureFixture[str]
) -> None:
    forger(lambda request: (200, {"id": forged, "phase": "COMPLETED", "items": [], "next": None}))
    before = files(desk.parent)
    assert main([SESSION if word == "SESSION" else word for word in command.split()]) == 6
    assert "another session" in capsys.readouterr().err
    assert files(desk.parent) == before


def test_a_smoke_test_cancels_no_session_but_its_own(
    desk: Path, gput_material: Material, forger: Callable[[Forged], Forger], capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever answers chooses the owner's name, but not the session that follows from it."""
    parties = {"items": [{"name": "north", "role": "holder", "key": "11" * 32}], "next": None}
    view = {"id": OTHER, "phase": "RUNNING", "owner": "alice", "waiting_for": []}
    broken = {
        "code": "odd",
        "title": "odd",
        "status": 409,
        "detail": "that ends the waiting, and has the session cancelled",
    }

    def answer(request: httpx2.Request) -> tuple[int, Any]:
        if (request.method, request.url.path) == ("GET", f"/v1/sessions/{OTHER}"):
            return 409, broken
        return 200, parties if request.url.path == "/v1/parties" else view

    asked = forger(answer)
    (desk / "p.gput").write_bytes(gput_material.archive)
    assert main(["smoke", "p.gput", "--trust", "demo-trust", "--emulated", "--timeout", "1"]) == 6
    assert "[peer-unintelligible]" in capsys.readouterr().err
    assert [line.partition(" ")[0] for line in asked.told] == ["PUT", "POST"]
    assert asked.told[-1] == "POST /v1/sessions"


async def test_a_client_sends_nothing_under_what_is_no_id(tmp_path: Path, forger: Callable[[Forged], Forger]) -> None:
    stranger = forger(lambda request: (200, {}))
    async with AsyncClient(ORCHESTRATOR, PartyKey.generate(), trust=UNATTESTED, peers=stranger.peers()) as client:
        for forged in FORGED:
            calls = (
                client.act(forged, "cancel"), client.delete(forged), client.session(forged), client.manifest(forged),
                client.model(forged, tmp_path / "model"), anext(client.events(forged)), client.successor(forged),
            )  # fmt: skip
            for call in calls:
                with pytest.raises(NotFound) as told:
                    await call
                assert told.value.code == "unknown-session"
    assert stranger.heard == []
    assert files(tmp_path) == {}
