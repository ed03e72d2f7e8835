"""What machine and program a bench measures: processor, memory, kernel, versions. Knows no bench; imports no PyTorch to learn its version.

It is published with the figures: of what the machine says of itself only what has the expected form is taken, and no name that people
gave.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from gput.bench.result import Machine, Program
from shared.quota import usable_cores

UNKNOWN = "unknown"
PACKAGE = Path(__file__).parents[1]
MEASURED = tuple(
    f":/{name}" for name in ("shared", "orchestrator", "data_holder", "gpu_agent", "gput", "pyproject.toml")
)
PATIENCE_S = 10
_NUMBER = re.compile(r"\d+(?:\.\d+)*")
_OTHER_SIGNS = re.compile(r"[^A-Za-z0-9 ()@.,+_-]+")


def machine(pytorch: bool, proc: Path = Path("/proc")) -> Machine:
    """This machine, now. `pytorch`: state the version that is installed, too."""
    return Machine(
        cpu=_cpu(_text(proc / "cpuinfo")),
        cores=usable_cores(),
        memory_bytes=_memory(_text(proc / "meminfo")),
        kernel=_kernel(os.uname().release),
        python=platform.python_version(),
        pytorch=_version("torch") if pytorch else None,
        load_average=round(os.getloadavg()[0], 2),
    )


def program() -> Program:
    """This program: its version, and the commit where it runs from a checkout of its own."""
    commit = _git("rev-parse", "HEAD") if _git("ls-files", "--", "__init__.py") else None
    changed = commit is not None and bool(_git("status", "--porcelain", "--untracked-files=no", "--", *MEASURED))
    return Program(version=metadata.version("gpu-travelling"), commit=commit, modified=changed)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _cpu(info: str) -> str:
    """The first processor's model; not every architecture states one."""
    found = re.search(r"^model name\s*:\s*(\S.*)$", info, re.MULTILINE)
    words = " ".join(_OTHER_SIGNS.sub(" ", found[1]).split())[:80] if found else ""
    return words.lstrip(" ()@.,+_-") or UNKNOWN


def _memory(info: str) -> int:
    found = re.search(r"^MemTotal:\s*(\d+) kB$", info, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _kernel(release: str) -> str:
    """Its number alone: what follows was named by whoever built it, perhaps after a host or a person."""
    found = _NUMBER.match(release)
    return found[0] if found else "0"


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _git(*words: str) -> str | None:
    """What git says of the folder that this program runs from; None where there is no git or no checkout, and for an empty answer."""
    git = shutil.which("git")
    if git is None:
        return None
    try:
        said = subprocess.run(  # noqa: S603  # our own words
            [git, "-C", str(PACKAGE), *words], capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip() or None
