"""What the operator may say about a dataset beyond its path. Knows no reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from shared.errors import ConfigurationError

Format = Literal["auto", "text", "llmc", "nanogpt", "npy", "npz", "safetensors", "csv"]
Tokenizer = Literal["none", "bytes", "external"]
GoOn = Callable[[], None]
"""Asked before, and again and again while, a dataset is read from end to end; what it raises ends that."""


def unhindered() -> None:
    """The `GoOn` of whoever waits until it is done."""


@dataclass(frozen=True)
class DatasetOptions:
    """How to read a dataset where its content does not say.

    Attributes:
        format: a reader by name; `auto` chooses by content and suffix.
        separator: byte put between the files of a text folder; 0x00, which is in no text, tells the model where one ends.
        suffixes: in a folder of text or shards, only files whose name ends so (`(".py",)`); empty: all but dot-files.
        label: CSV column of the only scalar field. One that is named (other than the usual one) is it in any case; the usual one
            when no column bears that field's own name.
        columns: CSV columns of a field, in order, for every field the default rule does not fit.
        delimiter: CSV cell separator, one character; empty: by suffix (comma; tab for `.tsv`).
        units, classes: what the operator declares of fields, and no reader looks at: the unit of a field, or one for each of its
            elements; the names of a whole-number field's values 0, 1, … in that order. They go into the dataset's profile.
        cache_dir: where CSV and compressed .npz are converted to, once, readable by the owner only; None: an anonymous
            temporary file that is gone with the dataset.
        converting: asked while something is converted.
        insist: whether an option that no field takes is refused; not of a dataset that is held to an approved root anyway. Releases of
            before approved some with such options, and they change no byte.
    """

    format: Format = "auto"
    separator: int = 0
    suffixes: tuple[str, ...] = ()
    label: str = "label"
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    delimiter: str = ""
    cache_dir: Path | None = None
    converting: GoOn = field(default=unhindered, repr=False, compare=False)
    insist: bool = field(default=True, repr=False, compare=False)
    # Not in the repr, by which a dataset is known again: declaring something leaves the records as they are.
    units: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.separator <= 255:
            raise ConfigurationError("dataset option separator is not a byte", remedy="give a number from 0 to 255")
        if len(self.delimiter) > 1:
            raise ConfigurationError("dataset option delimiter is longer than one character")
