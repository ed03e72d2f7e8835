"""Routes of sessions and approvals. Knows no GPU."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request, Response
from fastapi.responses import JSONResponse

from orchestrator.api import examples as ex
from orchestrator.api.deps import After, Anybody, Holder, Orchestrator, Owner, PageSize, Parts, page, position, visible
from orchestrator.sessions.book import Book
from orchestrator.sessions.catalogue import signed_manifest
from orchestrator.sessions.decisions import decide, view
from orchestrator.sessions.views import summary
from orchestrator.tables import APPROVALS
from shared.errors import NotPermitted
from shared.names import Role, SessionPhase
from shared.service.idempotency import KEY_REQUIRED
from shared.service.signatures import Caller
from shared.wire.visit import Signed

router = APIRouter(tags=["sessions"])
SignedBody = Annotated[Signed, Body(examples=[ex.SIGNED])]
Wait = Annotated[float, Query(ge=0, le=30, description="Seconds to wait for news.")]


def session_view(parts: Orchestrator, book: Book, created_at: float) -> dict[str, Any]:
    """The stored summary with what only this process knows at this moment."""
    body = {"created_at": created_at, **summary(book.state), "waiting_for": parts.supervisor.waits(book)}
    for holder in body["holders"]:
        holder["channel"] = parts.supervisor.has_channel(book.state.id, holder["holder"])
        holder["last_seen"] = parts.house.inboxes.last_seen.get(holder["holder"])
    body["bytes"] = {**body["bytes"], "model_to_holders": parts.model_to_holders.get(book.state.id, 0)}
    return body


async def _answer(parts: Orchestrator, book: Book, status: int = 200) -> JSONResponse:
    created_at = (await parts.catalogue.row(book.state.id))["created_at"]
    headers = {"etag": f'"{book.state.seq}"', "location": f"/v1/sessions/{book.state.id}"}
    return JSONResponse(session_view(parts, book, created_at), status_code=status, headers=headers)


@router.post(
    "/v1/sessions", summary="Submit a session", status_code=201, openapi_extra=KEY_REQUIRED,
    responses=ex.shows(ex.SESSION, 201),
)  # fmt: skip
async def submit(
    body: SignedBody, caller: Owner, parts: Parts, request: Request,
    gpu: Annotated[str | None, Query(description="GPU of the pool; the first by default.", max_length=63)] = None,
) -> Response:  # fmt: skip
    settings = parts.house.settings
    known = await request.app.state.service.keys(caller.fingerprint)
    if known is None:
        raise NotPermitted("Your key is not known any more", code="key-unknown")

    wanted = gpu or settings.gpus[0]

    async def act(key: str) -> Response:
        memory = await parts.house.link(wanted).memory_bytes() if wanted in settings.gpus else None
        book = await parts.catalogue.submit(
            body, owner=caller.name, owner_key=known.public_key, act=key, gpu=wanted, gpus=settings.gpus,
            gpu_memory=memory, allow_emulated=settings.allow_emulated,
        )  # fmt: skip
        document = signed_manifest(await parts.catalogue.row(book.state.id)).document
        for entry in book.state.manifest.roster:
            parts.house.inboxes.post(entry.holder, kind="approval_wanted", session=book.state.id, manifest=document)
        return await _answer(parts, book, 201)

    return await parts.replies.once(request, caller.name, act)


@router.get("/v1/sessions", summary="Sessions", responses=ex.shows(ex.listed(ex.SESSION)))
async def sessions(
    caller: Anybody, parts: Parts, phase: SessionPhase | None = None, after: After = None, limit: PageSize = 50
) -> dict[str, Any]:
    start = position(parts, "sessions", after) or 0
    rows = await parts.catalogue.page(start, limit, phase)
    items = [
        {"created_at": row["created_at"], **row["summary"]}
        for row in rows
        if caller.roles & {Role.OWNER, Role.AUDITOR} or caller.name in {h["holder"] for h in row["summary"]["holders"]}
    ]
    body = page(parts, "sessions", rows, limit, rows[-1]["number"] if rows else None)
    return {"items": items, "next": body["next"]}


@router.get(
    "/v1/sessions/{session}",
    summary="One session; waits for news with ?wait= and ?version=",
    responses=ex.shows(ex.SESSION),
)
async def session(
    session: str, caller: Anybody, parts: Parts, wait: Wait = 0, version: Annotated[int, Query(ge=0, le=2**53)] = 0
) -> Response:
    book = await visible(parts, caller, session)
    if wait and version:
        seen = book.changes.version
        if book.state.seq <= version:
            await book.changes.wait(seen, wait)
            book = await parts.catalogue.open(session)
    return await _answer(parts, book)


@router.get(
    "/v1/sessions/{session}/manifest", summary="The manifest as its owner signed it", responses=ex.shows(ex.SIGNED)
)
async def manifest(session: str, caller: Anybody, parts: Parts) -> dict[str, Any]:
    await visible(parts, caller, session)
    return signed_manifest(await parts.catalogue.row(session)).model_dump(mode="json")


@router.post(
    "/v1/sessions/{session}/pause",
    summary="Pause at the end of the visit",
    status_code=202,
    responses=ex.shows(ex.SESSION, 202),
)
async def pause(session: str, caller: Owner, parts: Parts) -> Response:
    book = await parts.catalogue.open(session)
    await parts.supervisor.pause(book, caller.name)
    return await _answer(parts, book, 202)


@router.post("/v1/sessions/{session}/resume", summary="Go on", status_code=202, responses=ex.shows(ex.SESSION, 202))
async def resume(session: str, caller: Owner, parts: Parts) -> Response:
    book = await parts.catalogue.open(session)
    await parts.supervisor.resume(book, caller.name)
    return await _answer(parts, book, 202)


@router.post(
    "/v1/sessions/{session}/cancel", summary="End the session", status_code=202, responses=ex.shows(ex.SESSION, 202)
)
async def cancel(session: str, caller: Owner, parts: Parts) -> Response:
    book = await parts.catalogue.open(session)
    await parts.supervisor.cancel(book, caller.name)
    return await _answer(parts, book, 202)


@router.post(
    "/v1/sessions/{session}/approvals",
    summary="Approve, refuse or veto",
    status_code=201,
    responses=ex.shows(ex.APPROVAL, 200, 201),
)
async def approve(session: str, body: SignedBody, caller: Holder, parts: Parts) -> Response:
    book = await visible(parts, caller, session)
    public_key = await _party_key(parts, caller)
    answer, created = await decide(book, parts.store, body, caller=caller.name, public_key=public_key)
    if created and answer["decision"] != "approve":
        runner = parts.supervisor.runner(session)
        if runner is not None:
            runner.recall_current(f"{caller.name} said {answer['decision']}", caller.name)
    if created:
        await parts.supervisor.look()
    return JSONResponse(answer, status_code=201 if created else 200)


async def _party_key(parts: Orchestrator, caller: Caller) -> bytes:
    row = await parts.library.party_by_key(caller.fingerprint)
    if row is None:
        raise NotPermitted("Your key is not enrolled any more", code="key-unknown")
    return bytes.fromhex(row["public_key"])


@router.get(
    "/v1/sessions/{session}/approvals", summary="Decisions of the holders", responses=ex.shows(ex.listed(ex.APPROVAL))
)
async def approvals(
    session: str, caller: Anybody, parts: Parts, after: After = None, limit: PageSize = 50
) -> dict[str, Any]:
    await visible(parts, caller, session)
    scope = f"approvals/{session}"
    rows = await parts.library.page(APPROVALS, "number", position(parts, scope, after), limit, session=session)
    return page(parts, scope, [view(row) for row in rows], limit, rows[-1]["number"] if rows else None)
