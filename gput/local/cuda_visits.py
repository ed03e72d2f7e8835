"""All figures of `gput bench cuda`: those of the process that has PyTorch, and visits of a local installation whose GPU is the device."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from gput.local import visit_bench
from gput.local.job import Say, run_module
from shared.errors import BadRequest, Unavailable


async def measure(folder: Path, device: str, work: tuple[int, int, int], count: int, say: Say) -> dict[str, float]:
    """Training and transfer by `work` (steps, batch, MiB), then at least `count` visits.

    Raises:
        BadRequest: `device` is no CUDA device's name.
        Unavailable `no-cuda-device`: there is none; nothing was measured.
        JobFailed: the session of the visits did not complete.
    """
    if not re.fullmatch(r"cuda:[0-9]{1,3}", device):
        raise BadRequest(f"{device!r} is no CUDA device", expected="cuda:0", got=device)
    words = [device, *map(str, work)]
    found: dict[str, Any] = json.loads(await run_module("gput.local.cuda_bench", *words))
    if "absent" in found:
        raise Unavailable(
            found["absent"],
            code="no-cuda-device",
            remedy="Run it on a machine with an NVIDIA GPU and a PyTorch for CUDA.",
        )
    steps, _, _ = await visit_bench.visits(folder, count, say, {"compute": device})
    control = steps[-1]
    return found | {f"control.{name}": float(control[name]) for name in ("median_ms", "p99_ms")}
