"""`gput program`: build a training program from PyTorch code, and read one before approving it. `inspect` needs no torch."""

from __future__ import annotations

import json
import math
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from gput.commands.extras import pytorch
from gput.commands.manners import Commands, FormatOption
from gput.files import distinct, written
from gput.output import Format, emit, say, show
from gput.whole import drafted, replace_whole
from shared.canonical import sha256
from shared.claims.archive import Archive, open_archive
from shared.claims.layout import plan_memory
from shared.claims.operators import ALLOWED, GROUPS
from shared.claims.records import RecordField
from shared.errors import BadRequest, Conflict, GputError, NotFound

app = Commands("Build and inspect training programs.\n\nExample:  gput program build mymodel:program -o mymodel.gput")


def parse_option(text: str) -> tuple[str, Any]:
    """`key=value`; the value is read as JSON where it is JSON (numbers, true, null), else as text.

    Raises:
        BadRequest: there is no `=`.
    """
    key, separator, value = text.partition("=")
    if not separator or not key.isidentifier():
        raise BadRequest(f"Option {text!r} must have the form name=value")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


@app.command()
def build(
    target: Annotated[str, typer.Argument(help="module:function, or a built-in program: gpt2, classifier")],
    output: Annotated[Path, typer.Option("-o", "--output", help="archive to write")],
    option: Annotated[list[str] | None, typer.Option("--option", help="name=value for the function")] = None,
) -> None:
    """Build TARGET into a program archive (and FILE.safetensors beside it if it starts from given weights).

    Example: gput program build gpt2 -o gpt2.gput --option layers=6 --option width=128
    """
    options = dict(parse_option(text) for text in option or ())
    with pytorch():
        from gpu_agent.workload.builder import build as build_program
    sys.path.insert(0, str(Path.cwd()))  # the user's module lies where the command is run
    archive, weights = build_program(target, **options)
    beside = output.with_suffix(".safetensors")
    results = [output] if weights is None else [output, beside]
    distinct(results, _source(results))
    if weights is not None:
        _may_replace(beside, weights, output)
        _write(beside, weights)
    _write(output, archive)
    typer.echo(open_archive(archive).digest.hex())


def _source(results: list[Path]) -> list[Path]:
    """The files that were read to build it, of the module that was named and of all that it imports; none where no result is there yet."""
    if not any(result.exists() for result in results):
        return []
    loaded = [getattr(module, "__file__", None) for module in [*sys.modules.values()]]
    return [Path(file) for file in loaded if file]


def _may_replace(beside: Path, weights: bytes, archive: Path) -> None:
    """Raises: Conflict: FILE.safetensors is neither these weights nor those of the archive that is written anew, but perhaps a model."""
    if not beside.is_file():
        return
    known = [sha256(weights).hex()]
    with suppress(OSError, GputError):  # no archive, or none that can be read: it names no weights
        before = open_archive(archive.read_bytes()).manifest.initial_weights
        known += [before.sha256] if before.kind == "safetensors" else []
    if sha256(_read(beside)).hex() not in known:
        raise Conflict(
            f"{beside} exists already, is not {archive}'s, and is kept", code="weights-exist", remedy="Name another archive with -o."
        )  # fmt: skip


def _write(path: Path, data: bytes) -> None:
    with written(path):
        replace_whole(path, data)
    say(f"wrote {path} ({len(data)} bytes)")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotFound(
            f"Cannot read {path}: {error.strerror}", code="no-program", remedy="Build one with `gput program build`."
        ) from error


@app.command("llmc-import")
def llmc_import(
    model: Annotated[Path, typer.Argument(help="llm.c's GPT-2 model file (fp32, version 3)")],
    output: Annotated[Path, typer.Option("-o", "--output", help="safetensors file to write")],
    program: Annotated[Path | None, typer.Option(help="also build the GPT-2 program that starts from it")] = None,
    sequence: Annotated[int | None, typer.Option(min=1, help="tokens per record (T); the file's maxT")] = None,
) -> None:
    """Turn llm.c's MODEL into weights that a session can start from.

    Example: gput program llmc-import gpt2_124M.bin -o weights.safetensors --program gpt2.gput --sequence 64
    """
    with pytorch():
        from gpu_agent.workload.llmc_program import import_llmc, import_llmc_program
    distinct([output] if program is None else [program, output], [model])
    if not model.is_file():
        raise NotFound(f"Cannot read {model}: no such file")
    if program is None:
        weights = import_llmc(model)
    else:
        archive, weights = import_llmc_program(model, sequence)
        _write(program, archive)
        typer.echo(open_archive(archive).digest.hex())
    _write(output, weights)
    typer.echo(sha256(weights).hex())


