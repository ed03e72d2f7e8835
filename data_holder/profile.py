"""What this holder says of a dataset in an approval: what was declared, and coarse sizes if its operator lets it. Stores nothing."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import NoReturn

from pydantic import ValidationError

from data_holder.datasets import Dataset, DatasetOptions, Look, Statistics
from shared.claims.profile import LEAST_RECORDS, DatasetProfile, FieldProfile, class_tag
from shared.claims.program import ProgramManifest
from shared.claims.records import RecordField
from shared.claims.shape import words_of
from shared.errors import InvalidData

Declared = Mapping[str, Sequence[str]]


def profile_of(
    dataset: Dataset,
    statistics: Statistics | None,
    program: ProgramManifest,
    *,
    session: str,
    manifest: str,
    measure: bool,
) -> DatasetProfile:
    """The profile of an open dataset. Blocking: where it measures, it reads up to 65 536 records.

    Args:
        statistics: least and greatest value of each field, from the scan that judged the dataset.
        program: whose records they are; of tokens nothing is measured, for a token's size means nothing.
        session, manifest: what the tags of classes are for.
        measure: whether the operator allows sizes and the classes that are there.

    Raises:
        InvalidData: `bad-declaration`: what was declared is of no field, or cannot be of that field; UnfitData, as reading does.
    """
    units, classes = declared(dataset.options)
    fields = {field.name: field for field in dataset.schema.fields}
    for name in (*units, *classes):
        if name not in fields:
            _refuse(name, f"the program's records have no such field; they have {', '.join(fields)}")
    for name, names in classes.items():
        _check_classes(fields[name], names, statistics)
    speaks = measure and program.tokenizer == "none" and dataset.records >= LEAST_RECORDS
    look = Look(dataset, {name: len(names) for name, names in classes.items()}) if speaks else None
    found = []
    for name, field in fields.items():
        try:
            found.append(FieldProfile(
                name=name, dtype=field.dtype, shape=field.shape, units=units.get(name, ()),
                classes=tuple(class_tag(session, manifest, name, each) for each in classes.get(name, ())),
                present=None if look is None else look.present.get(name), scales=() if look is None else look.scales.get(name, ()),
            ))  # fmt: skip
        except ValidationError as error:
            _refuse(name, words_of(error.errors(include_input=False, include_url=False)[0]))
    return DatasetProfile(fields=tuple(found))


def declared(options: DatasetOptions) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Units and classes by field, each text in the one form that equal ones share: there are two micro signs, and two ways to an umlaut."""
    return _plain(options.units), _plain(options.classes)


def _plain(said: Declared) -> dict[str, tuple[str, ...]]:
    return {
        name: tuple(unicodedata.normalize("NFKC", text).strip() for text in texts)
        for name, texts in said.items()
        if texts
    }


def _check_classes(field: RecordField, names: Sequence[str], statistics: Statistics | None) -> None:
    """Whether every value of the field is one of so many classes."""
    if field.dtype.startswith("float"):
        _refuse(field.name, "its values are no whole numbers, so they number no classes")
    least, most = (statistics.fields if statistics else {}).get(field.name, (0, len(names) - 1))
    if least < 0 or most >= len(names):
        _refuse(
            field.name, f"it has values beyond its {len(names)} declared classes, which number 0 to {len(names) - 1}"
        )


def _refuse(field: str, why: str) -> NoReturn:
    raise InvalidData(f"what is declared of field {field!r} cannot be: {why}", code="bad-declaration",
                      remedy="Correct `units` and `classes` of the dataset, in the settings or by its options")  # fmt: skip
