"""An event loop on a thread of its own, for the synchronous client, and the loan of its asynchronous twin's words. Knows no call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class _Call(Generic[T]):
    """A call that can be ended at any moment, also before it has begun."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work, self._over = work, False
        self._task: asyncio.Task[Any] | None = None

    async def run(self) -> T:
        if self._over:
            self._work.close()
            raise asyncio.CancelledError
        self._task = asyncio.current_task()
        return await self._work

    def end(self) -> None:
        """On the loop's thread. Of one that is through nothing is left to end."""
        self._over = True
        if self._task is not None:
            self._task.cancel()


class Work:
    """An event loop on a thread of its own, and the two ways to wait for what it does."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gput-client", daemon=True)
        self._thread.start()

    def done(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of one call. Whoever is interrupted meanwhile (Ctrl-C) ends the call, too."""
        call = _Call(work)
        try:
            return asyncio.run_coroutine_threadsafe(call.run(), self._loop).result()
        except BaseException:  # also in the moment before there is anything to wait for
            self._loop.call_soon_threadsafe(call.end)
            raise

    def each(self, stream: AsyncIterator[T]) -> Iterator[T]:
        """What comes, one after another. Whoever reads on no more lets go of the stream."""
        try:
            while True:
                try:
                    yield self.done(_next(stream))
                except StopAsyncIteration:
                    return
        finally:
            # Not waited for: the garbage collector may end this anywhere, also in that thread. A closed loop's client closed it.
            if isinstance(stream, AsyncGenerator) and not self._loop.is_closed():
                asyncio.run_coroutine_threadsafe(_let_go(stream), self._loop)

    def end(self, last: Coroutine[Any, Any, None] | None = None) -> None:
        """End the thread, after one last call; again is no error."""
        if self._loop.is_closed():
            if last is not None:
                last.close()
            return
        if last is not None:
            self.done(last)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _next(stream: AsyncIterator[T]) -> T:
    return await anext(stream)


async def _let_go(stream: AsyncGenerator[Any]) -> None:
    await stream.aclose()


def words_of(twin: type) -> Callable[[type[T]], type[T]]:
    """Lends a class and its methods the docstrings of their asynchronous twins."""

    def lend(mine: type[T]) -> type[T]:
        mine.__doc__ = twin.__doc__
        for name, method in vars(mine).items():
            if not name.startswith("_") or name == "__init__":
                theirs = getattr(twin, name, None)
                if theirs is not None and not method.__doc__:
                    method.__doc__ = theirs.__doc__
        return mine

    return lend
