"""The one writer of a process's database, and its reader. Knows no table.

Writes are closures over a SQLAlchemy connection. They run one after the other on one thread; those that wait at the same
moment share a commit (group commit), each under its own savepoint: one that raises undoes only itself, and a commit that fails
undoes all and fails all. A write queued later is never durable before one queued earlier.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError

from shared.errors import Unavailable
from shared.service.engine import Dialect, create_engine, dialect_of, parse_url, touch, translate

T = TypeVar("T")

MAX_GROUP = 64
"""Writes in one commit; bounds how long the first of them waits."""


@dataclass(frozen=True)
class _Job:
    act: Callable[[Connection], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop

    def settle(self, value: Any, error: BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the caller's loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(self._settle, value, error)

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if self.future.done():  # the caller gave up waiting; the write stands
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(value)


class Rider(Protocol):
    """Rows that must be durable no later than any later write, and need no commit of their own. Called on the writer thread."""

    def write(self, connection: Connection) -> None:
        """Writes what is due; the first thing in every transaction."""

    def settle(self, *, committed: bool) -> None:
        """Whether what `write` wrote is durable; if not it is due again."""


class Store:
    """A database of one process: `write`, `read`, `close`.

    Attributes:
        commits: how many commits were made; several writes may share one.
        dialect: "sqlite" or "postgresql".
    """

    def __init__(self, url: str) -> None:
        """Connects nothing. Raises: ConfigurationError for a URL that is not served."""
        self.url = url
        self.commits = 0
        self._parsed = parse_url(url)
        self.dialect: Dialect = dialect_of(self._parsed)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._riders: list[Rider] = []
        self._refused = False  # a commit failed, and none has been tried on purpose since
        self._open = False
        self._ending = threading.Lock()
        self._writer: threading.Thread | None = None
        self._reader: ThreadPoolExecutor | None = None
        self._write_engine: Engine | None = None
        self._held: Connection | None = None  # the writer's, between its transactions
        self._read_engine: Engine | None = None

    async def open(self) -> None:
        """Starts both threads and proves that the database answers.

        Raises:
            Unavailable: code `database-unreachable`.
        """
        if self._open:
            return
        self._write_engine = create_engine(self._parsed, "write")
        self._read_engine = create_engine(self._parsed, "read")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="store-reader")
        self._writer = threading.Thread(target=self._run_writer, name="store-writer", daemon=True)
        self._writer.start()
        self._open = True
        try:
            await self.write(_ping)
            await self.read(_ping)
        except BaseException:
            await self.close()
            raise

    async def write(self, act: Callable[[Connection], T]) -> T:
        """Runs `act` in one transaction; returns its value once the commit is durable.

        `act` touches nothing but the connection. When the caller is cancelled the write may still happen.

        Raises:
            Unavailable: codes `disk-full`, `store-closed`: nothing was written. `database-unreachable`: nor was it here, but where the
                connection was lost while PostgreSQL committed, which may have been done all the same.
            Whatever `act` raises; nothing of it was written.
        """
        return await self.enqueue(act)

    def enqueue(self, act: Callable[[Connection], T]) -> asyncio.Future[T]:
        """As `write`, but takes its place in the queue before returning: any write made later is durable later.

        Raises:
            Unavailable: code `store-closed`; the future raises the rest.
        """
        if not self._open:
            raise _closed()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put(_Job(act, future, loop))
        return future

    def add_rider(self, rider: Rider) -> None:
        """`rider` takes part in every transaction from now on."""
        self._riders.append(rider)

    async def read(self, act: Callable[[Connection], T]) -> T:
        """Runs `act` on a consistent snapshot, on a connection that cannot write.

        Raises:
            Unavailable: codes `database-unreachable`, `store-closed`.
        """
        if not self._open or self._reader is None:
            raise _closed()
        return await asyncio.get_running_loop().run_in_executor(self._reader, self._run_read, act)

    async def check(self) -> None:
        """For readiness: the database answers, and takes writes again if it refused one. Raises: Unavailable."""
        await self.read(_ping)
        if self._refused:
            await self.write(touch)
            self._refused = False

    async def close(self) -> None:
        """Finishes the writes already queued, then closes both connections. A second call waits for the same end, also of one that
        was given up: whoever has awaited this may touch the file."""
        if self._open:
            self._open = False
            self._jobs.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._end)

    def _end(self) -> None:
        """On any thread; whoever comes second finds it done."""
        with self._ending:
            if self._writer is not None:
                self._writer.join()
            if self._reader is not None:
                self._reader.shutdown()
            for engine in (self._write_engine, self._read_engine):
                if engine is not None:
                    engine.dispose()

    def _run_read(self, act: Callable[[Connection], T]) -> T:
        engine = self._read_engine
        if engine is None:
            raise _closed()
        try:
            with engine.connect() as connection:
                return act(connection)  # the snapshot is rolled back on return
        except DBAPIError as error:
            raise translate(error, self._parsed) or error from error

    def _run_writer(self) -> None:
        running = True
        while running:
            job = self._jobs.get()
            group: list[_Job] = []
            while job is not None:
                group.append(job)
                if len(group) == MAX_GROUP or self._jobs.empty():
                    break
                job = self._jobs.get()
            running = job is not None
            if group:
                self._commit(group)
            if not running:
                self._fail_rest()
                self._let_go()

    def _fail_rest(self) -> None:
        while not self._jobs.empty():
            if (job := self._jobs.get()) is not None:
                job.settle(None, _closed())

    def _commit(self, group: list[_Job]) -> None:
        """One transaction for the whole group; each caller hears of its own fate after the commit."""
        outcomes: list[tuple[Any, BaseException | None]] = []
        committed = False
        try:
            connection = self._connection()
            with connection.begin() as transaction:
                for rider in self._riders:
                    rider.write(connection)
                outcomes = [self._attempt(job.act, connection, alone=len(group) == 1) for job in group]
                if len(group) == 1 and outcomes[0][1] is not None:
                    transaction.rollback()
                else:
                    transaction.commit()
                    committed = True
                    self.commits += 1
        except DBAPIError as error:
            failure = translate(error, self._parsed) or error
            self._refused |= isinstance(failure, Unavailable)
            outcomes = [(None, failure) for _ in group]
        except Exception as error:  # the connection failed outside a statement: every caller must hear of it
            outcomes = [(None, error) for _ in group]
        if not committed or self.dialect != "sqlite":
            self._let_go()
        for rider in self._riders:
            rider.settle(committed=committed)
        for job, (value, failed) in zip(group, outcomes, strict=True):
            job.settle(value, failed)

    def _connection(self) -> Connection:
        """The writer's connection. A file's is kept, for nobody breaks it from afar; a server's is asked for anew each time, and
        proved to be alive before anything is done on it."""
        assert self._write_engine is not None
        if self._held is None:
            self._held = self._write_engine.connect()
        return self._held

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            with contextlib.suppress(Exception):  # it broke, which was said already; the pool makes another
                held.close()

    def _attempt(
        self, act: Callable[[Connection], Any], connection: Connection, *, alone: bool
    ) -> tuple[Any, BaseException | None]:
        """The value or the error of one write, which is undone if it raised.

        Raises:
            DBAPIError: the database itself failed: the transaction's state is not known, so nobody's part is kept.
        """
        try:
            if alone:
                return act(connection), None
            with connection.begin_nested():
                return act(connection), None
        except DBAPIError as error:
            if translate(error, self._parsed) is not None:
                raise
            return None, error
        except Exception as error:
            return None, error


def _ping(connection: Connection) -> None:
    connection.execute(sa.text("SELECT 1"))


def _closed() -> Unavailable:
    return Unavailable(
        "the store is closed", code="store-closed", remedy="Repeat the request once the service is up again."
    )
