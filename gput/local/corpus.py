"""The demo's data: this machine's Python standard library source, split into private corpora and a held-out part. Knows no service."""

from __future__ import annotations

import hashlib
import shutil
import sysconfig
from collections.abc import Sequence
from pathlib import Path

# Left out: generated tables, and what is not hand-written library source on every machine.
LEFT_OUT = {
    "encodings",
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idle_test",
    "lib2to3",
    "pydoc_data",
    "__pycache__",
}
HELD_OUT_ONE_IN = 25
MAX_FILE_BYTES = 400_000


def standard_library() -> Path:
    """Where this Python's library source lies."""
    return Path(sysconfig.get_path("stdlib"))


def split(target: Path, holders: Sequence[str], library: Path | None = None) -> dict[str, Path]:
    """Copy every source file into exactly one of `target`/<holder> or `target`/held-out; returns the folders by name.

    The split goes by top-level module, so holders' texts differ as real parties' do; one file in 25 is held out.
    """
    root = library or standard_library()
    folders = {name: target / name for name in (*holders, "held-out")}
    marker = target / ".complete"
    if marker.exists():
        return folders
    shutil.rmtree(target, ignore_errors=True)
    for folder in folders.values():
        folder.mkdir(parents=True)
    for path in _sources(root):
        relative = path.relative_to(root)
        part = _part(relative, holders)
        copy = folders[part] / relative
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    marker.touch()
    return folders


def _sources(root: Path) -> list[Path]:
    found = (path for path in root.rglob("*.py") if not LEFT_OUT.intersection(path.relative_to(root).parts))
    return sorted(path for path in found if path.is_file() and 0 < path.stat().st_size <= MAX_FILE_BYTES)


def _part(relative: Path, holders: Sequence[str]) -> str:
    if _draw(f"held-out:{relative}") % HELD_OUT_ONE_IN == 0:
        return "held-out"
    return holders[_draw(f"module:{relative.parts[0]}") % len(holders)]


def _draw(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])
