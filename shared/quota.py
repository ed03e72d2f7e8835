"""What this process may use of its machine: a container's share of cores and memory is not the machine's. Knows no service and no work.

The kernel's own counts are the machine's: `sched_getaffinity(2)` knows of pinned cores and of no quota, /proc/meminfo of no limit. So the
control groups are asked besides: those of version 2 (cpu.max, memory.max) and of version 1 (cpu.cfs_quota_us, memory.limit_in_bytes).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def usable_cores(root: Path | None = None) -> int:
    """Cores that this process may keep busy, at least one. A part of one counts as one: with fewer threads it would stay unused."""
    quotas = (quota for group in _groups(root or ROOT, "cpu") if (quota := _quota(group)) is not None)
    return max(1, min([len(os.sched_getaffinity(0)), *(math.ceil(quota) for quota in quotas)]))


def free_memory(root: Path | None = None) -> int:
    """Bytes that this process can still have before something is killed for them: the machine's, or what a limit leaves of them."""
    root = root or ROOT
    lines = (root / "proc/meminfo").read_text().splitlines()
    machine = int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) * 1024
    return max(0, min([machine, *(left for group in _groups(root, "memory") if (left := _left(group)) is not None)]))


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of the control groups that this process is in, its own first. What a container does not see of them is left out."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = root / "sys/fs/cgroup" / (controller if controllers else "")
        parts = [part for part in path.split("/") if part]
        for depth in range(0 if ".." in parts else len(parts), -1, -1):
            yield base.joinpath(*parts[:depth])


def _quota(group: Path) -> float | None:
    """In cores; None: no quota here."""
    words = _text(group / "cpu.max").split()
    if not words:
        words = [*_text(group / "cpu.cfs_quota_us").split(), *_text(group / "cpu.cfs_period_us").split()]
    if len(words) != 2 or words[0] in ("max", "-1"):
        return None
    return int(words[0]) / int(words[1])


def _left(group: Path) -> int | None:
    """Bytes to its limit, the file cache that the kernel would give back counted as free; None: no limit here."""
    for limit, used, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        word = _text(group / limit).strip()
        if word.isdecimal():
            counts = dict(line.split() for line in _text(group / "memory.stat").splitlines())
            return int(word) - int(_text(group / used) or 0) + int(counts.get(cache, 0))
    return None


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # not mounted, or the other version's
        return ""
