"""`gput bench`: figures of this machine: visits by step, growth over a long session, memory, training against plain PyTorch, checkpoints,
verification of evidence and receipts, transfer into GPU memory, data sharing against travelling; kept in files, and compared.

Knows the benches by their entrances only. Ratios are against limits measured in the same run; nothing here asserts a wall time.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gput.commands.bench_transfer import transfer
from gput.commands.bench_travel import ablation, travel
from gput.commands.bench_visit import visit
from gput.commands.keeping import Keeping, RunsOption, SaveOption, Table
from gput.commands.manners import Commands, FormatOption
from gput.files import fleeting
from gput.output import Format, emit, emit_tables, say
from gput.stop_signals import run_in_order
from shared.errors import BadRequest, JobFailed

if TYPE_CHECKING:
    from gput.local.growth import Sample

app = Commands("Measure this machine.\n\nExample:  gput bench visit --runs 3")
FOLDER = "gput-bench-"


@app.command()
def lengths(
    visits: Annotated[int, typer.Option(min=9, help="how many visits")] = 24,
    program: Annotated[
        Path | None, typer.Option(help="archive of a program to train; default: a tiny one over large records")
    ] = None,
    runs: RunsOption = 1,
    save: SaveOption = None,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """What a visit costs here (ms) whatever it carries, each byte of its records (ns) and each training step: for `gput plan --from FILE`.

    Example:  gput bench lengths --program mymodel.gput --save lengths.json
    """
    from gput.local.lengths_bench import digest_of, load_of
    from gput.local.lengths_bench import lengths as measure

    load = load_of(program)
    named = {} if program is None else {"program": digest_of(program)}
    keeping = Keeping("lengths", {"visits": visits, **named}, save, (program,))

    def once() -> tuple[list[Table], dict[str, float]]:
        with fleeting(FOLDER) as folder:
            found = run_in_order(measure(folder, visits, say, load)).named()
        return [Table([found], tuple(found))], found

    keeping.measure(once, runs, fmt)


@app.command()
def life(
    visits: Annotated[int, typer.Option(min=40, help="how many visits")] = 500,
    holders: Annotated[int, typer.Option(min=3, max=256, help="how many holders, a process each")] = 8,
    windows: Annotated[int, typer.Option(min=8, max=200, help="how often to look")] = 20,
    save: SaveOption = None,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Whether a long session of a tiny program grows: cost of a visit, memory, handles, threads, databases, by window of visits.

    Example:  gput bench life --visits 3000 --holders 64
    """
    keeping = Keeping("life", {"visits": visits, "holders": holders, "windows": windows}, save)
    from gput.local import life_bench
    from gput.local.crowd import Crowd
    from gput.local.growth import trends

    samples: list[Sample] = []
    try:
        with fleeting(FOLDER) as folder:
            run_in_order(life_bench.live(Crowd(folder, visits, holders, say), windows, samples, say))
    finally:
        if samples:  # an hour's figures are not lost to what ends the run
            _emit_life(samples, fmt)
    keeping.keep([life_bench.named(trends(samples))])


def _emit_life(samples: list[Sample], fmt: Format) -> None:
    from gput.local.growth import trends

    names = [f"control_{share}_ms" for share in ("median", "p99")]
    rows = [{"visits": one.visits, **{name: one.figures.get(name) for name in names}} for one in samples]
    growth = trends(samples), ("figure", "first", "last", "per_1000_visits", "grows")
    emit_tables([(rows, ("visits", *names)), growth], fmt)


