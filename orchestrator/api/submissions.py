"""Routes by which a session is submitted, and by which its owner asks beforehand whether it would be. Knows no GPU."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Body, Query, Request, Response

from orchestrator.api import examples as ex
from orchestrator.api.deps import Orchestrator, Owner, Parts, SignedBody
from orchestrator.api.sessions import answer
from orchestrator.ids import new_session_id
from orchestrator.sessions.signed import approval_wanted
from orchestrator.sessions.state import SessionState
from orchestrator.sessions.submission import Place, read_manifest
from shared.attestation.one_time_keys import decoded
from shared.canonical import sha256
from shared.errors import NotPermitted
from shared.service.act_key import check_act_key
from shared.service.bodies import Few
from shared.service.idempotency import KEY_REQUIRED, KeyReused
from shared.service.signatures import Caller, KnownKey
from shared.wire.dry_run import UnsignedManifest, Verdict

router = APIRouter(tags=["sessions"])
WhichGpu = Annotated[str | None, Query(description="GPU of the pool; the first by default.", max_length=63)]
Unsigned = Annotated[UnsignedManifest, Few, Body(examples=[{"document": ex.B64}])]


SUBMISSIONS = "/v1/sessions"


@router.post(
    SUBMISSIONS, summary="Submit a session", status_code=201, openapi_extra=KEY_REQUIRED,
    responses=ex.shows(ex.SESSION, 201),
)  # fmt: skip
async def submit(
    body: SignedBody, caller: Owner, parts: Parts, request: Request, gpu: WhichGpu = None
) -> Response:  # fmt: skip
    known = await _known(request, caller)

    async def act(key: str) -> Response:
        book = await parts.catalogue.submit(
            body, owner=caller.name, owner_key=known.public_key, act=key, place=await _place(parts, gpu)
        )
        state = book.durable
        asked = approval_wanted(await parts.catalogue.row(state.id))
        # The first answer may be kept no more, and its session is there.
        _require_same(decoded(asked["manifest"]), decoded(body.document), state, _wanted(parts, gpu))
        for entry in () if state.ended else state.manifest.roster:
            parts.house.inboxes.post(entry.holder, **asked)
        return await answer(parts, book, 201)

    asked = _asked(decoded(body.document), _wanted(parts, gpu))
    return await parts.replies.once(request, caller.fingerprint, act, asked=asked)


@router.post(
    "/v1/dry-run/sessions", summary="Whether a manifest would be taken, by every check of its submission; nothing is done",
    responses=ex.shows(ex.VERDICT),
)  # fmt: skip
async def ask(body: Unsigned, caller: Owner, parts: Parts, request: Request, gpu: WhichGpu = None) -> Verdict:
    known, document = await _known(request, caller), decoded(body.document)
    key = None if body.idempotency_key is None else check_act_key(body.idempotency_key)
    if key is not None and await _said(parts, caller, key, document, _wanted(parts, gpu)):
        return Verdict(changes=False)
    manifest = await asyncio.to_thread(read_manifest, document)
    await parts.catalogue.judge(manifest, owner=caller.name, owner_key=known.public_key, place=await _place(parts, gpu))
    return Verdict(changes=True)


async def _said(parts: Orchestrator, caller: Caller, key: str, document: bytes, wanted: str) -> bool:
    """Whether this manifest was submitted under that key, for the GPU `wanted`: in the order in which the act looks. Raises: KeyReused.
    Conflict `session-removed`."""
    if await parts.replies.answered(caller.fingerprint, key, SUBMISSIONS, _asked(document, wanted)):
        return True
    session = new_session_id(caller.name, key)
    if await parts.catalogue.submitted(session):
        book = await parts.catalogue.open(session)
        asked = approval_wanted(await parts.catalogue.row(session))
        _require_same(decoded(asked["manifest"]), document, book.durable, wanted)
        return True
    return False


def _asked(document: bytes, wanted: str) -> bytes:
    """What makes a submission the same one: naming the GPU that it has anyway makes none of another, nor how its body is written."""
    return sha256(document) + wanted.encode()


async def _known(request: Request, caller: Caller) -> KnownKey:
    known: KnownKey | None = await request.app.state.service.keys(caller.fingerprint)
    if known is None:
        raise NotPermitted("Your key is not known any more", code="key-unknown")
    return known


async def _place(parts: Orchestrator, gpu: str | None) -> Place:
    settings, wanted = parts.house.settings, _wanted(parts, gpu)
    memory = await parts.house.link(wanted).memory_bytes() if wanted in settings.gpus else None
    return Place(wanted, settings.gpus, memory, settings.allow_emulated)


def _wanted(parts: Orchestrator, gpu: str | None) -> str:
    return gpu or parts.house.settings.gpus[0]


def _require_same(submitted: bytes, document: bytes, state: SessionState, wanted: str) -> None:
    """Whether what was submitted under a key is what is now. Raises: KeyReused."""
    if submitted != document:
        raise KeyReused(
            "This Idempotency-Key submitted another manifest", remedy="Submit this one with a fresh Idempotency-Key.",
            expected=state.manifest_digest,
        )  # fmt: skip
    if state.gpu != wanted:
        raise KeyReused(
            "This Idempotency-Key submitted the manifest for another GPU", expected=state.gpu, got=wanted,
            remedy="Name that one, or submit with a fresh Idempotency-Key.",
        )  # fmt: skip
