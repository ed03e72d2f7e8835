"""The named datasets of this holder: settings' and those the operator added. Knows no session and no wire.

A dataset is a name, a path and reading options; whether it fits a program is asked of `data_holder.datasets` each time. Storage is
hostile: whoever writes to the table must not choose which file is trained on, so a row is believed by its MAC only.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from data_holder.dataset_mac import RowMacs
from data_holder.dataset_options import DECLARED, declared_of, read_options
from data_holder.datasets import (
    Dataset,
    DatasetOptions,
    InspectionReport,
    forget_converted,
    inspect_dataset,
    open_dataset,
)
from data_holder.long_reads import LongReads
from data_holder.profile import profile_of
from data_holder.settings import DATASET_NAME
from data_holder.tables import rows
from data_holder.tables.schema import DATASETS
from data_holder.withdrawal import Withdrawals
from shared.claims.profile import DatasetProfile
from shared.claims.program import ProgramManifest
from shared.crypto.schedule import dataset_row_key
from shared.crypto.secret import Secret
from shared.errors import Conflict, NotFound, Unavailable, VerificationFailed
from shared.service.clock import Clock
from shared.service.logging import get_logger
from shared.service.statements import insert_row, put_row, update_row
from shared.service.store import Store

_REMEDY = (
    "One that was added: add it again under its name, by path and options. One of the settings: start this holder again, and say again "
    "what was declared of it. If this release did not just come, ask who had access to the database"
)
_UNNAMEABLE = (
    "Approvals use it where the policy or the setting dataset names it. For any other use rename it in the settings, once the sessions "
    "that were approved with it have ended; names are lower-case letters, digits, '.', '_' and '-', up to 63"
)
_log = get_logger("data_holder.catalogue")


class Catalogue:
    """Datasets by name; none is read or added before `unlock`. Those of the settings are changed there only: their paths win over rows,
    so whatever a row said instead would be shown and never read. One that the settings do not name any more is withdrawn: its row is kept
    for the sessions that were approved with it, and for a while."""

    def __init__(
        self, holder: str, store: Store, configured: dict[str, Path], cache_dir: Path, clock: Clock, reads: LongReads,
        spoilt: Callable[[], Collection[str]],
    ) -> None:  # fmt: skip
        self._holder, self._store, self._reads, self._spoilt = holder, store, reads, spoilt
        self._configured = configured
        self._cache_dir = cache_dir
        self._clock, self.withdrawals = clock, Withdrawals(configured, clock)
        self._macs: RowMacs | None = None

    @property
    def is_open(self) -> bool:
        """Whether the key is there."""
        return self._macs is not None

    async def open(self) -> None:
        """Have the settings' datasets in the table, for whoever lists it before the keys are there, and know which they name no more."""

        def write(connection: Connection) -> list[str]:
            known = {row["name"] for row in rows.all_datasets(connection)}
            for name, path in self._configured.items():
                if name not in known:
                    insert_row(connection, DATASETS, self._row(name, path, {}, "settings") | {"mac": None})
            return self.withdrawals.begin(connection)

        self.withdrawals.warn(await self._store.write(write))
        for name in self._configured:
            if not re.fullmatch(DATASET_NAME, name):
                _log.warning(
                    "a dataset of the settings has a name that no request can give", dataset=name, remedy=_UNNAMEABLE
                )

    async def unlock(self, key: Secret) -> None:
        """Take in the key that salts are derived from (theirs is derived from it), and write the settings' datasets into the table; what
        this holder's operator declared of one of that name stays.

        Raises:
            Unavailable: the database.
        """
        macs = RowMacs(Secret(dataset_row_key(key.reveal())), self._holder)

        def write(connection: Connection) -> tuple[list[str], list[str]]:
            kept, moved = {row["name"]: row for row in rows.all_datasets(connection)}, list[str]()
            own = {name: row for name, row in kept.items() if macs.was_own(row, self._configured)}
            for name, path in self._configured.items():
                before = own.pop(name, None)
                options = {} if before is None else declared_of(json.loads(before["options"]))
                self._put(connection, macs, name, path, options, "settings")
                if before is not None:
                    moved += self.withdrawals.move(connection, before, path, partial(self._put, connection, macs))
            for name, row in own.items():
                if not macs.is_own(row):  # as an earlier release has written it
                    update_row(connection, DATASETS, {"name": name}, {"mac": macs.of(row)})
            strange = [row for row in kept.values() if not macs.was_own(row, self._configured)]
            told = [row["name"] for row in strange if row["name"] not in self._configured or row["options"] != "{}"]
            return told, moved

        unbelieved, moved = await self._store.write(write)
        self.withdrawals.warn_of_moves(moved)
        for name in unbelieved:
            what = "declaration" if name in self._configured else "path"
            _log.warning("what is kept of a dataset is not believed", dataset=name, what=what, remedy=_REMEDY)
        self._macs = macs

    async def add(self, name: str, path: Path, options: dict[str, Any], *, keep_equal: bool = False) -> dict[str, Any]:
        """Add a dataset; its row.

        Args:
            keep_equal: whether a dataset of this very name, path and options is taken for the one to be added.

        Raises:
            NotFound: `data-not-found`. BadRequest: unknown options. Conflict: `dataset-exists`, `dataset-of-settings`. Unavailable: the
                keys are not there yet.
        """
        self._insist_added(name)
        read_options(options, None)
        if not await asyncio.to_thread(_exists, path):
            raise NotFound(f"{path} does not exist", code="data-not-found", remedy="Give a path this service can read")
        macs, row = self._opened(), self._row(name, path, options, "api")
        row["mac"] = macs.of(row)

        def write(connection: Connection) -> dict[str, Any]:
            # In the place of one that nobody believes: the operator says anew what it is.
            rows.drop_datasets(connection, name, unless=macs.is_own)
            return rows.add_dataset(connection, row, keep_equal)

        return await self._store.write(write)

    async def remove(self, name: str) -> None:
        """Forget a dataset, and what was converted of its files.

        Raises:
            NotFound, Conflict: as `rows.remove_dataset`. Conflict: `dataset-of-settings`.
        """
        self._insist_added(name)
        await self._store.write(lambda connection: rows.remove_dataset(connection, name, self._spoilt()))
        await self.tidy()

    def _insist_added(self, name: str) -> None:
        if name in self._configured:
            raise Conflict(
                f"dataset {name!r} is one of this holder's settings", code="dataset-of-settings",
                remedy="Change it in the settings and start this holder again; or add a dataset under another name",
            )  # fmt: skip

    async def names(self) -> set[str]:
        """What an approval may name. Raises: Unavailable."""
        return {
            row["name"] for row in await self._store.read(rows.all_datasets) if not self.withdrawals.is_withdrawn(row)
        }

    async def tidy(self) -> None:
        """Remove datasets withdrawn for long that no approved session needs, and what was converted of files that are no dataset's any
        more, or are gone: it holds their records."""
        self.withdrawals.tell(
            await self._store.write(lambda connection: self.withdrawals.forget(connection, self._spoilt()))
        )
        kept = await self._store.read(rows.all_datasets)
        paths = {*self._configured.values(), *(Path(str(row["path"])) for row in kept)}
        try:
            count = await asyncio.to_thread(forget_converted, self._cache_dir, paths)
        except OSError as error:
            _log.warning("what was converted of forgotten datasets cannot be removed", why=error.strerror)
            return
        if count:
            _log.info("removed what was converted of files that are no dataset's any more", files=count)

    async def declare(self, name: str, said: dict[str, Any]) -> dict[str, Any]:
        """Put what is declared of a dataset (`units`, `classes`) in place of what was; its row.

        Raises:
            NotFound: no such dataset. BadRequest: it cannot be declared so. As `open_dataset`, if its row is not believed.
        """
        read_options(said, None)
        macs = self._opened()

        def write(connection: Connection) -> dict[str, Any]:
            row = self._believed(rows.dataset(connection, name), macs)
            rest = {key: value for key, value in json.loads(row["options"]).items() if key not in DECLARED}
            row["options"] = json.dumps(rest | declared_of(said), sort_keys=True)
            row["mac"] = macs.of(row)
            update_row(connection, DATASETS, {"name": name}, {"options": row["options"], "mac": row["mac"]})
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
        """Whether the dataset fits the program's record schema, before it is approved; findings name file, row and reason, never a value.

        Raises: as `open_dataset`, less UnfitData. Conflict: `dataset-withdrawn`: only sessions that were approved before go on with it.
        """
        path, options = await self._where(name, for_new=True)
        return await self._reads.run(lambda go_on: inspect_dataset(path, program, options=options, go_on=go_on))

    async def for_new(self, name: str) -> Path:
        """Where a dataset lies that a new approval names; whether there is anything, is not looked at. Raises: as `inspect`."""
        return (await self._where(name, for_new=True))[0]

    async def open_dataset(self, name: str, program: ProgramManifest) -> Dataset:
        """The memory-mapped dataset in the program's record schema: of one that was inspected, or approved by the root of its records.

        Raises:
            UnfitData, NotFound: it cannot be read. VerificationFailed: `dataset-unproven`: nobody knows which file its operator named.
            Unavailable: the keys are not there yet, or the holder stops.
        """
        path, options = await self._where(name)
        options = replace(options, insist=False)
        return await self._reads.if_needed(
            lambda go_on: open_dataset(
                path, program.records, program.tokenizer, options=replace(options, converting=go_on)
            )
        )

    async def _where(self, name: str, *, for_new: bool = False) -> tuple[Path, DatasetOptions]:
        macs = self._opened()
        row = self._believed(await self._store.read(lambda connection: rows.dataset(connection, name)), macs)
        if for_new and self.withdrawals.is_withdrawn(row):
            raise Conflict(
                f"dataset {name!r} was taken out of this holder's settings", code="dataset-withdrawn",
                remedy="Name another; or put it into the settings again and start this holder again",
            )  # fmt: skip
        path = self._configured.get(name) or Path(row["path"])  # a MAC does not say of which start a row is
        return path, read_options(json.loads(row["options"]), self._cache_dir)

    def _row(self, name: str, path: Path, options: dict[str, Any], source: str) -> dict[str, Any]:
        said = {"name": name, "path": str(path), "options": json.dumps(options, sort_keys=True), "source": source}
        return said | {"added_at": self._clock()}

    def _put(
        self, connection: Connection, macs: RowMacs, name: str, path: Path, options: dict[str, Any], source: str
    ) -> None:
        row = self._row(name, path, options, source)
        put_row(connection, DATASETS, {"name": name}, row | {"mac": macs.of(row)})

    def _believed(self, row: dict[str, Any], macs: RowMacs) -> dict[str, Any]:
        if not macs.is_own(row):
            raise VerificationFailed(
                f"what is kept of dataset {row['name']!r} is not what this holder wrote: a release of before wrote it, or somebody "
                "changed the database",
                code="dataset-unproven", remedy=_REMEDY,
            )  # fmt: skip
        return row

    def _opened(self) -> RowMacs:
        if self._macs is None:
            raise Unavailable(
                "the quoting enclave has not given the key of this holder's datasets yet", code="journal-locked",
                remedy="Check that the platform's quoting enclave runs and that the evidence token is this CVM's",
            )  # fmt: skip
        return self._macs


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (OSError, ValueError):  # a name that is too long, or no name at all, names nothing
        return False
    return True
