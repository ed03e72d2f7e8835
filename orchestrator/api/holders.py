"""Routes for holders: inbox, heads, channels, reports and refusals. Knows no GPU command; holders call out, nobody calls them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Body, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from orchestrator.api import examples as ex
from orchestrator.api.deps import (
    Holder,
    Once,
    Orchestrator,
    Parts,
    SignedBody,
    parts_of,
    party_key,
    sight_of,
    takes_part,
    visible,
    waiting,
)
from orchestrator.api.visits import visit_row
from orchestrator.holders.arrivals import Word
from orchestrator.sessions.book import Book
from orchestrator.sessions.keyring import KeyAway
from orchestrator.sessions.rows import roster_of
from orchestrator.sessions.signed import approval_wanted
from orchestrator.sessions.state import SessionState
from orchestrator.sessions.submission import read_manifest
from shared.claims.manifest import RosterEntry
from shared.errors import BadRequest, Conflict, GputError, NotPermitted, Unavailable
from shared.names import Role, SessionPhase, VisitPhase
from shared.service.bodies import Few
from shared.service.callers import caller_with, require_still
from shared.service.direct import asked, described, document, query
from shared.service.idempotency import KEY_HONOURED
from shared.service.printable import printable
from shared.service.signatures import Caller
from shared.wire.visit import ChannelOffer, ChannelProof, ChannelRequest, ChannelState, Inbox, VisitRefusal, VisitReport

router = APIRouter(tags=["for holders"])
ChannelRequestBody = Annotated[ChannelRequest, Few, Body(examples=[ex.CHANNEL_REQUEST])]
ChannelProofBody = Annotated[ChannelProof, Few, Body(examples=[ex.CHANNEL_PROOF])]
W = TypeVar("W", VisitReport, VisitRefusal)
TAKEN = {"visit": ex.V, "phase": "AWAY"}


class Taken(BaseModel):
    """A word that was taken, and where the visit stood then."""

    visit: str
    phase: VisitPhase


class Asked(BaseModel):
    """What a holder asks its inbox for."""

    after: Annotated[int, Field(ge=0, le=2**53, description="The last item that was heard of.")] = 0
    wait: Annotated[float, Field(ge=0, le=30, description="Seconds to wait for an item.")] = 0
    owners: Annotated[
        bool, Field(description="Whether to say who signed a manifest: a holder of before would not understand it.")
    ] = False


# This and the words on a visit are served directly (`shared.service.direct`): holders ask and speak several times in a visit.
@router.get(
    "/v1/inbox", summary="What waits for you", response_class=Response, openapi_extra=asked(Asked),
    responses=ex.of(Inbox, {"items": [], "next": 1795000000000000}),
)  # fmt: skip
async def inbox(request: Request) -> Response:
    caller, wanted = await caller_with(request, Role.HOLDER), query(request, Asked)
    parts = parts_of(request.app)
    with waiting(request, caller, wanted.wait):
        found = await parts.house.inboxes.read(
            caller.name, wanted.after, wanted.wait, lambda holder: _standing(parts, caller)
        )
    await require_still(request, caller)
    shown = await _shown(parts, caller, found)
    if not wanted.owners:
        shown = shown.model_copy(update={"items": [item.without_owner() for item in shown.items]})
    return Response(shown.model_dump_json(), media_type="application/json")


async def _shown(parts: Orchestrator, caller: Caller, found: Inbox) -> Inbox:
    """What of it is for this caller: of a session it hears by the key that the roster names, since the list of enrolled ones is the
    platform's to change; and of an end, as `_standing` says."""
    sight = sight_of(parts, caller)
    shown = [
        item for item in found.items if item.kind == "ended" or await sight.roster(await _roster(parts, item.session))
    ]
    return found if len(shown) == len(found.items) else found.model_copy(update={"items": shown})


async def _roster(parts: Orchestrator, session: str) -> Sequence[RosterEntry]:
    """The session's roster; nobody is in that of one whose manifest cannot be verified. Raises: Unavailable: not at the moment."""
    recovery = parts.supervisor.recoveries.of(session)
    if recovery is not None:
        return recovery.manifest.roster
    try:
        return (await parts.catalogue.open(session)).durable.manifest.roster
    except GputError as error:
        if isinstance(error, Unavailable) and not isinstance(error, KeyAway):
            raise
        return ()


async def _standing(parts: Orchestrator, caller: Caller) -> list[dict[str, Any]]:
    """What still matters to a holder that comes from before this process's start.

    Of ended sessions it hears by its name alone, and of nothing but the end: its service closes them, though its key may be one that an
    owner put in place since.
    """
    items: list[dict[str, Any]] = []
    holder, sight = caller.name, sight_of(parts, caller)
    for book in await parts.catalogue.live():
        if await sight.roster(book.durable.manifest.roster):
            items.extend(await _wanted(parts, book, holder))
    for recovery in parts.supervisor.recoveries.asks(holder):
        if await sight.roster(recovery.manifest.roster):
            items.append(recovery.wanted())
    ended = [*await parts.catalogue.recently_ended(limit=50), *await parts.house.removals.asked()]
    for row in {row["id"]: row for row in ended}.values():
        if row["summary"] is not None and holder in roster_of(row):
            items.append({"kind": "ended", "session": row["id"], "phase": row["phase"]})
    return items


