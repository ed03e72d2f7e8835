"""The folder of a session's checkpoints: what is believed of it, and what in it is nobody's and only in the way."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.gpu_session.checkpoints import Checkpoints, Sealed
from orchestrator.runner.rounds import Rounds
from orchestrator.sessions.remembered import Checkpoint, ModelState
from shared.crypto.secret import Secret
from shared.errors import Unavailable

MODEL = ModelState("m", "o", 1, None)
KEPT = [Checkpoint(name, 1, 8, MODEL, None) for name in ("k_1", "k_2")]


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    for age, name in enumerate(("k_0", "k_1", "k_2")):
        path = tmp_path / f"{name}.sealed"
        path.write_bytes(b"sealed")
        os.utime(path, (1000 + age, 1000 + age))
    return Checkpoints(tmp_path, Secret(bytes(32)))


def test_what_cannot_be_removed_ends_no_session_and_keeps_nothing_else(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    """The checkpoint is written by then: a name that somebody left there would have ended the session after each."""
    stray = tmp_path / "a_stray.sealed"
    stray.mkdir()
    os.utime(stray, (1, 1))
    checkpoints.prune(KEPT)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a_stray.sealed", "k_1.sealed", "k_2.sealed"]


def test_a_folder_that_cannot_be_listed_ends_no_session(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Path) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", broken)
    checkpoints.prune(KEPT)
    assert checkpoints.usable(KEPT) is KEPT[-1]


def test_what_is_set_aside_is_not_there_any_more(checkpoints: Checkpoints, tmp_path: Path) -> None:
    checkpoints.set_aside("k_2")
    checkpoints.set_aside("k_2")
    assert checkpoints.usable(KEPT) is KEPT[0]
    assert (tmp_path / "k_2.damaged").read_bytes() == b"sealed"


def test_what_cannot_be_set_aside_is_said(checkpoints: Checkpoints, tmp_path: Path) -> None:
    """Else the next life would take the same one again."""
    (tmp_path / "k_2.damaged").mkdir()
    with pytest.raises(Unavailable) as refusal:
        checkpoints.set_aside("k_2")
    assert refusal.value.code == "disk-unusable"


@pytest.mark.parametrize("there", [True, False])
async def test_a_model_whose_checkpoint_is_gone_is_sealed_anew(
    checkpoints: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    written, facts = list[str](), list[Any]()

    async def write(life: Any, name: str, validation: float | None) -> Sealed:
        written.append(name)
        return Sealed(name, 8, MODEL)

    async def nothing() -> None:
        pass

    async def record(fact: Any) -> None:
        facts.append(fact)

    monkeypatch.setattr(checkpoints, "write", write)
    state = SimpleNamespace(checkpoints=KEPT, position=1, best=None, best_before=None)
    rounds = cast(Any, object.__new__(Rounds))
    rounds._run = SimpleNamespace(
        commit=nothing, state=state, committed=MODEL, clock=lambda: 0.0, timer=lambda: 0.0, life=None, entropy=os.urandom,
        book=SimpleNamespace(record=record, stage=facts.append),
    )  # fmt: skip
    rounds._checkpoints = checkpoints
    rounds._pace = SimpleNamespace(not_needed=lambda now: None, made=lambda now, cost: None)
    if not there:
        (tmp_path / "k_2.sealed").unlink()
    await rounds.checkpoint()
    assert len(written) == (0 if there else 1)
    assert [fact.kind for fact in facts] == ([] if there else ["session.checkpoints_gone", "session.checkpointed"])
    assert [fact.body["checkpoints"] for fact in facts[:1]] == ([] if there else [["k_2"]])
