"""Whoever answers in a service's place, and whatever it answers: a command says so, and is never itself at fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gput.__main__ import main
from gput.client import AsyncClient
from shared.crypto.signing import PartyKey
from shared.service.http import Peers
from tests.gput.test_other_answers import ANSWERS, SESSION
from tests.world.fixtures import material
from tests.world.world_material import Material

__all__ = ["material"]

ORCHESTRATOR, HOLDER = "http://orchestrator.test", "http://holder.test"
ANSWERED = ANSWERS | {"a page of nothing": {"items": [{}]}}
DIGEST = "a3" * 32
LOOKS = ("show", "visits", "steps", "fetches", "timeline", "wait", "watch", "logs", "pause", "resume")
LISTS = (
    "session list",
    "session visits SESSION",
    "session fetches SESSION",
    "party list",
    "party keys north",
    "party requests",
)
"""Of these each row shows what it has: one that has nothing is a row of dashes."""
COMMANDS = [
    *(f"session {verb} SESSION" for verb in LOOKS),
    *(f"session {verb} SESSION --dry-run" for verb in ("pause", "resume", "cancel")),
    *(f"session {verb} {beginning}" for verb in ("show", "pause", "logs") for beginning in ("s_a",)),
    "session cancel SESSION --yes",
    "session logs SESSION --visit v_a",
    "session logs SESSION --follow",
    "session list",
    "session receipts SESSION --trust TRUST -o receipts",
    "session succeed SESSION -o successor.json",
    "session export-metrics SESSION --tensorboard curves",
    "session draft PROGRAM",
    "session submit MANIFEST",
    "session submit MANIFEST --wait",
    "session submit MANIFEST --upload PROGRAM",
    "session submit MANIFEST --upload PROGRAM --dry-run",
    "session submit MANIFEST --upload WEIGHTS",
    "attest session SESSION",
    "plan --session SESSION --holders 3",
    "smoke PROGRAM --trust TRUST",
    "party list",
    "party keys north",
    "party enrol north PUBLIC",
    "party enrol north PUBLIC --dry-run",
    "party rotate-key",
    "party rotate-key --dry-run",
    "party revoke-key north --yes",
    "party replace-key north PUBLIC --yes",
    "party replace-key north PUBLIC --dry-run",
    "party requests",
    "party request SESSION",
    "party request s_a",
    *(f"party {verb} SESSION --manifest {DIGEST} --dry-run" for verb in ("approve", "refuse", "veto")),
    f"party approve SESSION --manifest {DIGEST}",
    f"party refuse SESSION --manifest {DIGEST}",
    f"party veto SESSION --manifest {DIGEST} --yes",
    "party datasets",
    "party declare ehr --unit dose=mg",
    "token rotate",
]


@pytest.fixture
def words(tmp_path: Path, material: Material, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Files that the commands name, by the word that stands for them above; a person's key and an operator's token."""
    PartyKey.generate().save(tmp_path / "key.pem")
    (tmp_path / "operator.token").write_text("00" * 32)
    files = {
        "MANIFEST": material.manifest().canonical(), "PROGRAM": material.archive, "WEIGHTS": material.weights,
        "PUBLIC": PartyKey.generate().public_pem,
    }  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    told = {"URL": ORCHESTRATOR, "KEY": "key.pem", "HOLDER_URL": HOLDER, "HOLDER_TOKEN": "operator.token"}
    for name, value in told.items():
        monkeypatch.setenv(f"GPUT_{name}", value)
    return {"SESSION": SESSION, "TRUST": str(material.folder / "trust")} | {name: name for name in files}


def answering(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    """Have every service answer everything with this."""
    body = b"" if answer is None else json.dumps(answer).encode()

    def answered(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=body, headers={"content-type": "application/json"})

    def peers(**_more: Any) -> Peers:
        return Peers(transports={url: httpx2.MockTransport(answered) for url in (ORCHESTRATOR, HOLDER)})

    monkeypatch.setattr(
        "gput.client.AsyncClient", lambda url, key, **more: AsyncClient(url, key, peers=peers(), **more)
    )
    for module in ("operator", "token"):
        monkeypatch.setattr(f"gput.commands.{module}.Peers", peers)


@pytest.mark.parametrize("answer", ANSWERED)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_that_another_answers(
    command: str,
    answer: str,
    words: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answering(monkeypatch, ANSWERED[answer])
    code = main([words.get(word, word) for word in command.split()])
    said = capsys.readouterr().err
    if answer == "a page of nothing" and command in LISTS:
        assert (code, said) == (0, "")
    elif answer == "a page of nothing" and command == "attest session SESSION":
        assert (code, "[result-contradicts]" in said) == (4, True), said
    else:
        assert (code, "[peer-unintelligible]" in said) == (6, True), said
