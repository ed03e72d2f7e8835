"""One service inside this process: start, stop, kill without clean-up, start again over the same files. Knows no service's meaning."""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

import httpx2
from fastapi import FastAPI
from sqlalchemy import Connection

from shared.errors import Unavailable
from shared.service.app import service_state
from tests.world.world_tasks import waiting
from tests.world.world_wire import Call

P, R = ParamSpec("P"), TypeVar("R")
GRACE_S = 2.0
END_S = 60.0
INCARNATION: contextvars.ContextVar[Incarnation | None] = contextvars.ContextVar("incarnation", default=None)


class Incarnation:
    """One life of a service: its name, its tasks, found by the context they inherit, and whether it was killed.

    `at_commit` is done once, when the transaction under way is durable and nobody has heard of it; on the writer's thread.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.dead = False
        self.at_commit: Callable[[], None] | None = None
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()

    # What a rider of the store is asked: a killed process commits nothing any more.
    def write(self, _connection: Connection) -> None:
        self.check()

    def check(self) -> None:
        """Raises: Unavailable: it was killed."""
        if self.dead:
            raise Unavailable("this process was killed", code="killed")

    def settle(self, *, committed: bool) -> None:
        if committed and self.at_commit is not None:
            self.at_commit()
            self.at_commit = None


def unless_killed(act: Callable[P, R]) -> Callable[P, R]:
    """`act`, for what does not pass by a store: nobody does it after its kill."""

    def act_alive(*args: P.args, **options: P.kwargs) -> R:
        owner = INCARNATION.get()
        if owner is not None:
            owner.check()
        return act(*args, **options)

    return act_alive


def task_factory(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    """Remembers which incarnation a task belongs to."""
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
    context = options.get("context")
    owner = context.get(INCARNATION) if context is not None else INCARNATION.get()
    if owner is not None:
        owner.tasks.add(task)
    return task


class Service:
    """`build(incarnation)` makes the application anew at every start."""

    def __init__(self, name: str, build: Callable[[Incarnation], FastAPI]) -> None:
        self.name = name
        self._build = build
        self.app: FastAPI | None = None
        self.incarnation = Incarnation(name)
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._serving: set[asyncio.Task[Any]] = set()

    @property
    def alive(self) -> bool:
        return self.app is not None

    async def start(self) -> None:
        """Build the application and enter its lifespan; raises what start-up raised."""
        loop = asyncio.get_running_loop()
        loop.set_task_factory(task_factory)
        self.incarnation, self._stop = Incarnation(self.name), asyncio.Event()
        self._context = contextvars.copy_context()
        self._context.run(INCARNATION.set, self.incarnation)
        started = loop.create_future()
        self._task = loop.create_task(self._live(started), context=self._context)
        await asyncio.wait([started, self._task], return_when=asyncio.FIRST_COMPLETED)
        if not started.done():
            self._task.result()
            raise AssertionError(f"{self.name} ended at once")

    async def _live(self, started: asyncio.Future[None]) -> None:
        app = self._build(self.incarnation)
        async with app.router.lifespan_context(app):
            store = service_state(app).store
            if store is not None:
                store.add_rider(self.incarnation)
            self.app = app
            started.set_result(None)
            await self._stop.wait()

    async def handle(self, call: Call) -> httpx2.Response:
        """One request, served by a task of this service: it goes on when its client goes away, and dies with the service."""
        app = self.app
        if app is None:
            raise httpx2.ConnectError(f"{self.name} is not there")
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        request = httpx2.Request(call.method, call.url, headers=list(call.headers), content=call.body)
        task = asyncio.get_running_loop().create_task(_whole(transport, request), context=self._context.copy())
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        await asyncio.wait([task])
        if task.cancelled():
            raise httpx2.ReadError(f"{self.name} was killed while it served")
        return task.result()

    async def stop(self) -> None:
        """As SIGTERM: waiting requests end, then the lifespan."""
        if self._task is None:
            return
        if self.app is not None:
            service_state(self.app).stopping.set()
        if self._serving:
            await asyncio.wait(self._serving, timeout=GRACE_S)
        self._stop.set()
        _, pending = await asyncio.wait([self._task], timeout=END_S)
        if pending:
            story = waiting()
            await self._sweep()
            raise AssertionError(f"{self.name} does not end:\n{story}")
        self.app = None
        task, self._task = self._task, None
        await self._sweep()
        task.result()

    async def kill(self) -> None:
        """As SIGKILL: nothing leaves it and nothing is committed from this moment, whatever its clean-up tries. When this returns its
        database is nobody's: a test may put another one in its place."""
        if self._task is None or self.app is None:
            return
        self.incarnation.dead = True
        store = service_state(self.app).store
        self.app, self._task = None, None
        await self._sweep()
        if store is not None:
            await store.close()

    async def _sweep(self) -> None:
        for _ in range(10):
            tasks = [t for t in self.incarnation.tasks if not t.done() and t is not asyncio.current_task()]
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=GRACE_S)
        raise AssertionError(f"{self.name} left tasks behind: {tasks}")

    async def restart(self) -> None:
        """Stop cleanly and start over the same files."""
        await self.stop()
        await self.start()


async def _whole(transport: httpx2.ASGITransport, request: httpx2.Request) -> httpx2.Response:
    response = await transport.handle_async_request(request)
    await response.aread()
    return response
