"""Built-in programs as tests train them, each built once for all workers and later runs: torch.export takes longer than most tests.

What was built is kept under the digest of everything that it follows from, so a changed line of the builder builds anew. Tests of the
builder itself call the builder.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gpu_agent
import shared

PLACE = Path(__file__).parents[1] / ".pytest_cache" / "programs"


@cache
def _sources() -> bytes:
    digest = hashlib.sha256(version("torch").encode())
    for package in (gpu_agent, shared):
        folder = Path(package.__path__[0])
        for path in sorted(folder.rglob("*.py")):
            code = path.read_bytes()
            digest.update(f"{path.relative_to(folder)} {len(code)}\n".encode() + code)
    return digest.digest()


def built(name: str, **options: Any) -> tuple[bytes, bytes]:
    """A built-in program's archive and its initial weights (safetensors); no bytes where they come from a seed."""
    words = json.dumps([name, options], sort_keys=True).encode()
    archive, weights = (PLACE / (hashlib.sha256(_sources() + words).hexdigest() + end) for end in (".gput", ".weights"))
    PLACE.mkdir(parents=True, exist_ok=True)
    with (PLACE / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may be building it just now
        if not archive.exists():
            _build(archive, weights, name, options)
    return archive.read_bytes(), weights.read_bytes()


def _build(archive: Path, weights: Path, name: str, options: dict[str, Any]) -> None:
    from gpu_agent.workload.builder import build
    from gpu_agent.workload.programs import builtin

    made, initial = build(builtin(name, **options))
    for path, content in ((weights, initial or b""), (archive, made)):  # the archive last: where it lies, all is there
        partial = path.with_suffix(".partial")
        partial.write_bytes(content)
        partial.rename(path)