@app.command()
def training(
    steps: Annotated[int, typer.Option(min=10, help="of each length, by each side")] = 60,
    batch: Annotated[
        int | None,
        typer.Option(
            min=1, help="only steps of so many records; default: what takes 15 ms here, and what takes 100 ms"
        ),
    ] = None,
    runs: RunsOption = 1,
    save: SaveOption = None,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Time of a training step through the measured graph ÷ plain PyTorch on the same batches from the same weights, taken in turn.

    Example:  gput bench training --runs 5 --save training.json
    """
    keeping = Keeping("training", {"steps": steps, **({} if batch is None else {"batch": batch})}, save)
    import json

    from gput.local.job import run_module

    words = [] if batch is None else [f"batch-{batch}={batch}"]

    def once() -> tuple[list[Table], dict[str, float]]:
        found = json.loads(run_in_order(run_module("gput.local.training_bench", str(steps), *words)))
        rows = [{"step": name, **figures} for name, figures in found.items()]
        named = {f"{name}.{figure}": value for name, figures in found.items() for figure, value in figures.items()}
        return [Table(rows, ("step", "batch", "ours_s", "plain_s", "ratio", "loss_apart"))], named

    keeping.measure(once, runs, fmt)


@app.command()
def cuda(
    device: Annotated[str, typer.Option(help="which device; none there: one line, exit code 6")] = "cuda:0",
    steps: Annotated[int, typer.Option(min=10)] = 60,
    batch: Annotated[int, typer.Option(min=1, help="records of 1024 tokens per step")] = 16,
    mebibytes: Annotated[int, typer.Option(min=2, help="how much to transfer")] = 2048,
    visits: Annotated[int, typer.Option(min=2, help="how many visits of one step of the demo's model")] = 20,
    long_visits: Annotated[int, typer.Option(min=2, help="how many visits of 20 steps of GPT-2 124M")] = 3,
    runs: RunsOption = 1,
    save: SaveOption = None,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """On a CUDA device: GPT-2 124M against plain PyTorch, encrypted transfer into its memory, visits. Without one: exit code 6.

    Example:  gput bench cuda --runs 5 --save cuda.json
    """
    kept = {"steps": steps, "batch": batch, "mebibytes": mebibytes, "visits": visits, "long_visits": long_visits}
    keeping = Keeping("cuda", kept, save)
    from gput.local.cuda_visits import Work, measure

    work = Work(steps, batch, mebibytes, visits, long_visits)
    with fleeting(FOLDER) as folder:
        card, found = run_in_order(measure(folder, device, work, runs, say))
    each = iter(found)

    def once() -> tuple[list[Table], dict[str, float]]:
        one = next(each)
        return [Table([{"figure": name, "value": value} for name, value in one.items()], ("figure", "value"))], one

    keeping.measure(once, runs, fmt, {"card": card})


@app.command()
def attest(
    files: Annotated[list[Path], typer.Argument(help="evidence and what belongs to it, as for `gput attest verify`")],
    trust: Annotated[Path | None, typer.Option("--trust", help="trust folder; default: the makers' roots")] = None,
    at: Annotated[str | None, typer.Option("--at", help="judge as of this time, RFC 3339; default: now")] = None,
    runs: Annotated[int, typer.Option(min=1, max=10_000, help="how often each")] = 30,
    save: SaveOption = None,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Time of verifying evidence (ms, median): of a machine met again; met first, the makers' documents known; with nothing known.

    Example:  gput bench attest quote.bin collateral.json --at 2025-07-04T10:16:00Z
    """
    import time

    from gput.attest.reading import read
    from gput.attest.timing import named, times, work
    from gput.attest.trust import Wish
    from gput.commands.attest import moment

    wish = Wish(at=time.time() if at is None else moment(at), allow_emulated=trust is not None, genuine_only=True)
    pieces = read(files)
    keeping = Keeping("attest", {"runs": runs, **work(pieces)}, save, (*files, trust))
    found = times(pieces, trust, wish, runs)
    if not found:
        raise BadRequest("there is no evidence among these files", code="no-evidence")
    emit(found, ("evidence", "kind", "verdict", "checks", "warm_ms", "met_first_ms", "cold_ms"), fmt)
    keeping.keep([named(found)], {"refused": sum(row["verdict"] != "accepted" for row in found)})


@app.command()
def receipts(
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="how many receipts")] = 10_000,
    jobs: Annotated[int | None, typer.Option(min=1, max=1024, help="processes; default: the cores it may use")] = None,
    runs: RunsOption = 1,
    save: SaveOption = None,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Time of `gput receipts verify` over a session of so many receipts, made beforehand with real keys.

    `processor_s`: user and system time of all its processes; `signatures_s`: that of the signatures alone, two for each receipt, verified
    in the same run; `ratio`: of the two.

    Example:  gput bench receipts --count 10000
    """
    from gput.local.job import run_module
    from gput.receipt_timing import times
    from shared.quota import usable_cores

    work = {"receipts": count, "jobs": jobs or usable_cores()}
    keeping = Keeping("receipts", work, save)

    def once() -> tuple[list[Table], dict[str, float]]:
        with fleeting(FOLDER) as folder:
            made, saved = folder / "work", folder / "receipts"
            say(f"making {count} receipts …")
            run_in_order(run_module("gput.local.receipts_bench", str(made), str(saved), str(count)))
            found = times(saved, work["jobs"])
        columns = ("receipts", "jobs", "seconds", "receipts_per_s", "processor_s", "signatures_s", "ratio")
        return [Table([found], columns)], {name: value for name, value in found.items() if name not in work}

    keeping.measure(once, runs, fmt)


@app.command()
def checkpoint(
    pairs: Annotated[int, typer.Option(min=1, max=100, help="sessions with checkpoints, and as many without")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="rounds of each session")] = 12,
    save: SaveOption = None,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Cost of sealed checkpoints at the default settings: the same sessions with and without them by turns, in real processes.

    `share_of_training`: how long sessions stood still for checkpoints ÷ how long they trained. The ratios are of medians, with ÷ without.

    Example:  gput bench checkpoint --pairs 3
    """
    keeping = Keeping("checkpoint", {"pairs": pairs, "rounds": rounds}, save)
    from gput.local.checkpoint_bench import compare, ratios
    from gput.local.demos.texts import Texts

    with fleeting(FOLDER) as folder:
        found = run_in_order(compare(folder, Texts(rounds=rounds), pairs, say))
    together = ratios(found)
    emit_tables([
        (found, ("checkpoints", "made", "checkpoint_s", "training_s", "session_s")),
        ([together], ("training_ratio", "session_ratio", "share_of_training")),
    ], fmt)  # fmt: skip
    keeping.keep([together])


