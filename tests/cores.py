"""What a process may leave of its memory when it crashes, as the kernel tells of it. Holds no test."""

from __future__ import annotations

from pathlib import Path


def writes_none(pid: int) -> bool:
    """Whether it can neither write a core file nor ask for one, nor hand memory to a program that takes cores."""
    limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
    told = next(line for line in limits if line.startswith("Max core file size")).split()[4:6]
    return told == ["0", "0"] and int(Path(f"/proc/{pid}/coredump_filter").read_text(), 16) == 0
