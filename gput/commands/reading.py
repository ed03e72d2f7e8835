"""How a command is told to read a dataset: the same options for every command that reads one. Knows no reader's inside."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

import typer

from gput.words import field_lists

if TYPE_CHECKING:
    from data_holder.datasets import DatasetOptions
    from shared.claims.program import ProgramManifest

PARAMETER = "reading"
R = TypeVar("R")


@dataclass(frozen=True)
class Reading:
    """What the options say; a command has one as its parameter `reading`."""

    reader: Annotated[
        str, typer.Option(help="How to read PATH: auto, text, llmc, nanogpt, npy, npz, safetensors, csv")
    ] = "auto"
    suffix: Annotated[list[str] | None, typer.Option(help="Only files of a folder that end so (repeatable)")] = None
    separator: Annotated[int, typer.Option(min=0, max=255, help="Byte between the files of a text folder")] = 0
    label: Annotated[str, typer.Option(help="CSV: column of the only field that is one number")] = "label"
    column: Annotated[list[str] | None, typer.Option(help="CSV: FIELD=COLUMN,COLUMN,… (repeatable)")] = None
    delimiter: Annotated[str, typer.Option(help="CSV: cell separator; default by suffix")] = ""  # fmt: skip

    @property
    def options(self) -> DatasetOptions:
        """The same for the readers. Raises: typer.BadParameter."""
        from data_holder.datasets import DatasetOptions, Format

        known = {name: name for name in get_args(Format)}
        if self.reader not in known:
            raise typer.BadParameter(f"{self.reader!r} is none of {', '.join(known)}", param_hint="--reader")
        columns = field_lists(self.column or (), "--column")
        delimiter = self.delimiter.replace("\\t", "\t")
        return DatasetOptions(
            known[self.reader], self.separator, tuple(self.suffix or ()), self.label, columns, delimiter
        )


USUAL = Reading()


def reads_data(command: Callable[..., R]) -> Callable[..., R]:
    """A command whose parameter `reading` is, on the command line, the options of `Reading`."""
    hints = get_type_hints(Reading, include_extras=True)
    said = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in fields(Reading)
    ]  # fmt: skip
    own = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [
        new
        for one in own
        for new in (said if one.name == PARAMETER else [one.replace(kind=inspect.Parameter.KEYWORD_ONLY)])
    ]

    @wraps(command)
    def run(**given: Any) -> R:
        reading = Reading(**{one.name: given.pop(one.name) for one in said})
        return command(**given, **{PARAMETER: reading})

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def program_manifest(path: Path) -> ProgramManifest:
    """The manifest of a program archive, or of a bare manifest in JSON.

    Raises:
        NotFound, InvalidProgram: no such file, or not a program.
    """
    from pydantic import ValidationError

    from shared.canonical import json_value
    from shared.claims.archive import MAX_ARCHIVE_BYTES, open_archive
    from shared.claims.program import ProgramManifest
    from shared.claims.shape import first_fault
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
        raise InvalidProgram(f"the manifest is wrong: {first_fault(error)}") from None
