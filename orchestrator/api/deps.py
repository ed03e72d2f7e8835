"""What routes reach for: the parts of the running orchestrator, the caller, pages. Knows no route."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request

from orchestrator.library import Library
from orchestrator.runner.house import House
from orchestrator.runner.supervisor import Supervisor
from orchestrator.sessions.book import Book
from orchestrator.sessions.catalogue import Catalogue
from shared.errors import NotPermitted
from shared.names import Role
from shared.service.callers import require, signed_caller
from shared.service.idempotency import Replies
from shared.service.pagination import Cursors
from shared.service.signatures import Caller
from shared.service.store import Store


@dataclass
class Orchestrator:
    """The parts of one orchestrator, once its lifespan has begun."""

    house: House
    store: Store
    supervisor: Supervisor
    replies: Replies
    cursors: Cursors
    # Bytes of finished models that holders fetched from this process, by session (law L9: zero unless the output policy says so).
    model_to_holders: dict[str, int] = field(default_factory=dict)

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


def orchestrator(request: Request) -> Orchestrator:
    """The running orchestrator."""
    return parts_of(request.app)


Parts = Annotated[Orchestrator, Depends(orchestrator)]
Anybody = Annotated[Caller, Depends(signed_caller)]
Owner = Annotated[Caller, Depends(require(Role.OWNER))]
Holder = Annotated[Caller, Depends(require(Role.HOLDER))]
After = Annotated[str | None, Query(max_length=1024, description="Cursor: the `next` of the page before.")]
PageSize = Annotated[int, Query(ge=1, le=200, description="Entries per page.")]


def page(parts: Orchestrator, scope: str, items: list[Any], limit: int, last: str | int | None) -> dict[str, Any]:
    """A page of a list; `last` is the position of its last item."""
    following = parts.cursors.encode(scope, last) if len(items) == limit and last is not None else None
    return {"items": items, "next": following}


def position(parts: Orchestrator, scope: str, after: str | None) -> Any:
    """Where a page begins. Raises: BadRequest."""
    return parts.cursors.decode(scope, after)


async def visible(parts: Orchestrator, caller: Caller, session: str) -> Book:
    """The session's book, if the caller may see it: owners, auditors, and the holders of its roster.

    Raises:
        NotFound: no such session. NotPermitted: not this holder's.
    """
    book = await parts.catalogue.open(session)
    if not caller.roles & {Role.OWNER, Role.AUDITOR} and caller.name not in {
        entry.holder for entry in book.state.manifest.roster
    }:
        raise NotPermitted("This session does not concern you", code="not-in-roster")
    return book


def sees_losses(caller: Caller, holder: str) -> bool:
    """Release rule (design 5): losses are for the owner and for that holder only."""
    return Role.OWNER in caller.roles or (Role.HOLDER in caller.roles and caller.name == holder)
