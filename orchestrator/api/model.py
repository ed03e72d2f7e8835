"""Routes of the finished model and of the GPUs. The manifest's output policy says who gets a model. Knows no GPU command."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Request, Response

from orchestrator.api import examples as ex
from orchestrator.api.deps import Anybody, Orchestrator, Parts, visible
from orchestrator.api.held_file import HeldFile, RangeNotSatisfiable
from orchestrator.sessions.fetches import fetch_view
from orchestrator.sessions.state import SessionState
from shared.errors import Conflict, NotFound, NotPermitted, VerificationFailed
from shared.names import Role
from shared.protocol.session import SESSION
from shared.service.pagination import Paging
from shared.service.problems import problem_of, problem_response
from shared.service.signatures import Caller

router = APIRouter(tags=["model and GPUs"])


def _check_release(caller: Caller, state: SessionState) -> None:
    """That the output policy gives the model to the caller.

    An owner is who signed the manifest that the holders approved, and not whoever has its name now: the folder of owners' keys is its
    operator's to write. Raises: NotPermitted.
    """
    release = state.manifest.output.release_to
    owner = Role.OWNER in caller.roles and caller.name == state.owner
    holder = Role.HOLDER in caller.roles and caller.name in state.active
    named = "owner" in release if owner else holder and "holders" in release
    if not named or not caller.fingerprint:  # a bearer token's has none: anybody may have copied it
        raise NotPermitted("The manifest's output policy does not release the model to you", code="output-policy",
                           expected=", ".join(release), got=caller.name)  # fmt: skip
    if owner and caller.fingerprint != state.owner_key:
        raise NotPermitted(
            "The model is released to the key that signed its manifest, and yours came later", code="owner-key-replaced",
            remedy="Fetch it with that key: its public half in the place of the new one in `owner_keys` makes it count again.",
            expected=state.owner_key, got=caller.fingerprint,
        )  # fmt: skip


@router.get(
    "/v1/sessions/{session}/model", summary="The finished model (safetensors)", response_class=Response,
    responses=ex.binary("application/octet-stream", "A safetensors file; ETag is its SHA-256."),
)  # fmt: skip
async def model(session: str, request: Request, caller: Anybody, parts: Parts) -> Response:
    state = (await visible(parts, caller, session)).durable
    _check_release(caller, state)
    if state.exported is None and SESSION.final(state.phase):
        raise Conflict(f"The session is {state.phase.value}; it ended without a model", code="model-not-ready",
                       remedy="None will come: submit a session anew, or one that goes on from this one.")  # fmt: skip
    if state.exported is None:
        raise Conflict(f"The session is {state.phase.value}; its model is not finished", code="model-not-ready",
                       remedy="Wait until the session is COMPLETED.")  # fmt: skip
    await _require_kept(parts, session)
    try:
        answer = await asyncio.to_thread(HeldFile, parts.house.model(session), state.exported["sha256"])
    except FileNotFoundError:
        await _require_kept(parts, session)
        raise NotFound("The model's file is gone from the data folder", code="model-file-gone") from None
    try:
        asked = answer.choose(request.headers)
        # On another thread: it may be gigabytes, and every visit waits for this one.
        if await asyncio.to_thread(answer.digest) != state.exported["sha256"]:
            raise VerificationFailed("The model's file was changed on disk", code="stored-file-changed")
        await parts.house.fetches.record(
            session, party=caller.name, role=Role.OWNER if Role.OWNER in caller.roles else Role.HOLDER,
            fingerprint=caller.fingerprint, sha256=state.exported["sha256"], size=answer.size,
            asked=asked,
        )  # fmt: skip
    except RangeNotSatisfiable as error:
        answer.close()
        return problem_response(problem_of(error, request), {"content-range": f"bytes */{answer.size}"})
    except BaseException:
        answer.close()
        raise
    return answer


async def _require_kept(parts: Orchestrator, session: str) -> None:
    """Its owner did not remove it: by the wish, which may have been written down by a process that died before it removed the file.

    Raises:
        NotFound: `model-removed`. Unavailable.
    """
    if await parts.house.removals.of(session, ()) is not None:
        raise NotFound("The session's owner removed its model", code="model-removed")


@router.get(
    "/v1/sessions/{session}/model/fetches", summary="Who fetched the finished model, and when",
    responses=ex.shows(ex.listed(ex.FETCH)),
)  # fmt: skip
async def fetches(session: str, caller: Anybody, parts: Parts, paging: Paging) -> dict[str, Any]:
    await visible(parts, caller, session)
    listing = paging.of(f"fetches/{session}")
    first = listing.after or 0
    found = list(enumerate(await parts.house.fetches.of(session), 1))[first : first + listing.ask]
    return listing.page([fetch_view(fetch) for _, fetch in listing.cut(found, lambda numbered: numbered[0])])


async def _gpu(parts: Orchestrator, gpu: str) -> dict[str, Any]:
    leased = parts.supervisor.leased_to(gpu)
    backend = None
    if leased is not None:
        # Storage was tampered with: that is the session's trouble, not the pool's.
        with suppress(VerificationFailed, NotFound):
            backend = (await parts.catalogue.open(leased)).durable.backend
    settings = parts.house.settings
    return {
        "id": gpu,
        "backend": backend,
        "agent_url": settings.agent_public_url or settings.agent_url,
        "leased_to": leased,
    }


@router.get("/v1/gpus", summary="The pool", responses=ex.shows(ex.listed(ex.GPU)))
async def gpus(caller: Anybody, parts: Parts) -> dict[str, Any]:
    return {"items": [await _gpu(parts, gpu) for gpu in parts.house.settings.gpus], "next": None}


@router.get("/v1/gpus/{gpu}", summary="One GPU", responses=ex.shows(ex.GPU))
async def gpu(gpu: str, caller: Anybody, parts: Parts) -> dict[str, Any]:
    if gpu not in parts.house.settings.gpus:
        raise NotFound(f"There is no GPU {gpu}", code="unknown-gpu")
    return await _gpu(parts, gpu)
