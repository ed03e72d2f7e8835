"""Ctrl-C in `gput demo` with real processes: nothing stays behind, and the resumed run ends in the same model."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from gput.approvals import signed_for
from gput.receipt_folder import APPROVALS, read_lines, read_session
from gput.receipts import verify
from gput.tours import Tours

pytestmark = pytest.mark.processes
SMALL = ["--rounds", "3", "--steps", "2", "--layers", "1", "--width", "32", "--batch", "4"]
DEADLINE_S = 500.0


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    with (folder.parent / f"{folder.name}.err").open("a") as err:
        return subprocess.Popen(
            [sys.executable, "-m", "gput", "demo", "--dir", str(folder), *words],
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        )


def told(folder: Path) -> str:
    return (folder.parent / f"{folder.name}.err").read_text()


def until(happened: Callable[[], bool], running: subprocess.Popen[str], folder: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not happened():
        assert running.poll() is None, told(folder)
        assert time.monotonic() < deadline, told(folder)
        time.sleep(0.05)


def left_running(folder: Path) -> list[str]:
    """Command lines of processes that name this run's folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            found += [line] if str(folder) in line else []
    return found


def model_digest(folder: Path) -> str:
    verify(folder / "receipts")
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def finished(running: subprocess.Popen[str], folder: Path) -> str:
    out, _ = running.communicate(timeout=DEADLINE_S)
    assert running.returncode == 0, told(folder)
    assert "9 visits, 18 training steps" in out
    assert not left_running(folder)
    return model_digest(folder)


def test_kept_it_shows_its_dashboard_until_ctrl_c(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    running = start(folder, *SMALL, "--rounds", "1", "--keep", "--format", "json")
    until(lambda: "until Ctrl-C" in told(folder), running, folder)
    url = re.findall(r"Dashboard: (\S+/ui/)", told(folder))[-1]
    token = (folder / "services" / "owner" / "reader.token").read_text().strip()
    assert token not in told(folder)
    assert "<main" in urllib.request.urlopen(url, timeout=30).read().decode()
    asked = urllib.request.Request(url.replace("/ui/", "/v1/sessions"), headers={"authorization": f"Bearer {token}"})
    assert [one["phase"] for one in json.load(urllib.request.urlopen(asked, timeout=30))["items"]] == ["COMPLETED"]
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=DEADLINE_S)
    assert (running.returncode, json.loads(out)["visits"]) == (0, 3), told(folder)
    assert not left_running(folder)
    assert "Continue with" not in told(folder)


def interrupted_and_resumed(folder: Path) -> str:
    """The model's digest."""
    running = start(folder, *SMALL)
    until(lambda: "visit 3/9" in told(folder), running, folder)
    assert len(left_running(folder)) == 7  # the launcher and six services
    running.send_signal(signal.SIGINT)
    time.sleep(0.1)
    running.send_signal(signal.SIGINT)  # the impatient second one
    assert running.wait(timeout=60) == 130
    assert f"gput demo --resume --dir {folder}" in told(folder)
    assert "Traceback" not in told(folder)
    assert not left_running(folder)
    assert not (folder / "model.safetensors").exists()
    resumed = finished(start(folder, "--resume"), folder)
    assert json.loads((folder / "demo.json").read_text())["plan"]["rounds"] == 3
    return resumed


@pytest.mark.slow
def test_interrupted_and_resumed(tmp_path: Path) -> None:
    assert interrupted_and_resumed(tmp_path / "disturbed")


@pytest.mark.slow
def test_resumed_it_gives_the_undisturbed_model(tmp_path: Path) -> None:
    calm = tmp_path / "calm"
    assert interrupted_and_resumed(tmp_path / "disturbed") == finished(start(calm, *SMALL), calm)


@pytest.mark.slow
@pytest.mark.parametrize("tours", Tours)
def test_a_demo_of_tours_ends_where_plain_pytorch_finds_its_model(tmp_path: Path, tours: Tours) -> None:
    folder = tmp_path / tours
    running = start(folder, *SMALL, "--tours", tours)
    out, _ = running.communicate(timeout=DEADLINE_S)
    assert running.returncode == 0, told(folder)
    assert "9 visits, 18 training steps" in out
    assert not left_running(folder)
    verify(folder / "receipts")
    assert (
        Tours.of(signed_for(read_session(folder / "receipts"), read_lines(folder / "receipts", APPROVALS)).manifest)
        is tours
    )
    [(first, last)] = re.findall(r"^  held-out +([\d.]+) +([\d.]+)$", out, re.MULTILINE)
    assert float(last) < float(first)
    assert f"held-out: {last}\n" in out, "the exported model, in plain PyTorch"
    assert ("all, mixed" in out) == (tours is Tours.COLLECT)
    assert (re.search("^  north +[0-9.]+ +[0-9.]+   first step", out, re.MULTILINE) is None) == (tours is Tours.COLLECT)


def test_interrupted_before_anything_was_submitted(tmp_path: Path) -> None:
    folder = tmp_path / "early"
    running = start(folder, *SMALL)
    until(lambda: "building" in told(folder), running, folder)
    time.sleep(0.3)
    os.kill(running.pid, signal.SIGTERM)
    assert running.wait(timeout=60) == 128 + signal.SIGTERM
    assert f"gput demo {' '.join(SMALL)} --dir {folder}" in told(folder)
    assert "Traceback" not in told(folder)
    assert not left_running(folder)
