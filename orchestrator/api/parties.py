"""Routes of parties: who is known here, by which key. Knows no session."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from orchestrator.api import examples as ex
from orchestrator.api.deps import Anybody, Once, Orchestrator, Owner, Parts
from orchestrator.tables import PARTIES
from shared.claims import Claim
from shared.claims.manifest import PartyName
from shared.claims.program import HexSha256
from shared.errors import NotFound
from shared.service.idempotency import KEY_HONOURED
from shared.service.pagination import Paging

router = APIRouter(tags=["parties"])


class NewParty(Claim):
    """A party to enrol: `public_key` is the raw Ed25519 public key (32 bytes), hex."""

    name: PartyName = Field(examples=["hospital-a"])
    role: Literal["holder", "auditor"] = Field(examples=["holder"])
    public_key: HexSha256 = Field(examples=[ex.H64])


def _view(parts: Orchestrator, row: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": row["name"], "role": row["role"], "public_key": row["public_key"], "key": row["fingerprint"],
        "enrolled_at": row["enrolled_at"], "last_seen": parts.house.inboxes.last_seen.get(row["name"]),
    }  # fmt: skip


@router.get(
    "/v1/whoami", summary="Who you are here", responses=ex.shows({"name": "alice", "role": "owner", "key": ex.H64})
)
async def whoami(caller: Anybody) -> dict[str, Any]:
    return {"name": caller.name, "role": ", ".join(sorted(caller.roles)), "key": caller.fingerprint}


@router.post(
    "/v1/parties", summary="Enrol a party", status_code=201, openapi_extra=KEY_HONOURED,
    responses=ex.shows(ex.PARTY, 200, 201),
)  # fmt: skip
async def enrol(body: NewParty, caller: Owner, parts: Parts, once: Once) -> Response:
    async def act() -> Response:
        row, created = await parts.library.enrol(body.name, body.role, bytes.fromhex(body.public_key))
        headers = {"location": f"/v1/parties/{body.name}"}
        return JSONResponse(_view(parts, row), status_code=201 if created else 200, headers=headers)

    return await once(act)


@router.get("/v1/parties", summary="Enrolled parties", responses=ex.shows(ex.listed(ex.PARTY)))
async def parties(caller: Anybody, parts: Parts, paging: Paging) -> dict[str, Any]:
    listing = paging.of("parties")
    found = await parts.library.page(PARTIES, "name", listing.after, listing.ask)
    return listing.page([_view(parts, row) for row in listing.cut(found, lambda row: row["name"])])


@router.get("/v1/parties/{name}", summary="One party", responses=ex.shows(ex.PARTY))
async def party(name: PartyName, caller: Anybody, parts: Parts) -> dict[str, Any]:
    rows = await parts.library.page(PARTIES, "name", None, 1, name=name)
    if not rows:
        raise NotFound(f"There is no party {name}", code="unknown-party")
    return _view(parts, rows[0])
