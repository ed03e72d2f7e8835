"""`gput bench`: figures of this machine: visits by step, growth over a long session, memory, training against plain PyTorch, checkpoints,
verification of evidence and receipts.

Knows the API's views only. Ratios are against limits measured in the same run; nothing here asserts a wall time.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from gput.client import AsyncClient
from gput.local.crowd import Crowd
from gput.local.demo import Demo
from gput.local.growth import Sample, sample, trends
from gput.local.job import Plan, run_module
from gput.local.report import DATA_OR_COMPUTE
from gput.output import Format, emit, say
from shared.errors import BadRequest, JobFailed

app = typer.Typer(
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Measure this machine.",
)
PAGE = 20
FormatOption = Annotated[Format, typer.Option("--format", help="table, json or jsonl")]


@app.command()
def visit(
    visits: Annotated[int, typer.Option(min=6, help="how many visits")] = 200,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Cost of a visit by step (ms: median, p99), over short visits of a 1.2 M-parameter model; memory of each service.

    Example:  gput bench visit --visits 200
    """
    with tempfile.TemporaryDirectory(prefix="gput-bench-") as folder:
        found = asyncio.run(_visits(Path(folder), visits))
    emit(_by_step(found["visits"]), ("step", "median_ms", "p99_ms"), fmt)
    emit(found["memory"], ("service", "rss_anon_mb"), fmt)