app.command()(visit)
app.command()(transfer)
app.command()(travel)
app.command()(ablation)


@app.command("compare")
def compare_(
    old: Annotated[Path, typer.Argument(help="a result saved before")],
    new: Annotated[Path, typer.Argument(help="a result of the same bench saved since")],
    fail_worse: Annotated[
        float | None,
        typer.Option(min=0, help="exit code 1 where a figure is worse by more than this many percent; else always 0"),
    ] = None,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Two saved results figure by figure: ratio, and whether that is better, worse, or within the spread of their runs.

    What else differs (machine, software, parameters) is said on stderr. Results of different benches are refused (exit code 2).

    Example:  gput bench compare docs/bench/receipts.json mine.json --fail-worse 10
    """
    from gput.bench.compare import compare, doubts, worst
    from gput.bench.result import read

    before, after = read(old), read(new)
    changes = compare(before, after)
    for doubt in doubts(before, after):
        say(f"warning: {doubt}")
    emit((change.row() for change in changes), ("figure", "unit", "old", "new", "ratio", "verdict"), fmt)
    failing = None if fail_worse is None else worst(changes, fail_worse)
    if failing is not None:
        raise JobFailed(
            f"{failing.figure} is worse by {failing.worse_by:.1%}, more than {fail_worse:g} %", code="bench-worse",
            remedy="Measure again on a quiet machine before you believe it.",
        )  # fmt: skip
