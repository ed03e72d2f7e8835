"""`gput data`: does a dataset fit a program, and why not. Knows no service; nothing leaves this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from gput.commands.extras import pytorch
from gput.commands.manners import Commands, FormatOption
from gput.files import content, place_for
from gput.held_out import SEED
from gput.held_out import pack as draw
from gput.output import Format, emit, say, show
from gput.words import field_lists
from shared.canonical import sha256

if TYPE_CHECKING:
    from data_holder.datasets import DatasetOptions, InspectionReport
    from shared.claims.program import ProgramManifest

app = Commands(
    "Check private data before anything runs, and make held-out records. Reads locally, sends nothing.\n\n"
    "Example:  gput data inspect records.csv --program mymodel.gput"
)


PathArgument = Annotated[Path, typer.Argument(help="File or folder of data", show_default=False)]
Program = Annotated[Path, typer.Option(help="Program archive, or its manifest as JSON", show_default=False)]
Reader = Annotated[str, typer.Option(help="How to read PATH: auto, text, llmc, nanogpt, npy, npz, safetensors, csv")]
Suffix = Annotated[list[str] | None, typer.Option(help="Only files of a folder that end so (repeatable)")]
Separator = Annotated[int, typer.Option(min=0, max=255, help="Byte between the files of a text folder")]
Label = Annotated[str, typer.Option(help="CSV: column of the label")]
Column = Annotated[list[str] | None, typer.Option(help="CSV: FIELD=COLUMN,COLUMN,… (repeatable)")]
Delimiter = Annotated[str, typer.Option(help="CSV: cell separator; default by suffix")]


@app.command()
def inspect(
    path: PathArgument,
    program: Program,
    reader: Reader = "auto",
    suffix: Suffix = None,
    separator: Separator = 0,
    label: Label = "label",
    column: Column = None,
    delimiter: Delimiter = "",
    limit: Annotated[int, typer.Option(min=1, help="Findings to show at most")] = 20,
    output: Annotated[Format, typer.Option("--format", help="How to print the report")] = Format.TABLE,
) -> None:
    """Say whether PATH fits PROGRAM: counts, ranges, and each fault with file, row and reason.

    Exit code 0: it fits. 2: it does not, or the input is wrong.

    Example: gput data inspect records.csv --program classifier.gput
    """
    from data_holder.datasets import inspect_dataset

    options = _options(reader, tuple(suffix or ()), separator, label, column or [], delimiter)
    report = inspect_dataset(path, _manifest(program), options=options, limit=limit)
    _print(report, output)
    raise typer.Exit(0 if report.fits else 2)


@app.command()
def pack(
    path: PathArgument,
    program: Program,
    output: Annotated[Path, typer.Option("-o", "--output", help="file to write")],
    count: Annotated[int, typer.Option(min=1, help="records at most")] = 256,
    seed: Annotated[int, typer.Option(min=0, help="which ones: the same seed draws the same")] = SEED,
    reader: Reader = "auto",
    suffix: Suffix = None,
    separator: Separator = 0,
    label: Label = "label",
    column: Column = None,
    delimiter: Delimiter = "",
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Draw held-out records from PATH into a file, and print what a manifest says of it under `validation`.

    Example: gput data pack held-out.csv --program classifier.gput -o held-out.records
    """
    from data_holder.datasets import inspect_dataset

    options = _options(reader, tuple(suffix or ()), separator, label, column or [], delimiter)
    manifest = _manifest(program)
    report = inspect_dataset(path, manifest, options=options)
    if not report.fits:
        _print(report, fmt)
        raise typer.Exit(2)
    place_for(output)
    records, drawn = draw(path, manifest, count, seed=seed, options=options)
    output.write_bytes(records)
    say(f"wrote {output}")
    show({"dataset": sha256(records).hex(), "records": drawn}, fmt)


@app.command()
def evaluate(
    path: PathArgument,
    program: Annotated[Path, typer.Option(help="Program archive, as it was trained", show_default=False)],
    model: Annotated[Path, typer.Option(help="The released model (safetensors)", show_default=False)],
    batch: Annotated[int, typer.Option(min=1, help="records at a time")] = 64,
    limit: Annotated[int | None, typer.Option(min=1, help="only so many records, from the beginning")] = None,
    reader: Reader = "auto",
    suffix: Suffix = None,
    separator: Separator = 0,
    label: Label = "label",
    column: Column = None,
    delimiter: Delimiter = "",
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

    options = _options(reader, tuple(suffix or ()), separator, label, column or [], delimiter)
    report = inspect_dataset(path, _manifest(program), options=options)
    if not report.fits:
        _print(report, fmt)
        raise typer.Exit(2)
    archive, weights = content(program, "program-not-found"), content(model, "model-not-found")
    found = evaluated(path, archive, weights, options=options, batch=batch, limit=limit)
    show({"loss": found.loss, "perplexity": found.perplexity, "records": found.records}, fmt)


def _options(
    reader: str, suffixes: tuple[str, ...], separator: int, label: str, columns: list[str], delimiter: str
) -> DatasetOptions:
    from data_holder.datasets import DatasetOptions
    from data_holder.datasets import Format as Reader

    known = {name: name for name in get_args(Reader)}
    if reader not in known:
        raise typer.BadParameter(f"{reader!r} is none of {', '.join(known)}", param_hint="--reader")
    fields = field_lists(columns, "--column")
    return DatasetOptions(known[reader], separator, suffixes, label, fields, delimiter.replace("\\t", "\t"))


def _manifest(path: Path) -> ProgramManifest:
    """The manifest of a program archive, or of a bare manifest in JSON.

    Raises:
        NotFound, InvalidProgram: no such file, or not a program.
    """
    from pydantic import ValidationError

    from shared.canonical import json_value
    from shared.claims.archive import MAX_ARCHIVE_BYTES, open_archive
    from shared.claims.program import ProgramManifest
    from shared.errors import InvalidProgram, NotFound

    try:
        with path.open("rb") as file:
            data = file.read(MAX_ARCHIVE_BYTES + 1)
    except OSError as error:
        raise NotFound(
            f"the program {path} cannot be read: {error.strerror}.",
            code="program-not-found",
            remedy="Build one with `gput program build`.",
        ) from error
    if not data.lstrip().startswith(b"{"):
        return open_archive(data).manifest
    try:
        return ProgramManifest.model_validate(json_value(data))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "(top)"
        raise InvalidProgram(f"the manifest's field {where!r} is wrong: {first['msg']}") from None


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
