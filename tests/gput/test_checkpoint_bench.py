"""`gput bench checkpoint`: sessions with and without sealed checkpoints, by turns, and what is made of their figures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gput.__main__ import main
from gput.local.checkpoint_bench import ratios


def row(checkpoints: str, made: int, took: float, trained: float, session: float) -> dict[str, Any]:
    return {
        "checkpoints": checkpoints, "made": made, "checkpoint_s": took, "training_s": trained, "session_s": session,
    }  # fmt: skip


def test_shares_are_of_all_sessions_and_ratios_of_medians() -> None:
    rows = [
        row("default", 2, 0.2, 20.0, 33.0), row("never", 0, 0.0, 20.0, 30.0),
        row("never", 0, 0.0, 20.0, 31.0), row("default", 4, 0.4, 20.0, 33.0),
        row("default", 2, 0.3, 50.0, 99.0), row("never", 0, 0.0, 25.0, 99.0),
    ]  # fmt: skip
    assert ratios(rows) == {"training_ratio": 1.0, "session_ratio": round(33 / 31, 4), "share_of_training": 0.01}


@pytest.mark.slow
def test_the_command_runs_real_sessions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "checkpoint", "--pairs", "1", "--rounds", "1", "--format", "jsonl"]) == 0
    with_them, without, summary = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (with_them["checkpoints"], without["checkpoints"], without["made"]) == ("default", "never", 0)
    assert min(with_them["training_s"], without["training_s"]) > 0
    assert set(summary) == {"training_ratio", "session_ratio", "share_of_training"}
