"""`gput data`: does a dataset fit a program, and why not. Knows no service; nothing leaves this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gput.commands.data_mock import mock
from gput.commands.extras import pytorch
from gput.commands.manners import Commands, FormatOption
from gput.commands.reading import USUAL, Reading, program_manifest, reads_data
from gput.files import content, distinct, place_for, written
from gput.held_out import SEED
from gput.held_out import pack as draw
from gput.output import Format, emit, say, show
from gput.whole import replace_whole
from shared.canonical import sha256

if TYPE_CHECKING:
    from data_holder.datasets import InspectionReport

app = Commands(
    "Check private data before anything runs, make held-out records and mock data. Reads locally, sends nothing.\n\n"
    "Example:  gput data inspect records.csv --program mymodel.gput"
)


PathArgument = Annotated[Path, typer.Argument(help="File or folder of data", show_default=False)]
Program = Annotated[Path, typer.Option(help="Program archive, or its manifest as JSON", show_default=False)]


@app.command()
@reads_data
def inspect(
    path: PathArgument,
    program: Program,
    reading: Reading = USUAL,
    limit: Annotated[int, typer.Option(min=1, help="Findings to show at most")] = 20,
    output: Annotated[Format, typer.Option("--format", help="How to print the report")] = Format.TABLE,
) -> None:
    """Say whether PATH fits PROGRAM: counts, ranges, and each fault with file, row and reason.

    Exit code 0: it fits. 2: it does not, or the input is wrong.

    Example: gput data inspect records.csv --program classifier.gput
    """
    from data_holder.datasets import inspect_dataset

    report = inspect_dataset(path, program_manifest(program), options=reading.options, limit=limit)
    _print(report, output)
    raise typer.Exit(0 if report.fits else 2)


@app.command()
@reads_data
def pack(
    path: PathArgument,
    program: Program,
    output: Annotated[Path, typer.Option("-o", "--output", help="file to write")],
    count: Annotated[int, typer.Option(min=1, help="records at most")] = 256,
    seed: Annotated[int, typer.Option(min=0, max=2**53 - 1, help="which ones: the same seed draws the same")] = SEED,
    reading: Reading = USUAL,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Draw held-out records from PATH into a file, and print what a manifest says of it under `validation`.

    Example: gput data pack held-out.csv --program classifier.gput -o held-out.records
    """
    from data_holder.datasets import inspect_dataset

    distinct([output], [path, program])
    manifest = program_manifest(program)
    report = inspect_dataset(path, manifest, options=reading.options)
    if not report.fits:
        _print(report, fmt)
        raise typer.Exit(2)
    place_for(output)
    records, drawn = draw(path, manifest, count, seed=seed, options=reading.options)
    with written(output):
        replace_whole(output, records)
    say(f"wrote {output}")
    show({"dataset": sha256(records).hex(), "records": drawn}, fmt)


@app.command()
@reads_data
def evaluate(
    path: PathArgument,
    program: Annotated[Path, typer.Option(help="Program archive, as it was trained", show_default=False)],
    model: Annotated[Path, typer.Option(help="The released model (safetensors)", show_default=False)],
    batch: Annotated[int, typer.Option(min=1, help="records at a time")] = 64,
    limit: Annotated[int | None, typer.Option(min=1, help="only so many records, from the beginning")] = None,
    reading: Reading = USUAL,
    fmt: Annotated[Format, typer.Option("--format", help="table, json or jsonl")] = Format.TABLE,
) -> None:
    """Say how well a released model does on PATH: the program's own mean loss. Here, and nobody hears of it.

    Needs PyTorch. Exit code 2: the data or the model does not fit the program.

    Example: gput data evaluate records.csv --program classifier.gput --model model.safetensors
    """
    with pytorch():
        import torch  # noqa: F401  # asked for before anything is read

    from data_holder.datasets import inspect_dataset
    from gput.evaluation import evaluate as evaluated

    report = inspect_dataset(path, program_manifest(program), options=reading.options)
    if not report.fits:
        _print(report, fmt)
        raise typer.Exit(2)
    archive, weights = content(program, "program-not-found"), content(model, "model-not-found")
    found = evaluated(path, archive, weights, options=reading.options, batch=batch, limit=limit)
    show({"loss": found.loss, "perplexity": found.perplexity, "records": found.records}, fmt)


app.command()(reads_data(mock))


def _print(report: InspectionReport, output: Format) -> None:
    document = report.as_json()
    if output is not Format.TABLE:
        show(document, output)
        return
    findings = document.pop("findings")
    extremes = (document.pop("statistics") or {}).get("fields", {})
    document["fits"] = "yes" if report.fits else "no"
    show(document, output)
    if extremes:
        print()
        rows = [{"field": name, **bounds} for name, bounds in extremes.items()]
        emit(rows, ("field", "min", "max"), output)
    if findings:
        print()
        emit(findings, ("file", "row", "field", "reason", "remedy"), output)
        say(f"{report.path} does not fit the program {report.program}.")
