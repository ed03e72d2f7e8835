"""`gput program`: build a training program from PyTorch code, and read one before approving it. `inspect` needs no torch."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gput.output import Format, emit, say, show
from shared.claims.archive import Archive, open_archive
from shared.claims.layout import plan_memory
from shared.claims.operators import ALLOWED, GROUPS
from shared.claims.records import RecordField
from shared.errors import BadRequest, NotFound, Unavailable

app = typer.Typer(no_args_is_help=True, help="Build and inspect training programs.")


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
    try:
        from gpu_agent.workload.builder import build as build_program  # torch: only this command needs it
    except ModuleNotFoundError as error:
        raise Unavailable(
            f"Building a program needs PyTorch, which is not installed ({error.name})",
            remedy="Install the extra: pip install 'gpu-travelling[gpu]'.",
        ) from error
    sys.path.insert(0, str(Path.cwd()))  # the user's module lies where the command is run
    archive, weights = build_program(target, **options)
    output.write_bytes(archive)
    if weights is not None:
        weights_path = output.with_suffix(".safetensors")
        weights_path.write_bytes(weights)
        say(f"wrote {weights_path} ({len(weights)} bytes)")
    say(f"wrote {output} ({len(archive)} bytes)")
    typer.echo(open_archive(archive).digest.hex())


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="program archive")],
    output_format: Annotated[Format, typer.Option("--format", help="How to print it")] = Format.TABLE,
) -> None:
    """Check FILE as the GPU does and show what an approver needs to know."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise NotFound(f"Cannot read {file}: {error.strerror}") from error
    summary = summarise(open_archive(data))
    show(dict(_rows(summary)) if output_format == Format.TABLE else summary, output_format)


@app.command()
def operators(
    output_format: Annotated[Format, typer.Option("--format", help="How to print it")] = Format.TABLE,
) -> None:
    """List the operators that a program may call, by group, with the reason why the group is safe."""
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
