"""What a holder states of its dataset when it approves: fields as declared, and coarse sizes where its operator lets it. Knows no record.

A statement, not a proof: a holder can lie in it, and gains no more by that than by refusing (docs/privacy.md).
"""

from __future__ import annotations

import math
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from shared.canonical import cbor_bytes, sha256
from shared.claims import Claim
from shared.claims.free_text import unseen
from shared.claims.records import Dim, Name, RecordDType, require_names_once

LEAST_RECORDS = 100
"""A dataset of fewer records states no sizes; a column with fewer values that are not zero states none of its own."""
LEAST_OF_A_CLASS = 20
"""Records that a class must have to be stated as present."""
MOST_COLUMNS = 256
"""A field with more elements in a record is stated as a whole."""
MOST_CLASSES = 1000
LEAST_DECADE, MOST_DECADE = -12, 15


def _visible(text: str) -> str:
    if unseen(text):
        raise ValueError("a unit is of printable characters")
    return text


Unit = Annotated[str, Field(min_length=1, max_length=32), AfterValidator(_visible)]
ClassTag = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Decade = Annotated[int, Field(ge=LEAST_DECADE, le=MOST_DECADE)]


class Scale(Claim):
    """How large a column's values are that are not zero: `size` is the decade of their median, n for [10^n, 10^(n+1)); `spread` how many
    decades lie between their 10th and 90th percentile. Values beyond the least and greatest decade count as in it."""

    size: Decade
    spread: int = Field(ge=0, le=MOST_DECADE - LEAST_DECADE)


class FieldProfile(Claim):
    """One field of a dataset. `dtype` and `shape` are as read; the rest is declared by the operator, or measured where one allows it.

    Attributes:
        units: none declared, one for the whole field, or one for each element.
        classes: tags (`class_tag`) of the names of values 0, 1, …; none if none were declared.
        present: for each class whether it has at least `LEAST_OF_A_CLASS` of the records looked at; None: not stated.
        scales: none stated, one for the whole field, or one for each element; None for a column that has too few values.
    """

    name: Name
    dtype: RecordDType
    shape: tuple[Dim, ...] = Field(default=(), max_length=4)
    units: tuple[Unit, ...] = Field(default=(), max_length=MOST_COLUMNS)
    classes: tuple[ClassTag, ...] = Field(default=(), max_length=MOST_CLASSES)
    present: tuple[bool, ...] | None = Field(default=None, max_length=MOST_CLASSES)
    scales: tuple[Scale | None, ...] = Field(default=(), max_length=MOST_COLUMNS)

    @property
    def columns(self) -> int:
        """How many numbers of one record are told apart; 1 where there are more than `MOST_COLUMNS`."""
        elements = math.prod(self.shape)
        return elements if elements <= MOST_COLUMNS else 1

    @model_validator(mode="after")
    def _lengths_fit(self) -> Self:
        if len(self.units) not in (0, 1, self.columns):
            raise ValueError(f"{len(self.units)} units for {self.columns} columns")
        if len(self.scales) not in (0, self.columns):
            raise ValueError(f"{len(self.scales)} scales for {self.columns} columns")
        if len(set(self.classes)) != len(self.classes):
            raise ValueError("a class is named twice")
        if self.present is not None and len(self.present) != len(self.classes):
            raise ValueError(f"{len(self.present)} marks for {len(self.classes)} classes")
        return self

    @property
    def measured(self) -> bool:
        """Whether it says anything of the records themselves."""
        return bool(self.scales) or self.present is not None


class DatasetProfile(Claim):
    """A holder's dataset as it states it in an approval, field by field."""

    fields: tuple[FieldProfile, ...] = Field(min_length=1, max_length=16)

    @model_validator(mode="after")
    def _unique_names(self) -> Self:
        require_names_once(field.name for field in self.fields)
        return self

    @property
    def measured(self) -> bool:
        """Whether any field says something of the records themselves."""
        return any(field.measured for field in self.fields)


def class_tag(session: str, manifest: str, field: str, name: str) -> str:
    """What stands for a class's name in one session's profiles: equal names have equal tags, and another session has others.

    No secret is in it: who can guess a name can check the guess.
    """
    return sha256(cbor_bytes(["gput/class", session, manifest, field, name])).hex()[:16]
