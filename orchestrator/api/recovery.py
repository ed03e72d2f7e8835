"""Routes for holders of a session whose key was sealed to another orchestrator: its proof, their shares or refusals. Knows no key."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body

from orchestrator.api import examples as ex
from orchestrator.api.deps import Holder, Parts, party_key
from shared.service.bodies import Few
from shared.wire.recovery import GivenShare, ShareOffer, ShareRefusal, ShareRequest

router = APIRouter(tags=["for holders"])
ShareRequestBody = Annotated[ShareRequest, Few, Body(examples=[{"nonce": ex.H64}])]
GivenShareBody = Annotated[GivenShare, Few, Body(examples=[{"sealed": ex.B64, "measurement": "3c" * 48}])]
ShareRefusalBody = Annotated[
    ShareRefusal, Few, Body(examples=[{"code": "vetoed", "detail": "this holder has vetoed it"}])
]


@router.post(
    "/v1/sessions/{session}/share-offers", summary="Attest the orchestrator that asks for your share", status_code=201,
    responses=ex.shows({"offer": "o_aaaaaaaaaaaaaaaa", "runtime_data": ex.B64, "evidence": {}}, 201),
)  # fmt: skip
async def ask_proof(session: str, body: ShareRequestBody, caller: Holder, parts: Parts) -> ShareOffer:
    recovery = parts.supervisor.recoveries.wanted(session)
    return await recovery.offer(caller.name, await party_key(parts, caller), body)


@router.put(
    "/v1/sessions/{session}/share-offers/{offer}", summary="Give your share of the session's key", status_code=202,
    responses=ex.shows({"session": ex.S, "holder": "hospital-a"}, 202),
)  # fmt: skip
async def give_share(session: str, offer: str, body: GivenShareBody, caller: Holder, parts: Parts) -> dict[str, Any]:
    public_key = await party_key(parts, caller)
    parts.supervisor.recoveries.wanted(session).take(caller.name, public_key, offer, body)
    return {"session": session, "holder": caller.name}


@router.post(
    "/v1/sessions/{session}/share-refusals", summary="Refuse your share of the session's key", status_code=202,
    responses=ex.shows({"session": ex.S, "holder": "hospital-a"}, 202),
)  # fmt: skip
async def refuse_share(session: str, body: ShareRefusalBody, caller: Holder, parts: Parts) -> dict[str, Any]:
    public_key = await party_key(parts, caller)
    parts.supervisor.recoveries.wanted(session).refuse(caller.name, public_key, body)
    return {"session": session, "holder": caller.name}
