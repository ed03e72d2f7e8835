"""What is wrong with a dataset: file, row, rule. Must never hold a value, a cell, a header text or any byte of a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shared.errors import InvalidData


@dataclass(frozen=True)
class Finding:
    """One reason why a dataset does not fit.

    Attributes:
        code: stable, kebab-case, `data-…`.
        reason: the rule that is broken, in words; never the value that breaks it.
        file: name of the file, relative to the folder that was given.
        row: where in that file. CSV: line number, the header is line 1. Arrays: index along the first dimension, from 0.
            Text and tokens: offset in tokens from the file's first, from 0. None: the file as a whole.
        field: the record field concerned, if one is.
        remedy: what the operator can do.
    """

    code: str
    reason: str
    file: str
    row: int | None = None
    field: str | None = None
    remedy: str | None = None

    def __str__(self) -> str:
        place = self.file if self.row is None else f"{self.file}, row {self.row}"
        return f"{place}: {self.reason}" if self.field is None else f"{place}, field {self.field}: {self.reason}"

    def as_json(self) -> dict[str, Any]:
        """JSON form; absent parts are null."""
        return {
            "code": self.code, "file": self.file, "row": self.row, "field": self.field,
            "reason": self.reason, "remedy": self.remedy,
        }  # fmt: skip


class Misfit(InvalidData):
    """A dataset does not fit. `conversion`: of a table, by which rules it was read (`CONVERSION`); None where the bytes are the file's."""

    conversion: int | None = None


class UnfitData(Misfit):
    """A dataset that is refused; `findings` says where and why, in the order of the file."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        first = findings[0]
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        super().__init__(f"{first}{more}", code=first.code, remedy=first.remedy)
        self.findings = tuple(findings)

    @property
    def finding(self) -> Finding:
        """The first finding."""
        return self.findings[0]


def refusal(
    code: str, reason: str, file: str, row: int | None = None, *, field: str | None = None, remedy: str | None = None
) -> UnfitData:
    """An `UnfitData` of one finding, to be raised by the caller (with `from None` where the cause quotes a value)."""
    return UnfitData([Finding(code, reason, file, row, field, remedy)])
