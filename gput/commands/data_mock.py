"""`gput data mock`: made-up records in the form of a dataset, for engineers to work with. Knows no service; no record gets out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gput.commands.manners import FormatOption
from gput.commands.reading import USUAL, Reading, program_manifest
from gput.files import content, writable
from gput.output import Format, show
from shared.errors import BadRequest, NotFound

if TYPE_CHECKING:
    from data_holder.datasets import Tokenizer
    from shared.claims.records import RecordSchema


def mock(
    dataset: Annotated[str, typer.Argument(help="file or folder of data; with --config the name of a dataset", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="folder to write into", show_default=False)],
    program: Annotated[Path | None, typer.Option(help="Program archive, or its manifest as JSON, whose schema counts")] = None,
    fields: Annotated[Path | None, typer.Option(help="the record schema itself, as JSON, where there is no program yet")] = None,
    config: Annotated[Path | None, typer.Option(help="a data holder's settings, which name its datasets")] = None,
    count: Annotated[int, typer.Option(min=2, max=10_000_000, help="records to make up")] = 256,
    seed: Annotated[int, typer.Option(min=0, help="the same seed makes the same records")] = 0,
    reading: Reading = USUAL,
    fmt: FormatOption = Format.TABLE,
) -> None:  # fmt: skip
    """Write made-up records in the form of DATASET: same kind of file, the declared schema; values from its declared ranges only.

    No value of the dataset is in them, nor how many records it has. Engineers try programs on them: `gput session rehearse --data`.

    Example: gput data mock patients --config holder.toml --program mymodel.gput -o mock/
    """
    from data_holder.datasets import open_dataset
    from gput.mock_data import SCHEMA, Mock, write_mock

    records, tokenizer = _schema(program, fields)
    path, options = _place(dataset, config), reading.options
    with open_dataset(path, records, tokenizer, options=options) as real:
        kind = real.kind
    wanted = Mock(records, kind, path.suffix if path.is_file() else "", options, count, seed)
    made = write_mock(wanted, writable(output), (path, program, fields, config))
    show({"path": str(made), "kind": kind, "records": count, "schema": str(output / SCHEMA)}, fmt)


def _schema(program: Path | None, fields: Path | None) -> tuple[RecordSchema, Tokenizer]:
    """Raises: BadRequest `no-schema-named`: not one of both; `invalid-schema`: the file is none."""
    from pydantic import ValidationError

    from shared.canonical import json_value
    from shared.claims.records import RecordSchema
    from shared.claims.shape import first_fault

    if program is not None and fields is None:
        manifest = program_manifest(program)
        return manifest.records, manifest.tokenizer
    if fields is None or program is not None:
        raise BadRequest(
            "made-up records follow a declared schema", code="no-schema-named", remedy="Say --program or --fields, one of them."
        )  # fmt: skip
    try:
        return RecordSchema.model_validate(json_value(content(fields, "no-file"))), "none"
    except ValidationError as error:
        raise BadRequest(
            f"{fields} is no record schema: {first_fault(error)}", code="invalid-schema",
            remedy='Write it as in a program\'s manifest: {"fields": [{"name": …, "dtype": …, "shape": […], "min": …, "max": …}]}.',
        ) from None  # fmt: skip


def _place(dataset: str, config: Path | None) -> Path:
    """Raises: ConfigurationError: the settings cannot be used. NotFound `unknown-dataset`."""
    if config is None:
        return Path(dataset)
    from data_holder.settings import HolderSettings

    known = HolderSettings.load(config).datasets
    if dataset not in known:
        raise NotFound(
            f"{config} names no dataset {dataset!r}", code="unknown-dataset", remedy=f"It names: {', '.join(sorted(known)) or 'none'}."
        )  # fmt: skip
    return known[dataset]
