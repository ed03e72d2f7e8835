"""Does this dataset fit that program? One report, before anything runs. Prints nothing and quotes no value of a record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data_holder.datasets.dataset import Statistics
from data_holder.datasets.files import shown
from data_holder.datasets.findings import Finding, UnfitData
from data_holder.datasets.options import DatasetOptions, GoOn, unhindered
from data_holder.datasets.readers import open_dataset
from shared.claims.program import ProgramManifest


@dataclass(frozen=True)
class InspectionReport:
    """The answer. `kind` and the counts are absent when the data could not even be opened.

    Attributes:
        fits: nothing speaks against training on it.
        findings: what does, with file and row.
        samples_per_epoch: records a pass over the dataset has; lengths are in bytes.
        conversion: as a dataset's. It is not shown.
    """

    program: str
    path: str
    fits: bool
    record_bytes: int
    kind: str | None = None
    records: int = 0
    total_bytes: int = 0
    findings: tuple[Finding, ...] = ()
    statistics: Statistics | None = None
    conversion: int | None = None

    @property
    def samples_per_epoch(self) -> int:
        """Samples of one epoch: every record once."""
        return self.records

    def as_json(self) -> dict[str, Any]:
        """JSON form, stable names."""
        return {
            "program": self.program, "path": self.path, "fits": self.fits, "kind": self.kind, "records": self.records,
            "samples_per_epoch": self.samples_per_epoch, "record_bytes": self.record_bytes,
            "total_bytes": self.total_bytes, "findings": [finding.as_json() for finding in self.findings],
            "statistics": self.statistics.as_json() if self.statistics else None,
        }  # fmt: skip


def inspect_dataset(
    path: Path,
    program: ProgramManifest,
    *,
    options: DatasetOptions = DatasetOptions(),  # noqa: B008  (frozen: sharing it is harmless)
    limit: int = 20,
    go_on: GoOn = unhindered,
) -> InspectionReport:
    """Open `path` as the program's records and judge every value; at most `limit` findings.

    Raises:
        ConfigurationError: the options cannot be used. Whatever `go_on` raises. Data that does not fit is an answer, not an error.
    """
    options = replace(options, converting=go_on)
    name, size = shown(str(path)), program.records.record_bytes
    try:
        with open_dataset(path, program.records, program.tokenizer, options=options) as dataset:
            findings, statistics = dataset.scan(limit, go_on)
            return InspectionReport(
                program.name, name, not findings, size, dataset.kind, dataset.records, statistics.bytes,
                tuple(findings), statistics, dataset.conversion,
            )  # fmt: skip
    except UnfitData as error:
        found = error.findings[:limit]
        return InspectionReport(program.name, name, False, size, findings=found, conversion=error.conversion)
