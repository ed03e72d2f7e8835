"""What routes reach for: the parts of the running orchestrator, and the caller. Knows no route."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated

from fastapi import Body, Depends, FastAPI, Request, Response

from orchestrator.api import examples as ex
from orchestrator.api.sight import RosterKeys, Sight
from orchestrator.library import Library
from orchestrator.runner.house import House
from orchestrator.runner.retention import Retention
from orchestrator.runner.supervisor import Supervisor
from orchestrator.sessions.book import Book
from orchestrator.sessions.catalogue import Catalogue
from shared.claims.manifest import RosterEntry
from shared.errors import NotPermitted
from shared.names import Role
from shared.service.bodies import Few
from shared.service.callers import require, signed_caller
from shared.service.idempotency import Replies
from shared.service.retention import again_and_again
from shared.service.signatures import Caller
from shared.service.state import service_state
from shared.service.store import Store
from shared.wire.visit import Signed


@dataclass
class Orchestrator:
    """The parts of one orchestrator that leads."""

    house: House
    store: Store
    supervisor: Supervisor
    replies: Replies
    roster_keys: RosterKeys = field(default_factory=RosterKeys)
    _tidying: asyncio.Task[None] | None = None

    @cached_property
    def retention(self) -> Retention:
        """What removes finished sessions."""
        return Retention(self.house)

    async def start(self) -> None:
        """Take up every session, and tidy up after finished ones."""
        await self.supervisor.start()
        self._tidying = asyncio.create_task(again_and_again(self.retention.sweep), name="retention")

    async def stop(self) -> None:
        """End every session's runner within seconds, its state durable."""
        await self._end_tidying()
        await self.supervisor.stop()

    async def abandon(self) -> None:
        """End every session's runner at once."""
        await self._end_tidying()
        await self.supervisor.abandon()

    async def _end_tidying(self) -> None:
        if self._tidying is not None:
            self._tidying.cancel()
            await asyncio.wait([self._tidying])

    @property
    def catalogue(self) -> Catalogue:
        """All sessions."""
        return self.house.catalogue

    @property
    def library(self) -> Library:
        """Parties, programs, files."""
        return self.house.library


def parts_of(app: FastAPI) -> Orchestrator:
    """The orchestrator that an application serves."""
    found: Orchestrator = app.state.orchestrator
    return found


async def orchestrator(request: Request) -> Orchestrator:
    """The running orchestrator. (A plain function would be called in another thread, at every request.)"""
    return parts_of(request.app)


Parts = Annotated[Orchestrator, Depends(orchestrator)]
Anybody = Annotated[Caller, Depends(signed_caller)]
Owner = Annotated[Caller, Depends(require(Role.OWNER))]
Holder = Annotated[Caller, Depends(require(Role.HOLDER))]
SignedBody = Annotated[Signed, Few, Body(examples=[ex.SIGNED])]


class _Once:
    """A request whose repetition under the same Idempotency-Key is answered as the first time."""

    def __init__(self, request: Request, caller: Anybody, parts: Parts) -> None:
        self._request, self._caller, self._replies = request, caller, parts.replies

    async def __call__(self, act: Callable[[], Awaitable[Response]]) -> Response:
        """`act`, or its stored answer; every act here finds by itself what it had done before a crash. Raises: as `Replies.once`."""
        return await self._replies.once_if_keyed(self._request, self._caller.fingerprint, lambda _keyed: act())


Once = Annotated[_Once, Depends()]


async def visible(parts: Orchestrator, caller: Caller, session: str) -> Book:
    """The session's book, if the caller may see it: owners, auditors, and the holders of its roster.

    Raises:
        NotFound: no such session. NotPermitted: not this holder's, or its key did not come from the roster's (`key-replaced`).
    """
    book = await parts.catalogue.open(session)
    if caller.roles & {Role.OWNER, Role.AUDITOR}:
        return book
    await takes_part(parts, caller, book.durable.manifest.roster)
    return book


def sight_of(parts: Orchestrator, caller: Caller) -> Sight:
    """What the caller may see, for one request."""
    return Sight(parts.catalogue, parts.library, parts.roster_keys, caller)


async def takes_part(parts: Orchestrator, caller: Caller, roster: Sequence[RosterEntry]) -> None:
    """That the caller is a holder of this roster. Raises: NotPermitted: it is not, or its key did not come from the roster's."""
    await sight_of(parts, caller).require(roster)


async def party_key(parts: Orchestrator, caller: Caller) -> bytes:
    """The caller's enrolled key, raw. Raises: NotPermitted: it is not enrolled any more."""
    row = await parts.library.parties.by_key(caller.fingerprint)
    if row is None:
        raise NotPermitted("Your key is not enrolled any more", code="key-unknown")
    return bytes.fromhex(row["public_key"])


def sees_losses(caller: Caller, owner: str, holder: str) -> bool:
    """Release rule (design 5): losses are for the session's owner and for that holder only. A reader token to which the operator gave an
    owner's eyes has no key, and counts for every owner."""
    if Role.OWNER in caller.roles and (caller.name == owner or not caller.fingerprint):
        return True
    return Role.HOLDER in caller.roles and caller.name == holder


def waiting(request: Request, caller: Caller, wait_s: float) -> AbstractContextManager[None]:
    """Around what may take `wait_s` seconds. Raises: TooManyWaits: the caller has as many under way as it may."""
    return service_state(request).waits.of(caller) if wait_s else nullcontext()


def require_owner(caller: Caller, owner: str, what: str) -> None:
    """That the session is the caller's own: other owners see it, and that is all. Raises: NotPermitted (code `not-the-owner`)."""
    if caller.name != owner:
        raise NotPermitted(f"Only its owner {what} a session", code="not-the-owner", expected=owner, got=caller.name)
