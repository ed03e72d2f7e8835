"""All figures of `gput bench cuda`: those of the process that has PyTorch, and visits of local installations whose GPU is the device."""

from __future__ import annotations

import asyncio
import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from gput.local import visit_bench
from gput.local.crowd import Crowd, Load
from gput.local.cuda_bench import GPT2_124M, LEARNING_RATE
from gput.local.demos.texts import Texts
from gput.local.job import Say, run_module
from gput.steps import by_step
from shared.claims.training import AdamW, TrainingOptions
from shared.errors import BadRequest, Unavailable

HOLDERS = 3  # as the policy of made-up holders wants
Figures = dict[str, float]
Visits = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Work:
    """Of each run: `steps` of `batch` records by turns of both sides, `mebibytes` to open, `short` visits of one step of the demo's model,
    and `long` ones of `steps_each` of GPT-2 124M."""

    steps: int
    batch: int
    mebibytes: int
    short: int
    long: int
    steps_each: int = 20


async def measure(folder: Path, device: str, work: Work, runs: int, say: Say) -> tuple[str, list[Figures]]:
    """The card's name, and so many runs of all of it; programs are built and services started once.

    Raises:
        BadRequest: `device` is no CUDA device's name.
        Unavailable `no-cuda-device`: there is none; nothing was measured.
        JobFailed: a session did not complete.
    """
    if not re.fullmatch(r"cuda:[0-9]{1,3}", device):
        raise BadRequest(f"{device!r} is no CUDA device", expected="cuda:0", got=device)
    found: dict[str, Any] = json.loads(await run_module("gput.local.cuda_bench", device))
    if "absent" in found:
        raise Unavailable(
            found["absent"],
            code="no-cuda-device",
            remedy="Run it on a machine with an NVIDIA GPU and a PyTorch for CUDA.",
        )
    card = str(found["card"])
    say(f"{card}: encrypted transfer, and GPT-2 124M beside plain PyTorch …")
    words = map(str, (work.steps, work.batch, work.mebibytes, runs))
    found = json.loads(await run_module("gput.local.cuda_bench", device, *words))
    for one in found["runs"]:
        say(", ".join(f"{name} {value:.5g}" for name, value in one.items()))
    sizes: dict[str, int | str] = {**GPT2_124M, "precision": "bfloat16"}
    visits = await sessions(folder, {"compute": device}, sizes, work, runs, say)
    return card, [one | more for one, more in zip(found["runs"], visits, strict=True)]


async def sessions(
    folder: Path, agent: Mapping[str, Any], sizes: Mapping[str, int | str], work: Work, runs: int, say: Say
) -> list[Figures]:
    """Of each run: what each step of a short visit took, and of a long one of the program of these sizes, with its tokens per second.

    Args:
        agent: settings of the GPU agent that differ from its defaults.
    Raises:
        JobFailed: a session did not complete.
    """
    say("building training programs (torch.export) …")
    small, large = folder / "small.gput", folder / "large.gput"
    await asyncio.gather(visit_bench.build(small, Texts().program_options), visit_bench.build(large, sizes))
    often = TrainingOptions(
        optimizer=AdamW(lr=LEARNING_RATE), batch_size=work.batch, grad_clip_norm=1.0, seed=1, threads=2
    )
    once = Load(program=small, training=visit_bench.TRAINING)
    short = await _visits(folder / "short", agent, once, work.short * runs, say)
    load = Load(program=large, training=often, steps=(work.steps_each,))
    long = await _visits(folder / "long", agent, load, work.long * runs, say)
    tokens = work.steps_each * work.batch * int(sizes["context"])
    return [
        _steps("visit", one) | _steps("gpt2", other) | {"gpt2.tokens_per_s": tokens / _median_s(other)}
        for one, other in zip(_parts(short, runs), _parts(long, runs), strict=True)
    ]


async def _visits(folder: Path, agent: Mapping[str, Any], load: Load, count: int, say: Say) -> Visits:
    """At least `count` visits."""
    crowd = Crowd(folder, count + HOLDERS, HOLDERS, say, load)
    crowd.installation.agent = agent
    try:
        found = await visit_bench.counted(crowd, say)
        say(", ".join(f"{row['step'].partition(' ')[0]} {row['median_ms']:.1f} ms" for row in by_step(found)))
        return found
    finally:
        await crowd.stop()


def _parts(visits: Visits, runs: int) -> list[Visits]:
    """Visits that followed one another, a part for each run: by turns a part could be one holder's alone."""
    ends = [len(visits) * number // runs for number in range(runs + 1)]
    return [visits[start:end] for start, end in pairwise(ends)]


def _median_s(visits: Visits) -> float:
    return float(statistics.median(sum(visit["durations"].values()) for visit in visits))


def _steps(prefix: str, visits: Visits) -> Figures:
    found = {f"{prefix}.{row['step'].partition(' ')[0]}.median_ms": float(row["median_ms"]) for row in by_step(visits)}
    return found | {f"{prefix}.mean_ms": 1000 * statistics.mean(sum(one["durations"].values()) for one in visits)}
