"""The further demos with real processes: the model is the one that was judged, receipts verify, nothing stays behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gput.local.demos.catalogue import DEMOS
from gput.local.demos.records import TOGETHER
from gput.receipts import verify
from tests.gput.test_gput_demo_process import DEADLINE_S, left_running

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def play(folder: Path, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "gput", "demo", *words, "--dir", str(folder), "--format", "json"],
        capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "visit 2/" in done.stderr
    assert "\x1b" not in done.stderr
    assert not left_running(folder)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", ["hospitals", "digits"])
def test_a_demo_on_records(name: str, tmp_path: Path) -> None:
    folder, holders = tmp_path / "run", len(DEMOS[name].holders)
    found = play(folder, name, "--rounds", "3", "--steps", "1")
    assert (found["visits"], found["steps"]) == (3 * holders, 3 * holders)
    assert found["backend"] == "EMULATED"
    assert found["bytes"]["dataset_bytes_to_orchestrator"] == found["bytes"]["model_to_holders"] == 0
    assert verify(folder / "receipts").receipts == found["receipts"]["verified"] == 3 * holders
    # What the session measured in the GPU and what plain PyTorch measures of the exported model are one loss.
    together = next(row for row in found["check"]["rows"] if row["trained on"] == TOGETHER)
    assert together["loss"] == pytest.approx(found["held_out_loss"]["last"], abs=2e-4)
    assert found["held_out_loss"]["last"] < found["held_out_loss"]["first"]


def test_the_demo_of_llmc(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    small = ["--layers", "1", "--width", "32", "--batch", "4", "--rounds", "2", "--steps", "2"]
    found = play(folder, "llmc", *small)
    check = found["check"]
    assert check["start_loss"] == pytest.approx(found["held_out_loss"]["first"], abs=2e-4)
    assert check["reader_loss"] == pytest.approx(found["held_out_loss"]["last"], abs=2e-4)
    assert check["difference"] < 1e-3
    assert (folder / "trained.bin").stat().st_size == (folder / "start.bin").stat().st_size
    assert (folder / "trained.bin").read_bytes() != (folder / "start.bin").read_bytes()
    assert verify(folder / "receipts").receipts == 6