@app.command("llmc-export")
def llmc_export(
    model: Annotated[Path, typer.Argument(help="model.safetensors of a finished session")],
    program: Annotated[Path, typer.Option(help="the session's program archive")],
    output: Annotated[Path, typer.Option("-o", "--output", help="llm.c model file to write")],
) -> None:
    """Turn a trained GPT-2 back into llm.c's model file.

    Example: gput program llmc-export model.safetensors --program gpt2.gput -o gpt2.bin
    """
    with pytorch():
        from gpu_agent.workload.llmc_program import export_llmc
    distinct([output], [model, program])
    manifest = open_archive(_read(program)).manifest
    if not model.is_file():
        raise NotFound(f"Cannot read {model}: no such file")
    with written(output), drafted(output) as draft:
        export_llmc(model, manifest, draft)
        size = draft.stat().st_size
    say(f"wrote {output} ({size} bytes)")


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="program archive")],
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Check FILE as the GPU does and show what an approver needs to know.

    Example:  gput program inspect mymodel.gput
    """
    summary = summarise(open_archive(_read(file)))
    show(dict(_rows(summary)) if output_format == Format.TABLE else summary, output_format)


@app.command()
def operators(
    output_format: FormatOption = Format.TABLE,
) -> None:
    """List the operators that a program may call, by group, with the reason why the group is safe.

    Example:  gput program operators
    """
    rows = [
        {"group": group, "why it is safe": reason, "operators": sorted(n for n, g in ALLOWED.items() if g == group)}
        for group, reason in GROUPS.items()
    ]
    if output_format == Format.TABLE:
        rows = [row | {"operators": " ".join(row["operators"])} for row in rows]
    emit(rows, ("group", "why it is safe", "operators"), output_format)


def summarise(archive: Archive) -> dict[str, Any]:
    """What an approver reads: names, digests, schema, counts, operators, memory in bytes for the default optimiser."""
    manifest = archive.manifest
    plan = plan_memory(manifest, manifest.defaults)
    memory = {
        "model": plan.model.length,
        "gradients": plan.gradients.length,
        "optimiser": plan.optimiser.length,
    }
    return {
        "name": manifest.name,
        "description": manifest.description,
        "digest": archive.digest.hex(),
        "loss_unit": manifest.loss_unit,
        "records": [field.model_dump(mode="json") for field in manifest.records.fields],
        "record_bytes": manifest.records.record_bytes,
        "parameters": sum(math.prod(spec.shape) for spec in manifest.parameters),
        "parameter_tensors": len(manifest.parameters),
        "state_tensors": [spec.name for spec in manifest.state],
        "operators": list(manifest.operators),
        "nodes": {kind: len(graph.nodes) for kind, graph in archive.graphs.items()},
        "draws_random_numbers": archive.graphs["train"].draws,
        "initial_weights": manifest.initial_weights.model_dump(mode="json", exclude={"rules"}),
        "defaults": manifest.defaults.model_dump(mode="json"),
        "memory_bytes": memory | {"total": sum(memory.values())},
        "metadata": dict(manifest.metadata),
    }


def _rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    weights = summary["initial_weights"]
    start = f"seed {weights['seed']}" if weights["kind"] == "seed" else f"safetensors, sha256 {weights['sha256']}"
    memory = summary["memory_bytes"]
    return [
        ("program", summary["name"]),
        ("description", summary["description"]),
        ("digest (SHA-384)", summary["digest"]),
        ("records", "\n".join(_field(RecordField.model_validate(f)) for f in summary["records"])),
        ("bytes per record", str(summary["record_bytes"])),
        ("parameters", f"{summary['parameters']:,} in {summary['parameter_tensors']} tensors"),
        ("declared state", ", ".join(summary["state_tensors"]) or "none"),
        ("graph nodes", ", ".join(f"{kind} {count}" for kind, count in summary["nodes"].items())),
        ("operators", ", ".join(summary["operators"])),
        ("random numbers", "dropout, from the session seed" if summary["draws_random_numbers"] else "none"),
        ("starts from", start),
        ("memory needed", f"{memory['total']:,} bytes (model, gradients, {summary['defaults']['optimizer']['kind']})"),
        ("loss unit", summary["loss_unit"]),
    ]


def _field(field: RecordField) -> str:
    low, high = ("any" if bound is None else f"{bound:g}" for bound in (field.min, field.max))
    return f"{field.name}: {field.dtype} {list(field.shape)} in [{low}, {high}]"
