"""Removing what was kept long enough: in bites, so that nobody waits long for the writer, and on from where a killed process stopped.

Knows no table's meaning. Whoever removes a stream takes away, in one transaction, the row by which it is known and notes it here; from
then on nobody finds it. Rows and files follow; the note goes last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from shared.errors import GputError, Unavailable
from shared.service.data_dir import DISK_TROUBLE
from shared.service.logging import get_logger
from shared.service.store import Store
from shared.service.tables import JOURNAL
from shared.service.trouble import Trouble

BITE = 200
"""Rows of one transaction; a visit's commit may have to wait for one."""
BETWEEN_S = 0.02
EVERY_S = 600.0
DAY_S = 86_400.0
_log = get_logger("retention")


class Purges:
    """Removes streams.

    Args:
        notes: table with the columns `stream` and `at`: what is on its way out.
        owned: column by column, in which tables rows name their stream; the journal is one of them without being named.
        files: removes a stream's files; may be called again.
    """

    def __init__(
        self, store: Store, notes: sa.Table, owned: Sequence[sa.Column[str]], files: Callable[[str], Awaitable[None]]
    ) -> None:
        self._store, self._notes, self._files = store, notes, files
        self._owned = (*owned, JOURNAL.c.stream)

    def note(self, connection: Connection, stream: str, at: float) -> None:
        """In the transaction that takes away the row by which the stream is known."""
        connection.execute(sa.insert(self._notes).values(stream=stream, at=at))

    async def finish(self, known: sa.Column[str], removed: Callable[[str], object]) -> None:
        """Remove everything that is noted and not `known`, and say so of each. What cannot be removed keeps none of the others.

        Raises:
            Unavailable: the database is away; or, when all were tried, why the first that is left could not be removed.
        """
        noted = sa.select(self._notes.c.stream).where(self._notes.c.stream.not_in(sa.select(known)))
        streams = await self._store.read(lambda c: list(c.execute(noted).scalars()))

        async def one(stream: str) -> None:
            await self._files(stream)
            for column in self._owned:
                await self._empty(column, stream)
            await self._forget(stream)
            removed(stream)

        await each_of(streams, one)

    async def _empty(self, column: sa.Column[str], stream: str) -> None:
        left = True
        while left:
            left = await self._store.write(lambda connection: _bite(connection, column, stream))
            await asyncio.sleep(BETWEEN_S)

    async def _forget(self, stream: str) -> None:
        forget = sa.delete(self._notes).where(self._notes.c.stream == stream)
        await self._store.write(lambda connection: connection.execute(forget))


def _bite(connection: Connection, column: sa.Column[str], stream: str) -> bool:
    """Whether there were rows left to delete."""
    keys = list(column.table.primary_key)
    rows = connection.execute(sa.select(*keys).where(column == stream).limit(BITE)).all()
    if rows:
        these = sa.delete(column.table).where(*(key == sa.bindparam(f"key_{key.name}") for key in keys))
        connection.execute(
            these, [{f"key_{k.name}": value for k, value in zip(keys, row, strict=True)} for row in rows]
        )
    return bool(rows)


async def each_of(streams: Iterable[str], act: Callable[[str], Awaitable[None]]) -> None:
    """One after another, with trouble that files of one of them make told of when all had their turn.

    Raises:
        Unavailable: at once what is wrong with more than files; in the end the first one's trouble.
    """
    first: Unavailable | None = None
    for stream in streams:
        try:
            await act(stream)
        except Unavailable as error:
            if error.code not in DISK_TROUBLE:
                raise
            _log.error("a finished session cannot be removed yet", session=stream, code=error.code, detail=error.detail)
            first = first or error
    if first is not None:
        raise first


async def again_and_again(
    sweep: Callable[[], Awaitable[None]],
    every_s: float = EVERY_S,
    *,
    undone: str = "finished sessions cannot be removed yet",
) -> None:
    """Sweep now, and every so often, whatever one of them met. `undone`: what then is said not to be done."""
    trouble = Trouble(_log, undone)
    while True:
        try:
            await sweep()
        except GputError as error:
            trouble.met(error)
        except Exception as error:  # nobody would hear that nothing is removed any more
            trouble.fault(error)
        else:
            trouble.over()
        await asyncio.sleep(every_s)
