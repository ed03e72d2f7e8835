"""The orchestrator's library: parties, programs, weights and validation data it was given. Knows no HTTP and no session.

Rows point to files by digest; what is read from disk is checked against its digest again.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, insert, select, update

from orchestrator.damaged import StoredRowChanged, left_out, presentable, readable, whole
from orchestrator.files import DigestStore, reading
from orchestrator.parties import Parties, holders, require
from orchestrator.sessions.submission import Known, weights_digest
from orchestrator.tables import FILES, PROGRAMS
from shared.canonical import sha256
from shared.claims.archive import Archive, open_archive
from shared.claims.layout import plan_memory
from shared.claims.manifest import Manifest
from shared.claims.new_programs import check_new
from shared.claims.privacy import mixes_samples
from shared.errors import Conflict, GputError, NotFound, VerificationFailed
from shared.service.clock import Clock
from shared.service.store import Store

KINDS = ("weights", "validation")
MOST_OPENED = 16
"""Programs that stay opened, the longest unasked for going first."""


class Library:
    """Programs, weights and validation datasets; `parties` are beside them."""

    def __init__(self, store: Store, folder: Path, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self.parties = Parties(store, clock)
        self.archives = DigestStore(folder / "programs", "sha256")
        self.files = {kind: DigestStore(folder / kind, "sha256") for kind in KINDS}
        self._opened: OrderedDict[str, Archive] = OrderedDict()
        self.door = asyncio.Lock()
        """Held by whoever brings or removes a file with its row: there is never one without the other, but after a crash."""

    # ------------------------------------------------------------ programs

    async def add_program(self, digest: str, data: bytes) -> tuple[dict[str, Any], bool]:
        """Store an archive under its program digest (SHA-384 of its manifest).

        Raises:
            InvalidProgram: the archive is not sound, or holds what no new program may and is not here yet. VerificationFailed: it is
                another program (`digest-mismatch`).
        """
        archive = await asyncio.to_thread(open_archive, data)  # the largest takes seconds
        if archive.digest.hex() != digest:
            raise VerificationFailed("The archive is not the program in the path", code="digest-mismatch",
                                     remedy="Upload under its own digest.", expected=digest, got=archive.digest.hex())  # fmt: skip
        name = sha256(data).hex()
        summary = program_summary(archive, len(data))
        row = {
            "digest": digest, "archive_sha256": name, "archive_bytes": len(data),
            "summary": summary, "stored_at": self._clock(),
        }  # fmt: skip
        async with self.door:
            if await self._archive_of(digest) is None:
                check_new(archive)
            await asyncio.to_thread(self.archives.put, data, name)
            return summary, await self._put_once(PROGRAMS, row, ("digest",))

    async def archive_bytes(self, digest: str) -> bytes:
        """The archive of a program. Raises: NotFound (code `unknown-program`), VerificationFailed."""
        return (await self._stored(digest))[1]

    async def _stored(self, digest: str) -> tuple[str, bytes]:
        """SHA-256 of a program's archive, and what was read and has it."""
        name = await self._archive_of(digest)
        if name is None:
            raise NotFound(f"There is no program {digest}", code="unknown-program", remedy="Upload the archive first.")
        return name, await asyncio.to_thread(_checked_bytes, self.archives.find(name), name)

    async def _archive_of(self, digest: str) -> str | None:
        row = await self._store.read(
            lambda c: c.execute(select(PROGRAMS.c.archive_sha256).where(PROGRAMS.c.digest == digest)).first()
        )
        return None if row is None else str(row.archive_sha256)

    async def program(self, digest: str) -> Archive:
        """The opened archive; opening is remembered by the digest of the bytes, which were read and hashed again."""
        name, data = await self._stored(digest)
        archive = self._opened.get(name)
        if archive is None:
            archive = await asyncio.to_thread(open_archive, data)
        self._opened[name] = archive
        self._opened.move_to_end(name)
        while len(self._opened) > MOST_OPENED:
            self._opened.popitem(last=False)
        if archive.digest.hex() != digest:
            raise VerificationFailed("The stored archive is another program", code="stored-file-changed")
        return archive

    async def summaries(self, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """What the API says of the programs in these rows; of those of which it can be said."""
        found = []
        for row in rows:
            try:
                found.append(await self.summary(row))
            except StoredRowChanged as error:
                left_out(row, "programs", error)
        return found

    async def summary(self, row: dict[str, Any]) -> dict[str, Any]:
        """What the API says of one. Raises: StoredRowChanged."""
        with whole(f"program {row['digest'][:16]}…"):
            return dict(presentable(await self._said(row)))

    async def _said(self, row: dict[str, Any]) -> dict[str, Any]:
        """The stored summary. A release before this one counted tensors as parameters: what it stored is said anew from the archive."""
        stored: dict[str, Any] = row["summary"]
        if "parameter_tensors" in stored:
            return stored
        try:
            return program_summary(await self.program(row["digest"]), row["archive_bytes"])
        except GputError:  # one damaged archive must not take the list of all others away
            return {**stored, "parameters": None, "parameter_tensors": stored["parameters"]}

    # ------------------------------------------------------------ files

    async def add_file(self, kind: str, digest: str, spooled: Path) -> tuple[dict[str, Any], bool]:
        """Take over a spooled upload. Raises: VerificationFailed (`digest-mismatch`)."""
        async with self.door:
            size = await asyncio.to_thread(self.files[kind].adopt, spooled, digest)  # may hash and copy gigabytes
            row = {"kind": kind, "digest": digest, "size_bytes": size, "stored_at": self._clock()}
            created = await self._put_once(FILES, row, ("kind", "digest"))
        return {key: row[key] for key in ("digest", "size_bytes", "stored_at")}, created

    async def _put_once(self, table: Table, row: dict[str, Any], keys: Sequence[str]) -> bool:
        """Whether it is new. One that is here already counts as stored now: it is not removed before it can be named."""

        def act(connection: Connection) -> bool:
            where = [table.c[key] == row[key] for key in keys]
            if connection.execute(update(table).where(*where).values(stored_at=row["stored_at"])).rowcount:
                return False
            connection.execute(insert(table).values(row))
            return True

        return await self._store.write(act)

    # ------------------------------------------------------------ what a submission is judged by

    async def known_for(
        self, manifest: Manifest, gpus: tuple[str, ...], allow_emulated: bool, gpu_memory: int | None = None
    ) -> Known:
        """What is known about the things that this manifest names."""
        programs, archive_bytes, mixed, changing = {}, 0, "", ""
        with suppress(NotFound):  # the check reports it with its field
            archive = await self.program(manifest.program)
            programs[manifest.program], mixed = archive.manifest, mixes_samples(archive.graphs["train"])
            changing = archive.graphs["train"].changed_state
            archive_bytes = len(await self.archive_bytes(manifest.program))
        wanted = weights_digest(manifest, programs.get(manifest.program))
        weights, validation = await self._store.read(lambda c: (_sizes(c, "weights"), _sizes(c, "validation")))
        return Known(
            programs=programs,
            weights={wanted: partial(self.files["weights"].find, wanted)}
            if wanted is not None and wanted in weights
            else {},
            validation=validation,
            parties=await self._store.read(holders),
            gpus=gpus,
            allow_emulated=allow_emulated,
            mixed=mixed,
            changing=changing,
            archive_bytes=archive_bytes,
            gpu_memory=gpu_memory,
        )

    @staticmethod
    def require(connection: Connection, manifest: Manifest, known: Known) -> None:
        """In the transaction that creates a session: what its manifest was judged by is still here.

        Raises:
            Conflict: codes `upload-removed`, `key-changed`: it was not, by chance, and the session was not created.
        """
        require(connection, {entry.holder: entry.key for entry in manifest.roster if entry.holder in known.parties})
        files = [*known.weights, *([] if manifest.validation is None else [manifest.validation.dataset])]
        wanted = [*(FILES.c.digest == digest for digest in files), PROGRAMS.c.digest == manifest.program]
        if not all(connection.execute(select(where.left.table).where(where)).first() for where in wanted):
            raise Conflict("What the manifest names was removed just now, for nobody had used it for long", code="upload-removed",
                           remedy="Upload it again and submit once more.")  # fmt: skip

    async def page(self, table: Table, key: str, after: str | None, limit: int, **where: str) -> list[dict[str, Any]]:
        """Rows of a table in order of `key`, after a cursor, as `readable`."""
        statement = select(table).order_by(table.c[key]).limit(limit)
        for name, value in where.items():
            statement = statement.where(table.c[name] == value)
        if after is not None:
            statement = statement.where(table.c[key] > after)
        return await self._store.read(lambda c: readable(c, statement, table.c[key]))


def _checked_bytes(path: Path, digest: str) -> bytes:
    """A file's content, read once: what was hashed is what is used, whatever lies there by then.

    Raises:
        VerificationFailed: it has another SHA-256 (`stored-file-changed`). Unavailable: the disk does not give it.
    """
    with reading(path):
        data = path.read_bytes()
    if (got := sha256(data).hex()) != digest:
        raise VerificationFailed(
            "A stored file was changed on disk", code="stored-file-changed", expected=digest, got=got
        )
    return data


def _sizes(connection: Connection, kind: str) -> dict[str, int]:
    rows = connection.execute(select(FILES.c.digest, FILES.c.size_bytes).where(FILES.c.kind == kind))
    return {row.digest: row.size_bytes for row in rows}


def program_summary(archive: Archive, archive_bytes: int) -> dict[str, Any]:
    """What the API says of a program."""
    manifest = archive.manifest
    return {
        "digest": archive.digest.hex(), "name": manifest.name, "description": manifest.description,
        "loss_unit": manifest.loss_unit, "operators": list(manifest.operators),
        "records": manifest.records.model_dump(mode="json"),
        "parameters": sum(math.prod(spec.shape) for spec in manifest.parameters), "parameter_tensors": len(manifest.parameters),
        "state": len(manifest.state), "model_bytes": plan_memory(manifest, manifest.defaults).model.length,
        "archive_bytes": archive_bytes, "initial_weights": manifest.initial_weights.model_dump(mode="json", exclude={"rules"}),
        "defaults": manifest.defaults.model_dump(mode="json"), "tokenizer": manifest.tokenizer,
    }  # fmt: skip
