"""Bodies of the routes of datasets, with examples. Knows no behaviour."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import Field

from data_holder.api.models import Body, Fault
from data_holder.settings import DatasetName

DatasetPath = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$", examples=["ehr"])]
FieldName = Annotated[str, Field(max_length=256)]
Units = dict[FieldName, list[Annotated[str, Field(min_length=1, max_length=32)]]]
Classes = dict[FieldName, list[Annotated[str, Field(min_length=1, max_length=200)]]]


class OptionsBody(Body):
    """How to read a dataset (`data_holder.datasets.DatasetOptions`); what is left out has that class's default."""

    format: Literal["auto", "text", "llmc", "nanogpt", "npy", "npz", "safetensors", "csv"] = "auto"
    separator: int = Field(default=0, ge=0, le=255)
    suffixes: list[Annotated[str, Field(max_length=32)]] = Field(default_factory=list, max_length=64)
    label: str = Field(default="label", max_length=256)
    columns: dict[FieldName, list[Annotated[str, Field(max_length=256)]]] = Field(default_factory=dict, max_length=64)
    delimiter: str = Field(default="", max_length=1)
    units: Units = Field(default_factory=dict, max_length=16)
    classes: Classes = Field(default_factory=dict, max_length=16)


class DeclarationBody(Body):
    """What the operator declares of a dataset's fields, in place of what was declared before: the unit of a field, or of each of its
    elements; the names of a whole-number field's values 0, 1, …, in that order."""

    units: Units = Field(default_factory=dict, max_length=16, examples=[{"dose": ["mg"]}])
    classes: Classes = Field(default_factory=dict, max_length=16, examples=[{"label": ["benign", "malignant"]}])


class DatasetBody(Body):
    """A dataset to add. `options` as in `gput data inspect`: format, separator, suffixes, label, columns, delimiter; and what is declared
    of its fields: units, classes."""

    name: DatasetName
    path: str = Field(min_length=1, max_length=4096, pattern=r"^[^\x00]+$", examples=["/data/ehr.csv"])
    options: OptionsBody = Field(default_factory=OptionsBody)


class DatasetView(Body):
    """A dataset this holder knows; a withdrawn one for sessions that were approved before, and at least for a day. Its records are counted
    against a program, by inspection."""

    name: str
    path: str
    options: dict[str, Any]
    source: Literal["settings", "api", "withdrawn"]
    added_at: float = Field(description="of a withdrawn one: since when it is that")
    fault: Fault
