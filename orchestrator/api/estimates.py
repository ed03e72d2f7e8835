"""Route of the estimate: what a session will take, for those who are asked to approve it. Knows no GPU."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from fastapi import APIRouter
from sqlalchemy import Connection, select

from orchestrator.api import examples as ex
from orchestrator.api.deps import Anybody, Parts, visible
from orchestrator.estimate import Earlier, alike, costs_of, estimate
from orchestrator.sessions.rows import legible
from orchestrator.sessions.state import SessionState
from orchestrator.tables import SESSIONS, VISITS
from shared.claims.manifest import parse_manifest
from shared.errors import GputError, NotFound
from shared.wire.estimate import Estimate

router = APIRouter(tags=["sessions"])
SESSIONS_READ, VISITS_READ = 32, 64
"""Newest sessions that costs are told from, and closed visits of each: enough for a median, and bounded however much there is."""


@router.get(
    "/v1/sessions/{session}/estimate", summary="What the session will take: visits, bytes, time, and where the figures come from",
    response_model=Estimate, responses=ex.shows(ex.ESTIMATE),
)  # fmt: skip
async def expected(session: str, caller: Anybody, parts: Parts) -> Estimate:
    state = (await visible(parts, caller, session)).durable
    try:
        record_bytes = (await parts.library.program(state.manifest.program)).manifest.records.record_bytes
    except NotFound:
        record_bytes = None
    earlier = await parts.store.read(lambda connection: _earlier(connection, state))
    records = {holder: dataset.records for holder, dataset in state.datasets.items()}
    costs = costs_of(state.manifest, state.gpu, earlier)
    return estimate(state.manifest, state.gpu, record_bytes, records, costs)


def _earlier(connection: Connection, state: SessionState) -> list[Earlier]:
    """Rows are shown values, not verified ones: nothing but this estimate rests on them."""
    rows = connection.execute(
        select(SESSIONS.c.id, SESSIONS.c.manifest, SESSIONS.c.gpu)
        .where(SESSIONS.c.id != state.id)
        .order_by(SESSIONS.c.number.desc())
        .limit(SESSIONS_READ)
    ).all()
    found: list[Earlier] = []
    for row in rows:
        with suppress(GputError):  # what cannot be read tells nobody anything
            found += _told_by(connection, state, row)
    return found


def _told_by(connection: Connection, state: SessionState, row: Any) -> list[Earlier]:
    with legible(row.id):
        manifest = parse_manifest(bytes(row.manifest))
        return [Earlier(manifest, row.gpu, _closed(connection, row.id))] if alike(state.manifest, manifest) else []


def _closed(connection: Connection, session: str) -> list[dict[str, object]]:
    closed = (VISITS.c.session == session) & (VISITS.c.phase == "CLOSED")
    newest = select(VISITS.c.data).where(closed).order_by(VISITS.c.number.desc()).limit(VISITS_READ)
    return [row.data for row in connection.execute(newest) if _tells(row.data)]


def _tells(visit: Any) -> bool:
    """Whether a visit's row says what it took in figures that can be reckoned with."""
    if not isinstance(visit, dict) or not isinstance(visit.get("durations"), dict) or not visit["durations"]:
        return False
    figures = [visit.get("steps"), visit.get("length") or 0, *visit["durations"].values()]
    return all(isinstance(figure, float | int) and 0 <= figure < 2**53 for figure in figures) and visit["steps"] > 0
