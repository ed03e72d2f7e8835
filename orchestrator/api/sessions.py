"""Routes of sessions and approvals; how one is submitted is in `submissions`. Knows no GPU."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import isfinite
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from orchestrator.api import examples as ex
from orchestrator.api.deps import (
    Anybody,
    Holder,
    Once,
    Orchestrator,
    Owner,
    Parts,
    SignedBody,
    party_key,
    require_owner,
    sight_of,
    takes_part,
    visible,
    waiting,
)
from orchestrator.runner.supervisor import Supervisor
from orchestrator.sessions.book import Book
from orchestrator.sessions.decisions import decide, view
from orchestrator.sessions.keyring import KeyAway
from orchestrator.sessions.owners_words import WORDS
from orchestrator.sessions.removals import Removal
from orchestrator.sessions.rows import legible, showable
from orchestrator.sessions.signed import signed_manifest
from orchestrator.sessions.submission import read_manifest
from orchestrator.sessions.views import paused_until, summary
from orchestrator.tables import APPROVALS
from shared.errors import NotFound
from shared.names import Role, SessionPhase
from shared.service.callers import require_still
from shared.service.idempotency import KEY_HONOURED
from shared.service.pagination import Paging
from shared.service.signatures import Caller
from shared.wire.dry_run import Verdict

router = APIRouter(tags=["sessions"])
Wait = Annotated[float, Query(ge=0, le=30, description="Seconds to wait for news.")]


async def session_view(parts: Orchestrator, book: Book, created_at: float) -> dict[str, Any]:
    """The stored summary with what only this process knows at this moment."""
    body = {
        "created_at": created_at,
        **summary(book.durable),
        "paused_until": paused_until(book.durable.paused_at, parts.house.settings.pause_limit_s),
        "waiting_for": parts.supervisor.awaited.by(book),
        "removal": None,
    }
    for holder in body["holders"]:
        holder["channel"] = parts.supervisor.has_channel(book.durable.id, holder["holder"])
        holder["last_seen"] = parts.house.inboxes.last_seen.get(holder["holder"])
    if book.durable.ended:
        roster = [entry.holder for entry in book.durable.manifest.roster]
        removal = await parts.house.removals.of(book.durable.id, roster)
        if removal is not None:
            body["removal"] = removal_view(parts, removal)
            body["waiting_for"] = [f"{holder} (last receipts)" for holder in removal.waits_for]
    fetched = 0 if book.durable.exported is None else await parts.house.fetches.bytes_to_holders(book.durable.id)
    body["bytes"] = {**body["bytes"], "model_to_holders": fetched}
    return body


def removal_view(parts: Orchestrator, removal: Removal) -> dict[str, Any]:
    """What keeps a session that its owner removed, and until when at most."""
    until = removal.asked_at + parts.house.settings.keep_removed_s
    at_most = until if isfinite(until) else None
    return {"asked_at": removal.asked_at, "waits_for": list(removal.waits_for), "until": at_most}


async def answer(parts: Orchestrator, book: Book, status: int = 200) -> JSONResponse:
    """The session as it is now, with its version and where to find it."""
    created_at = (await parts.catalogue.row(book.durable.id))["created_at"]
    headers = {"etag": f'"{book.durable.seq}"', "location": f"/v1/sessions/{book.durable.id}"}
    return JSONResponse(await session_view(parts, book, created_at), status_code=status, headers=headers)


async def _away(parts: Orchestrator, request: Request, caller: Caller, session: str, wait: float) -> JSONResponse:
    """What the database shows of a session whose journal nobody here can read yet: unverified, like every listing."""
    changes = parts.catalogue.changes(session)
    with waiting(request, caller, wait):
        await changes.wait(changes.version, wait)
    await require_still(request, caller)
    row = await parts.catalogue.row(session)
    if not caller.roles & {Role.OWNER, Role.AUDITOR}:
        with legible(session):
            roster = read_manifest(bytes(row["manifest"])).roster
        await takes_part(parts, caller, roster)
    headers = {"etag": f'"{row["version"]}"', "location": f"/v1/sessions/{session}"}
    with legible(session):
        body = _row_view(parts, row)
        body["bytes"] = {**body["bytes"], "model_to_holders": 0}  # it has no model yet
    return JSONResponse(body, headers=headers)


def _row_view(parts: Orchestrator, row: dict[str, Any]) -> dict[str, Any]:
    # Rows that an older release wrote do not say since when they are paused, nor how far the model is.
    until = paused_until(row["summary"].get("paused_at"), parts.house.settings.pause_limit_s)
    waits = parts.supervisor.awaited.by_row(row["summary"])
    view = {
        "created_at": row["created_at"],
        "paused_at": None,
        "position": row["summary"].get("visits_closed"),
        **row["summary"],
    }
    # The summary is written when a list would read differently, and its row with every fact.
    view |= {"version": row["version"], "updated_at": row["updated_at"]}
    return {**view, "paused_until": until, "waiting_for": waits}


@router.get("/v1/sessions", summary="Sessions", responses=ex.shows(ex.listed(ex.SESSION)))
async def sessions(caller: Anybody, parts: Parts, paging: Paging, phase: SessionPhase | None = None) -> dict[str, Any]:
    listing = paging.of(f"sessions/{phase}")
    found = await parts.catalogue.page(listing.after or 0, listing.ask, phase)
    shown = await sight_of(parts, caller).rows(listing.cut(found, lambda row: row["number"]))
    return listing.page([_row_view(parts, row) for row in shown])


@router.get(
    "/v1/sessions/{session}",
    summary="One session; waits for news with ?wait= and ?version=, or for its next phase with ?wait= and ?phase=",
    responses=ex.shows(ex.SESSION),
)
async def session(
    session: str, request: Request, caller: Anybody, parts: Parts, wait: Wait = 0, version: Annotated[int, Query(ge=0, le=2**53)] = 0,
    phase: Annotated[SessionPhase | None, Query(description="With ?wait=: only another phase than this is news.")] = None,
) -> Response:  # fmt: skip
    try:
        book = await visible(parts, caller, session)
    except KeyAway:
        return await _away(parts, request, caller, session, wait)
    if wait and phase is not None:
        with waiting(request, caller, wait):
            await _left(book, phase, wait)
        book = await _again(parts, request, caller, session)
    elif wait and version:
        seen = book.changes.version
        if book.durable.seq <= version:
            with waiting(request, caller, wait):
                await book.changes.wait(seen, wait)
            book = await _again(parts, request, caller, session)
    return await answer(parts, book)


async def _again(parts: Orchestrator, request: Request, caller: Caller, session: str) -> Book:
    """After a wait: nothing of what came meanwhile is for a key or token that counts no more."""
    await require_still(request, caller)
    return await parts.catalogue.open(session)


async def _left(book: Book, phase: SessionPhase, wait_s: float) -> None:
    """Until the session is in another phase, this book is closed, the service stops or the time is over: nobody is answered at each step
    of each visit who waits for the end."""
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            while book.durable.phase is phase and not (book.closed or book.changes.ended):
                await book.changes.wait(book.changes.version, wait_s)


@router.delete(
    "/v1/sessions/{session}", status_code=204, response_class=Response,
    summary="Remove a finished session for good: its model at once, the rest when its holders have their last receipts",
    responses=ex.shows(ex.REMOVAL, 202, description="Its model is gone; the rest waits for holders."),
)  # fmt: skip
async def remove(session: str, caller: Owner, parts: Parts) -> Response:
    row = await parts.catalogue.row(session)
    require_owner(caller, row["owner"], "removes")
    removal = await parts.retention.remove(session)
    if removal is None:
        return Response(status_code=204)
    return JSONResponse(removal_view(parts, removal), 202, headers={"location": f"/v1/sessions/{session}"})


@router.get(
    "/v1/sessions/{session}/manifest", summary="The manifest as its owner signed it", responses=ex.shows(ex.SIGNED)
)
async def manifest(session: str, caller: Anybody, parts: Parts) -> dict[str, Any]:
    await visible(parts, caller, session)
    return signed_manifest(await parts.catalogue.row(session)).model_dump(mode="json")


@router.get(
    "/v1/sessions/{session}/continuation", responses=ex.shows(ex.PREDECESSOR),
    summary="What another session can go on with, as its manifest's `predecessor` must say it",
)  # fmt: skip
async def continuation(session: str, caller: Anybody, parts: Parts) -> dict[str, Any]:
    book = await visible(parts, caller, session)
    return (await parts.house.heritage.offered(book.durable)).says.model_dump(mode="json")


@router.get(
    "/v1/sessions/{session}/predecessor", responses=ex.shows(ex.SIGNED),
    summary="The manifest of the session that this one goes on from, as its owner signed it",
)  # fmt: skip
async def predecessor(session: str, caller: Anybody, parts: Parts) -> dict[str, Any]:
    said = (await visible(parts, caller, session)).durable.manifest.predecessor
    if said is None:
        raise NotFound(f"{session} goes on from no other session", code="no-predecessor")
    return signed_manifest(await parts.catalogue.row(said.session)).model_dump(mode="json")


def _owners_word(verb: str, summary_: str, say: Callable[[Supervisor, Book, str], Awaitable[None]]) -> None:
    @router.post(
        f"/v1/sessions/{{session}}/{verb}", summary=summary_, status_code=202, name=verb, openapi_extra=KEY_HONOURED,
        responses=ex.shows(ex.SESSION, 202),
    )  # fmt: skip
    async def word(session: str, caller: Owner, parts: Parts, once: Once) -> Response:
        async def act() -> Response:
            book = await _owned(parts, caller, session, verb)
            await say(parts.supervisor, book, caller.name)
            return await answer(parts, book, 202)

        return await once(act)

    @router.post(
        f"/v1/dry-run/sessions/{{session}}/{verb}", summary=f"Whether `…/{verb}` would be taken; nothing is done",
        name=f"dry-run-{verb}", responses=ex.shows(ex.VERDICT),
    )  # fmt: skip
    async def ask(session: str, caller: Owner, parts: Parts) -> Verdict:
        book = await _owned(parts, caller, session, verb)
        return Verdict(changes=WORDS[verb](book.state))


async def _owned(parts: Orchestrator, caller: Caller, session: str, verb: str) -> Book:
    """The caller's own session. Raises: NotFound; NotPermitted: another owner's."""
    book = await parts.catalogue.open(session)
    require_owner(caller, book.durable.owner, f"{verb}s")
    return book


_owners_word("pause", "Pause at the end of the visit", Supervisor.pause)
_owners_word("resume", "Go on", Supervisor.resume)
_owners_word("cancel", "End the session", Supervisor.cancel)


@router.post(
    "/v1/sessions/{session}/approvals", summary="Approve, refuse or veto", status_code=201, openapi_extra=KEY_HONOURED,
    responses=ex.shows(ex.APPROVAL, 200, 201),
)  # fmt: skip
async def approve(session: str, body: SignedBody, caller: Holder, parts: Parts, once: Once) -> Response:
    async def act() -> Response:
        book = await visible(parts, caller, session)
        public_key = await party_key(parts, caller)
        said, created = await decide(book, body, caller=caller.name, public_key=public_key)
        if created and said["decision"] != "approve":
            runner = parts.supervisor.runner(session)
            if runner is not None:
                runner.recall_current(f"{caller.name} said {said['decision']}", caller.name)
        if created:
            await parts.supervisor.look()
        return JSONResponse(said, status_code=201 if created else 200)

    return await once(act)


@router.get(
    "/v1/sessions/{session}/approvals", summary="Decisions of the holders", responses=ex.shows(ex.listed(ex.APPROVAL))
)
async def approvals(session: str, caller: Anybody, parts: Parts, paging: Paging) -> dict[str, Any]:
    book = await visible(parts, caller, session)
    listing = paging.of(f"approvals/{session}")
    found = await parts.library.page(APPROVALS, "number", listing.after, listing.ask, session=session)
    with showable(session):
        shown = [view(row, book.durable) for row in listing.cut(found, lambda row: row["number"])]
    return listing.page(shown)
