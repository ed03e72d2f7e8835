"""Made-up records in the form of a dataset: what a holder gives to engineers in place of its own. Of the dataset it knows the form alone.

No byte of a dataset gets here: not a value, not a count, not a column's name that neither schema nor options state. Values are drawn within
the ranges that the schema declares, least and greatest among them.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gput.files import distinct, written
from gput.local.made_up import edges, with_edges
from shared.canonical import json_bytes
from shared.claims.records import RecordSchema
from shared.errors import BadRequest

if TYPE_CHECKING:
    import numpy as np

    from data_holder.datasets import DatasetOptions
    from gput.local.made_up import Arrays

SCHEMA: Final = "schema.json"


@dataclass(frozen=True)
class Mock:
    """What is to be made up: `kind` is a reader's, `suffix` the dataset's file's ("" for a folder)."""

    schema: RecordSchema
    kind: str
    suffix: str
    options: DatasetOptions
    count: int
    seed: int


def write_mock(mock: Mock, folder: Path, inputs: Sequence[Path | None]) -> Path:
    """Write the records below a folder, and the schema beside them; the path that a reader is to be given.

    Args:
        inputs: what it is made from, the dataset first of all: nothing of that is written over.

    Raises:
        BadRequest `no-mock`: no such form can be made up for this schema; `same-file`; `cannot-write`.
    """
    if any(low > high for low, high in map(edges, mock.schema.fields)):
        raise BadRequest(
            "a field's declared range holds no value of its type", code="no-mock", remedy="Correct the schema."
        )
    with written(folder), tempfile.TemporaryDirectory(prefix=".mock-", dir=folder) as name:
        draft = Path(name)
        (draft / SCHEMA).write_bytes(json_bytes(mock.schema.model_dump(mode="json")))
        made = _WRITERS[mock.kind](mock, draft / "mock").relative_to(draft)
        _moved(draft, folder, inputs)
    return folder / made


def _moved(draft: Path, folder: Path, inputs: Sequence[Path | None]) -> None:
    """Put every file of the draft in its place: each is there whole, or what was there before is."""
    files = {path: folder / path.relative_to(draft) for path in sorted(draft.rglob("*")) if path.is_file()}
    distinct(list(files.values()), inputs)
    for path, target in files.items():
        with written(target):
            target.parent.mkdir(exist_ok=True)
            path.replace(target)


def _made(mock: Mock) -> Arrays:
    return with_edges(mock.schema, mock.count, mock.seed)


def _npz(mock: Mock, place: Path) -> Path:
    import numpy as np

    made: dict[str, Any] = _made(mock)
    np.savez(place.with_suffix(".npz"), **made)
    return place.with_suffix(".npz")


def _npy(mock: Mock, place: Path) -> Path:
    import numpy as np

    made = _made(mock)
    if mock.suffix:  # one field, one file
        np.save(place.with_suffix(".npy"), next(iter(made.values())))
        return place.with_suffix(".npy")
    place.mkdir(exist_ok=True)
    for name, values in made.items():
        np.save(place / f"{name}.npy", values)
    return place


def _safetensors(mock: Mock, place: Path) -> Path:
    from safetensors.numpy import save_file

    save_file(_made(mock), place.with_suffix(".safetensors"))
    return place.with_suffix(".safetensors")


def _csv(mock: Mock, place: Path) -> Path:
    import numpy as np

    made, options = _made(mock), mock.options
    file = place.with_suffix(".tsv" if mock.suffix == ".tsv" else ".csv")
    header: list[str] = []
    columns = []
    alone = sum(not field.shape for field in mock.schema.fields) == 1
    for field in mock.schema.fields:
        own = [options.label] if alone and not field.shape else [field.name]
        usual = own if not field.shape else [f"{field.name}_{number}" for number in range(prod(field.shape))]
        header += options.columns.get(field.name, usual)
        values = made[field.name].reshape(mock.count, -1)
        # A cell is judged as it is written, before it is rounded to the field's type.
        columns.append(np.clip(values.astype(np.float64), *edges(field)) if values.dtype.kind == "f" else values)
    with file.open("w", encoding="utf-8", newline="") as out:
        rows = csv.writer(out, delimiter=options.delimiter or ("\t" if file.suffix == ".tsv" else ","))
        rows.writerow(header)
        rows.writerows([cell for row in parts for cell in row.tolist()] for parts in zip(*columns, strict=True))
    return file


def _tokens(mock: Mock, most: int) -> np.ndarray[Any, Any]:
    """A stream of tokens that has so many samples: neighbours share one."""
    import numpy as np

    [field] = mock.schema.fields
    low, high = edges(field)
    length = mock.count * (field.shape[0] - 1) + 1
    drawn = np.random.default_rng(mock.seed).integers(int(low), min(int(high), most), length, endpoint=True)
    drawn[:2] = int(low), min(int(high), most)
    return drawn


def _text(mock: Mock, place: Path) -> Path:
    import numpy as np

    file = place.with_suffix(".txt")
    if not mock.suffix:
        place.mkdir(exist_ok=True)
        file = place / f"mock{mock.options.suffixes[0] if mock.options.suffixes else '.txt'}"
    file.write_bytes(_tokens(mock, 255).astype(np.uint8).tobytes())
    return file.parent if not mock.suffix else file


def _shard(mock: Mock, place: Path) -> Path:
    import numpy as np

    from data_holder.datasets.tokens import HEADER_INTS, MAGIC, TOKEN, VERSION

    tokens = _tokens(mock, 0xFFFF).astype(TOKEN)
    header = np.zeros(HEADER_INTS, "<i4")
    header[:3] = MAGIC, VERSION, len(tokens)
    file = place.with_suffix(".bin")
    file.write_bytes((header.tobytes() if mock.kind == "llmc" else b"") + tokens.tobytes())
    return file


_WRITERS: Final[dict[str, Callable[[Mock, Path], Path]]] = {
    "npz": _npz, "npy": _npy, "safetensors": _safetensors, "csv": _csv, "text": _text, "llmc": _shard, "nanogpt": _shard,
}  # fmt: skip
