"""The named datasets of this holder: settings' and those the operator added. Knows no session and no wire.

A dataset is a name, a path and reading options; whether it fits a program is asked of `data_holder.datasets` each time.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Connection

from data_holder.datasets import Dataset, DatasetOptions, InspectionReport, inspect_dataset, open_dataset
from data_holder.profile import profile_of
from data_holder.tables import rows
from data_holder.tables.schema import DATASETS
from shared.claims.profile import DatasetProfile
from shared.claims.program import ProgramManifest
from shared.errors import BadRequest, NotFound
from shared.service.clock import Clock
from shared.service.statements import find_row, put_row, update_row
from shared.service.store import Store

DECLARED = ("units", "classes")
"""Options that the operator declares and no reader looks at."""


class Catalogue:
    """Datasets by name. Paths from settings win over rows of an earlier start."""

    def __init__(self, store: Store, configured: dict[str, Path], cache_dir: Path, clock: Clock) -> None:
        self._store = store
        self._configured = configured
        self._cache_dir = cache_dir
        self._clock = clock

    async def open(self) -> None:
        """Write the settings' datasets into the table; what was declared of one of that name stays."""
        at = self._clock()

        def write(connection: Connection) -> None:
            for name, path in self._configured.items():
                before = find_row(connection, DATASETS, {"name": name})
                options = _kept(json.loads(before["options"])) if before is not None else {}
                row = {"path": str(path), "options": json.dumps(options), "source": "settings", "added_at": at}
                put_row(connection, DATASETS, {"name": name}, row)

        await self._store.write(write)

    async def add(self, name: str, path: Path, options: dict[str, Any], *, keep_equal: bool = False) -> dict[str, Any]:
        """Add a dataset; its row.

        Args:
            keep_equal: whether a dataset of this very name, path and options is taken for the one to be added.

        Raises:
            NotFound: `data-not-found`. BadRequest: unknown options. Conflict: `dataset-exists`.
        """
        _options(options, None)
        if not await asyncio.to_thread(_exists, path):
            raise NotFound(f"{path} does not exist", code="data-not-found", remedy="Give a path this service can read")
        row = {
            "name": name, "path": str(path), "options": json.dumps(options, sort_keys=True), "source": "api",
            "added_at": self._clock(),
        }  # fmt: skip
        return await self._store.write(lambda connection: rows.add_dataset(connection, row, keep_equal))

    async def declare(self, name: str, said: dict[str, Any]) -> dict[str, Any]:
        """Put what is declared of a dataset (`units`, `classes`) in place of what was; its row.

        Raises:
            NotFound: no such dataset. BadRequest: it cannot be declared so.
        """
        _options(said, None)

        def write(connection: Connection) -> dict[str, Any]:
            row = rows.dataset(connection, name)
            rest = {key: value for key, value in json.loads(row["options"]).items() if key not in DECLARED}
            row["options"] = json.dumps(rest | _kept(said), sort_keys=True)
            update_row(connection, DATASETS, {"name": name}, {"options": row["options"]})
            return row

        return await self._store.write(write)

    async def profile(
        self,
        name: str,
        program: ProgramManifest,
        report: InspectionReport,
        *,
        session: str,
        manifest: str,
        measure: bool,
    ) -> DatasetProfile:
        """What an approval would say of a dataset that fits. Raises: as `profile_of`."""
        with await self.open_dataset(name, program) as dataset:
            return await asyncio.to_thread(
                profile_of, dataset, report.statistics, program, session=session, manifest=manifest, measure=measure
            )  # fmt: skip

    async def inspect(self, name: str, program: ProgramManifest) -> InspectionReport:
        """Whether the dataset fits the program's record schema; findings name file, row and reason, never a value."""
        path, options = await self._where(name)
        return await asyncio.to_thread(inspect_dataset, path, program, options=options)

    async def open_dataset(self, name: str, program: ProgramManifest) -> Dataset:
        """The memory-mapped dataset in the program's record schema. Raises: UnfitData, NotFound."""
        path, options = await self._where(name)
        return await asyncio.to_thread(open_dataset, path, program.records, program.tokenizer, options=options)

    async def _where(self, name: str) -> tuple[Path, DatasetOptions]:
        row = await self._store.read(lambda connection: rows.dataset(connection, name))
        return Path(row["path"]), _options(json.loads(row["options"]), self._cache_dir)


def _kept(options: dict[str, Any]) -> dict[str, Any]:
    return {name: said for name in DECLARED if (said := options.get(name))}


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (OSError, ValueError):  # a name that is too long, or no name at all, names nothing
        return False
    return True


_OPTIONS: TypeAdapter[DatasetOptions] = TypeAdapter(DatasetOptions)


def _options(given: dict[str, Any], cache_dir: Path | None) -> DatasetOptions:
    known = {field.name for field in fields(DatasetOptions)} - {"cache_dir"}
    if unknown := sorted(set(given) - known):
        remedy = f"Known: {', '.join(sorted(known))}"
        raise BadRequest(f"unknown dataset options {', '.join(unknown)}", code="unknown-option", remedy=remedy)
    try:
        return replace(_OPTIONS.validate_python(given), cache_dir=cache_dir)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise BadRequest(f"dataset option {where}: {first['msg']}", code="bad-option") from None


def finding_text(report: InspectionReport) -> str:
    """The first finding as one sentence: reason, file, row."""
    if not report.findings:
        return f"{report.records} records of {report.record_bytes} bytes"
    first = asdict(report.findings[0])
    where = f"{first['file']}" + (f", row {first['row']}" if first["row"] is not None else "")
    return f"{first['reason']} ({where})"
