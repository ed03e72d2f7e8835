"""Which dataset a holder approves a session with, and whether it can: program, commitment, privacy. Signs and stores nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from data_holder.catalogue import Catalogue
from data_holder.commitments import Commitments
from data_holder.datasets import Finding, InspectionReport, Misfit, UnfitData, bytes_of
from data_holder.profile import profile_of
from shared.claims.accountant import over_budget
from shared.claims.manifest import Manifest
from shared.claims.program import ProgramManifest
from shared.errors import InvalidData
from shared.service.logging import get_logger

_log = get_logger("data_holder.fitting")
UNFIT: Final = frozenset({
    "data-missing-field", "data-wrong-shape", "data-wrong-type", "data-out-of-range", "data-too-short", "data-schema-unsupported",
    "privacy-budget",
})  # fmt: skip
"""Codes of data that were read and do not fit. Any other may be gone at the next try: a file that is away, or being written."""


@dataclass(frozen=True)
class Chosen:
    """The dataset that fits: its name, which stays here, what the approval states of it, and of a table by which rules it was read."""

    name: str
    stated: dict[str, Any]
    conversion: int | None


async def fitting(
    catalogue: Catalogue, commitments: Commitments, session: str, holder: str, manifest: Manifest,
    program: ProgramManifest, name: str | None, *, measure: bool,
) -> Chosen:  # fmt: skip
    """The dataset `name`, committed to.

    Args:
        measure: whether its profile may say how large values are and which classes are there.

    Raises:
        Misfit: it does not fit the program; the detail names the reason.
        InvalidData: none was named (`dataset-not-named`), it has too few records for the privacy that the manifest states
            (`privacy-budget`), or what is declared of it cannot be (`bad-declaration`).
    """
    name = require_named(name)
    _log.info("reading dataset", session=session, dataset=name)
    report = await catalogue.inspect(name, program)
    _log.info("dataset read", session=session, dataset=name, records=report.records, fits=report.fits)
    if not report.fits:
        raise _misfit(
            name, _finding(report), report.findings[0].code if report.findings else "invalid-data", report.conversion
        )
    committed = await commitments.open(session, name, program)
    try:
        records, root = committed.dataset.records, committed.root
        profile = await asyncio.to_thread(
            profile_of, committed.dataset, report.statistics, program, session=session, manifest=manifest.digest().hex(), measure=measure
        )  # fmt: skip
    finally:
        committed.close()
    spends_more = over_budget(manifest, holder, records)
    if spends_more:
        raise InvalidData(
            f"dataset {name!r} is too small for the privacy of this session: {spends_more}", code="privacy-budget",
            remedy="Name a dataset with more records, or ask the owner for a session with more noise",
        )  # fmt: skip
    stated = {"records": records, "record_bytes": report.record_bytes, "dataset_root": root, "profile": profile}
    return Chosen(name, stated, report.conversion)


def require_named(name: str | None) -> str:
    """Raises: InvalidData `dataset-not-named`."""
    if name is None:
        raise InvalidData(
            "no dataset was named for this approval", code="dataset-not-named",
            remedy="Name one in the approval, in the policy (`dataset = …`) or in the settings",
        )  # fmt: skip
    return name


def size_of(name: str, path: Path) -> int | None:
    """Bytes of the dataset at that path, of which nothing is read; None: who reads it will know. Raises: Misfit: as `fitting`."""
    try:
        return bytes_of(path)
    except UnfitData as error:
        raise _misfit(name, _sentence(error.finding), error.code, None) from None


def _misfit(name: str, why: str, code: str, conversion: int | None) -> Misfit:
    misfit = Misfit(f"dataset {name!r} does not fit the program: {why}", code=code)
    misfit.conversion = conversion
    return misfit


def _finding(report: InspectionReport) -> str:
    """The first finding as one sentence."""
    return (
        _sentence(report.findings[0]) if report.findings else f"{report.records} records of {report.record_bytes} bytes"
    )


def _sentence(finding: Finding) -> str:
    """Reason, file, row."""
    return f"{finding.reason} ({finding.file}" + (f", row {finding.row})" if finding.row is not None else ")")