@app.command()
def life(
    visits: Annotated[int, typer.Option(min=40, help="how many visits")] = 500,
    holders: Annotated[int, typer.Option(min=3, max=256, help="how many holders, a process each")] = 8,
    windows: Annotated[int, typer.Option(min=5, max=200, help="how often to look")] = 20,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Whether a long session of a tiny program grows: cost of a visit, memory, handles, threads, databases, by window of visits.

    Example:  gput bench life --visits 3000 --holders 64
    """
    samples: list[Sample] = []
    try:
        with tempfile.TemporaryDirectory(prefix="gput-bench-") as folder:
            asyncio.run(_life(Crowd(Path(folder), visits, holders, say), windows, samples))
    finally:
        if samples:  # an hour's figures are not lost to what ends the run
            _emit_life(samples, fmt)


def _emit_life(samples: list[Sample], fmt: Format) -> None:
    names = [f"control_{share}_ms" for share in ("median", "p99")]
    rows = [{"visits": one.visits, **{name: one.figures.get(name) for name in names}} for one in samples]
    emit(rows, ("visits", *names), fmt)
    emit(trends(samples), ("figure", "first", "last", "per_1000_visits", "grows"), fmt)


async def _life(crowd: Crowd, windows: int, samples: list[Sample]) -> None:
    try:
        client = await crowd.start()
        visits = _Visits(client, f"sessions/{crowd.session}/visits")
        total = crowd.rounds * len(crowd.names)
        for number in range(1, windows + 1):
            samples.append(await _window(visits, crowd, total * number // windows))
    finally:
        await crowd.stop()


class _Visits:
    """Reads each visit once, in order."""

    def __init__(self, client: AsyncClient, path: str) -> None:
        self.client, self._path = client, path
        self._after: str | None = None

    async def costs(self) -> list[float]:
        """Control cost in seconds of each closed visit since the last call; what does not fill a page yet waits for more."""
        found: list[float] = []
        while True:
            page = await self.client.get(self._path, after=self._after, limit=PAGE)
            if page["next"] is None:
                return found
            self._after = page["next"]
            found += [_control(visit) for visit in page["items"] if visit["receipt"] is not None]


async def _window(visits: _Visits, crowd: Crowd, wanted: int) -> Sample:
    view = await visits.client.session(crowd.session)
    while view["visits_closed"] < wanted:
        if view["phase"] in ("FAILED", "CANCELLED"):
            raise JobFailed(f"the session ended {view['phase']}", remedy=str(view.get("failure")))
        await asyncio.sleep(0.5)
        view = await visits.client.session(crowd.session)
    found, costs = sample(wanted, crowd.processes(), crowd.folders()), _costs(await visits.costs())
    say(f"{view['visits_closed']} visits, {costs.get('control_median_ms')} ms")
    return Sample(wanted, {**costs, **found.figures})


@app.command()
def training(
    steps: Annotated[int, typer.Option(min=10)] = 60,
    batch: Annotated[int, typer.Option(min=1, help="16 gives long steps, 2 short ones")] = 16,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Time of a training step through the measured graph ÷ plain PyTorch on the same batches, taken in turn."""
    found = json.loads(asyncio.run(run_module("gput.local.training_bench", str(steps), str(batch))))
    emit([{"batch": batch, **found}], ("batch", "ours_s", "plain_s", "ratio"), fmt)


@app.command()
def attest(
    files: Annotated[list[Path], typer.Argument(help="evidence and what belongs to it, as for `gput attest verify`")],
    trust: Annotated[Path | None, typer.Option("--trust", help="trust folder; default: the makers' roots")] = None,
    at: Annotated[str | None, typer.Option("--at", help="judge as of this time, RFC 3339; default: now")] = None,
    runs: Annotated[int, typer.Option(min=1, max=10_000, help="how often each")] = 30,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Time of verifying evidence (ms, median): of a machine met again; met first, the makers' documents known; with nothing known.

    Example:  gput bench attest quote.bin collateral.json --at 2025-07-04T10:16:00Z
    """
    from gput.attest.reading import read
    from gput.attest.timing import times
    from gput.attest.trust import Wish
    from gput.commands.attest import moment

    wish = Wish(at=time.time() if at is None else moment(at), allow_emulated=trust is not None, genuine_only=True)
    found = times(read(files), trust, wish, runs)
    if not found:
        raise BadRequest("there is no evidence among these files", code="no-evidence")
    emit(found, ("evidence", "kind", "verdict", "checks", "warm_ms", "met_first_ms", "cold_ms"), fmt)


@app.command()
def receipts(
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="how many receipts")] = 10_000,
    jobs: Annotated[int | None, typer.Option(min=1, max=1024, help="processes; default: the cores it may use")] = None,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Time of `gput receipts verify` over a session of so many receipts, made beforehand with real keys.

    `processor_s`: user and system time of all its processes; `signatures_s`: that of the signatures alone, two for each receipt, verified
    in the same run; `ratio`: of the two.

    Example:  gput bench receipts --count 10000
    """
    from gput.receipt_crew import cores
    from gput.receipt_timing import times

    with tempfile.TemporaryDirectory(prefix="gput-bench-") as folder:
        work, saved = Path(folder) / "work", Path(folder) / "receipts"
        say(f"making {count} receipts …")
        asyncio.run(run_module("gput.local.receipts_bench", str(work), str(saved), str(count)))
        found = times(saved, jobs or cores())
    emit([found], ("receipts", "jobs", "seconds", "receipts_per_s", "processor_s", "signatures_s", "ratio"), fmt)


@app.command()
def checkpoint(
    pairs: Annotated[int, typer.Option(min=1, max=100, help="sessions with checkpoints, and as many without")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="rounds of each session")] = 12,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Cost of sealed checkpoints at the default settings: the same sessions with and without them by turns, in real processes.

    `share_of_training`: how long sessions stood still for checkpoints ÷ how long they trained. The ratios are of medians, with ÷ without.

    Example:  gput bench checkpoint --pairs 3
    """
    from gput.local.checkpoint_bench import compare, ratios

    with tempfile.TemporaryDirectory(prefix="gput-bench-") as folder:
        found = asyncio.run(compare(Path(folder), Plan(rounds=rounds), pairs, say))
    emit(found, ("checkpoints", "made", "checkpoint_s", "training_s", "session_s"), fmt)
    emit([ratios(found)], ("training_ratio", "session_ratio", "share_of_training"), fmt)


async def _visits(folder: Path, visits: int) -> dict[str, Any]:
    plan = Plan(rounds=-(-visits // 3), steps=1, batch=4, validation_records=16)
    demo = Demo(folder, plan, say)
    try:
        await demo.start()
        view = await demo.client.wait(demo.session)
        if view["phase"] != "COMPLETED":
            say(f"the session ended {view['phase']}: {view.get('failure')}")
        found = await demo.client.items(f"sessions/{demo.session}/visits")
        memory = [
            {"service": name, "rss_anon_mb": _rss_anon_mb(service.pid)}
            for name, service in demo.installation.services.items()
            if service.pid
        ]
        return {"visits": [v for v in found if v["outcome"] == "closed"], "memory": memory}
    finally:
        await demo.stop()


def _by_step(visits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    steps = list(dict.fromkeys(step for visit in visits for step in visit["durations"]))
    rows = [{"step": step, **_figures(v["durations"].get(step, 0.0) for v in visits)} for step in steps]
    control = (_control(visit) for visit in visits)
    return [*rows, {"step": "control (all but data, training, validation)", **_figures(control)}]


def _control(visit: dict[str, Any]) -> float:
    return float(sum(s for name, s in visit["durations"].items() if name not in DATA_OR_COMPUTE))


def _costs(seconds: list[float]) -> dict[str, float]:
    return {f"control_{name}": value for name, value in _figures(seconds).items()} if seconds else {}


def _figures(seconds: Iterable[float]) -> dict[str, float]:
    found = sorted(value * 1000 for value in seconds)
    return {"median_ms": round(statistics.median(found), 3), "p99_ms": round(found[int(len(found) * 0.99)], 3)}


def _rss_anon_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0