async def _wanted(parts: Orchestrator, book: Book, holder: str) -> list[dict[str, Any]]:
    state: SessionState = book.durable
    if holder not in state.decisions:
        return [approval_wanted(await parts.catalogue.row(state.id))]
    items: list[dict[str, Any]] = []
    runner = parts.supervisor.runner(state.id)
    if runner is not None and runner.heads.wants(state, holder):
        items.append(runner.heads.wanted(state))
    if (
        holder in state.active
        and state.phase is SessionPhase.RUNNING
        and not parts.supervisor.has_channel(state.id, holder)
    ):
        items.append({"kind": "channel_wanted", "session": state.id})
    return items


@router.post(
    "/v1/sessions/{session}/heads", summary="State the log head that you remember", status_code=202,
    responses=ex.shows({"session": ex.S, "holder": "hospital-a"}, 202),
)  # fmt: skip
async def state_head(session: str, body: SignedBody, caller: Holder, parts: Parts) -> dict[str, Any]:
    await visible(parts, caller, session)
    runner = parts.supervisor.runner(session)
    if runner is None:
        raise Conflict("Nobody asks for heads of this session", code="head-not-wanted",
                       remedy="Wait for head_wanted in the inbox.")  # fmt: skip
    runner.hear_head(caller.name, body, await party_key(parts, caller))
    return {"session": session, "holder": caller.name}


@router.put(
    "/v1/sessions/{session}/end", summary="Say that you have heard of the end and have what is yours", status_code=204,
    response_class=Response,
)  # fmt: skip
async def hear_end(session: str, caller: Holder, parts: Parts) -> Response:
    row = await parts.catalogue.row(session)
    # By the row alone: the session's key may be away, and the journal is not needed for this.
    await takes_part(parts, caller, read_manifest(bytes(row["manifest"])).roster)
    await parts.retention.heard(session, caller.name)
    return Response(status_code=204)


@router.post(
    "/v1/sessions/{session}/channels", summary="Attest the orchestrator", status_code=201, openapi_extra=KEY_HONOURED,
    response_model=ChannelOffer, responses=ex.shows({"channel": ex.C, "runtime_data": ex.B64, "evidence": {}, "gpu_evidence": {}}, 201),
)  # fmt: skip
async def ask_channel(session: str, body: ChannelRequestBody, caller: Holder, parts: Parts, once: Once) -> Response:
    async def act() -> Response:
        await visible(parts, caller, session)
        channels = parts.supervisor.channels(session)
        runner = parts.supervisor.runner(session)
        if runner is not None:
            # A new channel means new one-time keys: what is away to this holder could never be opened.
            runner.recall_current(f"{caller.name} opened a new channel", caller.name)
        channels.close(caller.name)
        parts.house.inboxes.withdraw(caller.name, session, ("channel_wanted",))
        offer = await channels.offer(caller.name, body)
        return JSONResponse(offer.model_dump(mode="json"), status_code=201)

    return await once(act)


@router.put(
    "/v1/sessions/{session}/channels/{channel}", summary="Prove yourself; the channel opens",
    responses=ex.shows({"channel": ex.C, "state": "open"}),
)  # fmt: skip
async def prove_channel(
    session: str,
    channel: str,
    body: ChannelProofBody,
    caller: Holder,
    parts: Parts,
) -> ChannelState:
    await visible(parts, caller, session)
    public_key = await party_key(parts, caller)
    with parts.house.distrust.counted():
        return await parts.supervisor.channels(session).prove(caller.name, channel, body, public_key)


async def _deliver(request: Request, visit: str, kind: type[W]) -> Response:
    caller, word = await caller_with(request, Role.HOLDER), await document(request, kind)
    parts = parts_of(request.app)
    if word.visit != visit:
        raise BadRequest(
            "The body speaks of another visit than the path", code="visit-mismatch", expected=visit, got=word.visit
        )
    if isinstance(word, VisitRefusal):  # it goes into the log, and onto everybody's page
        word = word.model_copy(update={"detail": printable(word.detail)})
    arrivals, by = parts.house.arrivals, (caller.name, caller.fingerprint)
    if arrivals.awaits(visit, *by):  # as a rule; the rest is for words that come late or again
        arrivals.deliver(visit, *by, word)
        await asyncio.sleep(0)  # so that the GPU is called back before the holder, who waits for nothing, is answered
        return JSONResponse({"visit": visit, "phase": VisitPhase.AWAY.value}, status_code=202)
    row = await visit_row(parts, visit)
    if row["holder"] != caller.name:
        raise NotPermitted("This is another holder's visit", code="not-your-visit")
    if not _repeats_closed(row, word):
        arrivals.deliver(visit, *by, word)
    return JSONResponse({"visit": visit, "phase": row["phase"]}, status_code=202)


def _repeats_closed(row: dict[str, Any], word: Word) -> bool:
    # The answer to an earlier report was lost; the visit went its way in the meantime.
    data = row["data"]
    return (
        isinstance(word, VisitReport)
        and data["commitment"] is not None
        and (data["commitment"], data["epoch"]) == (word.commitment, word.epoch)
    )


@router.post(
    "/v1/visits/{visit}/report", summary="Provisioned", status_code=202, response_class=Response,
    openapi_extra=described(VisitReport, ex.REPORT), responses=ex.of(Taken, TAKEN, 202),
)  # fmt: skip
async def report(visit: str, request: Request) -> Response:
    return await _deliver(request, visit, VisitReport)


@router.post(
    "/v1/visits/{visit}/refusal", summary="Will not or cannot provision", status_code=202, response_class=Response,
    openapi_extra=described(VisitRefusal, ex.REFUSAL), responses=ex.of(Taken, TAKEN, 202),
)  # fmt: skip
async def refusal(visit: str, request: Request) -> Response:
    return await _deliver(request, visit, VisitRefusal)
