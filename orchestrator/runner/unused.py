"""Uploads that no kept session names are removed after a while, file and row. Knows no session but by what its manifest names.

Named is what a manifest says by its digest: its program, its initial weights, its validation data; and the weights that a kept program
begins with. Digests are looked for in the documents' text, so that a new field that names a file keeps it without a word here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import sqlalchemy as sa
from sqlalchemy import Connection

from orchestrator.files import DigestStore
from orchestrator.library import KINDS, Library
from orchestrator.tables import FILES, PROGRAMS, SESSIONS
from shared.service.logging import get_logger
from shared.service.store import Store

_log = get_logger("retention")


@dataclass(frozen=True)
class _Kind:
    """One folder of the library, and the rows that say what is in it. `digest`: of these, the column that manifests name."""

    name: str
    folder: DigestStore
    digest: sa.Column[str]
    file: sa.Column[str]
    these: sa.ColumnElement[bool]


class Unused:
    """One library's."""

    def __init__(self, store: Store, library: Library) -> None:
        self._store, self._library = store, library
        programs = _Kind("programs", library.archives, PROGRAMS.c.digest, PROGRAMS.c.archive_sha256, sa.true())
        files = [
            _Kind(kind, library.files[kind], FILES.c.digest, FILES.c.digest, FILES.c.kind == kind) for kind in KINDS
        ]
        self._kinds = (programs, *files)  # programs first: what only they name goes with them

    async def sweep(self, last: float) -> list[str]:
        """Remove what was stored at `last` or before and is not named, and files without a row; the digests. Raises: Unavailable."""
        removed: list[str] = []
        for kind in self._kinds:
            async with self._library.door:  # nobody uploads it again between its row and its file
                gone = await self._store.write(partial(_forget, kind=kind, last=last))
                kept = await self._store.read(partial(_names, column=kind.file, these=kind.these))
                await asyncio.to_thread(kind.folder.keep_only, kept)
            for digest in gone:
                _log.info("removed an upload that nobody used", kind=kind.name, digest=digest)
            removed += gone
        return removed


def _forget(connection: Connection, kind: _Kind, last: float) -> list[str]:
    """In one transaction with the look at who names them: the rows that are due are gone."""
    table = kind.digest.table
    due = _names(connection, kind.digest, kind.these & (table.c.stored_at <= last))
    if due:
        due -= {digest for text in _documents(connection) for digest in due if digest in text}
    gone = sorted(due)
    for digest in gone:
        connection.execute(sa.delete(table).where(kind.these, kind.digest == digest))
    return gone


def _names(connection: Connection, column: sa.Column[str], these: sa.ColumnElement[bool]) -> set[str]:
    return set(connection.execute(sa.select(column).where(these)).scalars())


def _documents(connection: Connection) -> Iterator[str]:
    for manifest in connection.execute(sa.select(SESSIONS.c.manifest)).scalars():
        yield manifest.decode(errors="replace") if isinstance(manifest, bytes) else str(manifest)
    for summary in connection.execute(sa.select(PROGRAMS.c.summary)).scalars():
        yield json.dumps({**summary, "digest": ""})  # a program does not keep itself
