"""The table of readers, and the choice among them by content and suffix. Knows no reader's inside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from data_holder.datasets.containers import open_npy, open_npz, open_safetensors
from data_holder.datasets.dataset import Dataset
from data_holder.datasets.files import head, hold, shown
from data_holder.datasets.findings import refusal
from data_holder.datasets.npy import NPY_MAGIC
from data_holder.datasets.options import DatasetOptions, Format, Tokenizer
from data_holder.datasets.tables import open_csv
from data_holder.datasets.text import open_text
from data_holder.datasets.tokens import is_llmc, is_raw, open_llmc, open_nanogpt
from shared.claims.records import RecordSchema

ANY: tuple[Tokenizer, ...] = ("none", "bytes", "external")


@dataclass(frozen=True)
class Reader:
    """One way to read a dataset: for programs of which `tokenizers` it is chosen unasked, by which sign, and its `open`."""

    name: Format
    tokenizers: tuple[Tokenizer, ...]
    recognises: Callable[[Path], bool]
    open: Callable[[Path, RecordSchema, DatasetOptions], Dataset]


def _is_npy(path: Path) -> bool:
    if path.is_dir():
        return any(path.glob("*.npy"))
    return head(hold(path), len(NPY_MAGIC)) == NPY_MAGIC


def _is_npz(path: Path) -> bool:
    return path.suffix == ".npz"


def _is_safetensors(path: Path) -> bool:
    return path.suffix == ".safetensors"


def _is_csv(path: Path) -> bool:
    return path.suffix in (".csv", ".tsv")


def _is_folder(path: Path) -> bool:
    return path.is_dir()


def _is_anything(path: Path) -> bool:
    return True


READERS: tuple[Reader, ...] = (  # the first that recognises the path is taken
    Reader("text", ("bytes",), _is_folder, open_text),  # a folder of text may hold any file
    Reader("llmc", ANY, is_llmc, open_llmc),
    Reader("nanogpt", ("external",), is_raw, open_nanogpt),
    Reader("npy", ANY, _is_npy, open_npy),
    Reader("npz", ANY, _is_npz, open_npz),
    Reader("safetensors", ANY, _is_safetensors, open_safetensors),
    Reader("csv", ("none",), _is_csv, open_csv),
    Reader("text", ("bytes",), _is_anything, open_text),
)

_REMEDY: dict[Tokenizer, str] = {
    "none": "give .npy, .npz, .safetensors or .csv with a header row, or state the format",
    "bytes": "give text files or a folder of them",
    "external": "give llm.c or nanoGPT token shards (.bin), made with the program's tokenizer, or arrays",
}


def _choose(path: Path, tokenizer: Tokenizer, options: DatasetOptions) -> Reader:
    for reader in READERS:
        if options.format == reader.name:
            return reader
        if options.format == "auto" and tokenizer in reader.tokenizers and reader.recognises(path):
            return reader
    reason = "is of no format that this program's data can be read from"
    raise refusal("data-unknown-format", reason, shown(path.name), remedy=_REMEDY[tokenizer])


def open_dataset(
    path: Path,
    records: RecordSchema,
    tokenizer: Tokenizer = "none",
    *,
    options: DatasetOptions = DatasetOptions(),  # noqa: B008  (frozen: sharing it is harmless)
) -> Dataset:
    """Open `path` as records of a program, by the reader its content calls for.

    What can be known without reading everything is judged here: presence, type, shape, length. CSV is parsed whole (once);
    other values are judged by `Dataset.check`, which a holder calls before it connects the data.

    Raises:
        UnfitData: with file, row and reason.
        ConfigurationError: the options cannot be used.
    """
    path = Path(path)
    if not path.is_dir():
        hold(path)  # refuses what is absent, unreadable or no file, before anything looks inside
    dataset = _choose(path, tokenizer, options).open(path, records, options)
    dataset.options = options
    return dataset
