"""A process that crashes leaves no memory behind in a file, however large one the machine would take."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = str(Path(__file__).parents[2])
CRASH = """
import os, sys
from shared.core_files import leave_no_core
if sys.argv[1] == "none":
    leave_no_core()
os.abort()
"""


def left_by_a_crash(folder: Path, how: str) -> list[Path]:
    """What a process leaves in its folder that aborts under no limit."""
    folder.mkdir()
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]

    def without_limit() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
        Path("/proc/self/coredump_filter").write_bytes(b"0x33")  # the kernel's own default

    ended = subprocess.run(
        [sys.executable, "-c", CRASH, how], cwd=folder, env={"PYTHONPATH": ROOT}, check=False, capture_output=True,
        preexec_fn=without_limit,
    )  # fmt: skip
    assert ended.returncode == -signal.SIGABRT
    return sorted(folder.iterdir())


def test_a_crash_leaves_no_core(tmp_path: Path) -> None:
    assert left_by_a_crash(tmp_path / "kept", "none") == []
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0 or not left_by_a_crash(tmp_path / "usual", "usual"):
        pytest.skip("this machine writes no cores into a process's folder: nothing to compare with")
