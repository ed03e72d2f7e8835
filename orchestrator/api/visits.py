"""Routes of visits and losses, under the release rule: a holder's losses are for the owner and that holder. Knows no GPU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from sqlalchemy import Connection, select

from orchestrator.api import examples as ex
from orchestrator.api.deps import Anybody, Orchestrator, Parts, sees_losses, visible
from orchestrator.sessions.book import Book
from orchestrator.sessions.rows import showable
from orchestrator.tables import LOSSES, VISITS
from shared.claims.manifest import PartyName
from shared.claims.visit import VISIT_PATTERN
from shared.errors import NotFound
from shared.service.pagination import Paging
from shared.service.signatures import Caller

router = APIRouter(tags=["visits"])
_VISIT = re.compile(VISIT_PATTERN)


async def _shown(
    parts: Orchestrator, caller: Caller, book: Book, rows: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Visits of one session as the caller may see them; the losses of all of them in one read."""
    session, owner = book.durable.id, book.durable.owner
    released = [row["id"] for row in rows if sees_losses(caller, owner, row["holder"])]
    losses = await parts.store.read(lambda c: _of_visits(c, session, released)) if released else {}

    def view(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] in losses or sees_losses(caller, owner, row["holder"]):
            return {**row["data"], "losses": losses.get(row["id"])}
        return {**row["data"], "losses": None, "mean_loss": None}

    with showable(session):
        return [view(row) for row in rows]


def _of_visits(connection: Connection, session: str, visits: list[str]) -> dict[str, list[float]]:
    theirs = (LOSSES.c.session == session) & LOSSES.c.visit.in_(visits)  # in the order of the primary key: no scan
    theirs &= LOSSES.c.holder != ""  # a tour's are over several holders' records, and no visit's
    statement = select(LOSSES.c.visit, LOSSES.c.loss).where(theirs).order_by(LOSSES.c.step)
    found: dict[str, list[float]] = {}
    for visit, loss in connection.execute(statement):
        found.setdefault(visit, []).append(float(loss))
    return found


@router.get("/v1/sessions/{session}/visits", summary="Visits of a session", responses=ex.shows(ex.listed(ex.VISIT)))
async def visits(
    session: str, caller: Anybody, parts: Parts, paging: Paging, holder: PartyName | None = None
) -> dict[str, Any]:
    book = await visible(parts, caller, session)
    listing = paging.of(f"visits/{session}/{holder}")
    where = {"session": session} | ({"holder": holder} if holder else {})
    found = await parts.library.page(VISITS, "number", listing.after, listing.ask, **where)
    return listing.page(await _shown(parts, caller, book, listing.cut(found, lambda row: row["number"])))


@router.get("/v1/visits/{visit}", summary="One visit", responses=ex.shows(ex.VISIT))
async def visit(visit: str, caller: Anybody, parts: Parts) -> dict[str, Any]:
    row = await visit_row(parts, visit)
    book = await visible(parts, caller, row["session"])
    return (await _shown(parts, caller, book, [row]))[0]


async def visit_row(parts: Orchestrator, visit: str) -> dict[str, Any]:
    """A visit's row. Raises: NotFound."""
    # What no visit can be called is not for the database, which may refuse it (PostgreSQL a NUL) as if it were damaged itself.
    known = _VISIT.fullmatch(visit) is not None
    rows = await parts.library.page(VISITS, "id", None, 1, id=visit) if known else []
    if not rows:
        raise NotFound(f"There is no visit {visit}", code="unknown-visit")
    return rows[0]


@router.get("/v1/sessions/{session}/losses", summary="Losses released to you", responses=ex.shows(ex.listed(ex.LOSS)))
async def losses(session: str, caller: Anybody, parts: Parts, paging: Paging) -> dict[str, Any]:
    book = await visible(parts, caller, session)
    listing = paging.of(f"losses/{session}")
    found = await parts.store.read(lambda c: _losses(c, session, listing.after, listing.ask))
    return listing.page([
        {"visit": row["visit"], "holder": row["holder"], "step": row["step"], "loss": row["loss"]}
        for row in listing.cut(found, lambda row: [row["number"], row["step"]])
        if sees_losses(caller, book.durable.owner, row["holder"])
    ])  # fmt: skip


def _losses(connection: Connection, session: str, start: list[int] | None, limit: int) -> list[dict[str, Any]]:
    # In order of planning, so that a repeated visit's losses come after those of the attempt before it.
    joined = LOSSES.join(VISITS, VISITS.c.id == LOSSES.c.visit)
    statement = select(LOSSES, VISITS.c.number).select_from(joined).where(LOSSES.c.session == session)
    if start is not None:
        number, step = start
        later = VISITS.c.number > number
        statement = statement.where(later | ((VISITS.c.number == number) & (LOSSES.c.step > step)))
    ordered = statement.order_by(VISITS.c.number, LOSSES.c.step).limit(limit)
    return [dict(row) for row in connection.execute(ordered).mappings()]
