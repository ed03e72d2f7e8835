"""Routes of parties: who is known here, by which key. Knows no session."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from orchestrator.api import examples as ex
from orchestrator.api.deps import Anybody, Once, Orchestrator, Owner, Parts
from orchestrator.damaged import presentable, shown, whole
from shared.claims import Claim
from shared.claims.manifest import PartyName
from shared.claims.program import HexSha256
from shared.names import Role
from shared.service.bodies import Few
from shared.service.callers import require
from shared.service.idempotency import KEY_HONOURED
from shared.service.logging import get_logger
from shared.service.pagination import Paging
from shared.service.signatures import Caller
from shared.wire.dry_run import NewKey, Verdict
from shared.wire.party_keys import KeyReplacement, KeyRevocation, SignedRotation

router = APIRouter(tags=["parties"])
Enrolled = Annotated[Caller, Depends(require(Role.HOLDER, Role.AUDITOR))]
_log = get_logger("parties")


class NewParty(Claim):
    """A party to enrol: `public_key` is the raw Ed25519 public key (32 bytes), hex."""

    name: PartyName = Field(examples=["hospital-a"])
    role: Literal["holder", "auditor"] = Field(examples=["holder"])
    public_key: HexSha256 = Field(examples=[ex.H64])


def _view(parts: Orchestrator, row: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": row["name"], "role": Role(row["role"]).value, "public_key": row["public_key"], "key": row["fingerprint"],
        "enrolled_at": row["enrolled_at"], "last_seen": parts.house.inboxes.last_seen.get(row["name"]),
        "key_valid_from": row["valid_from"], "key_valid_until": row["valid_until"],
    }  # fmt: skip


KEY_FIELDS = ("public_key", "valid_from", "valid_until", "came", "came_by", "ended_by", "previous", "statement")


def _key_view(row: dict[str, Any]) -> dict[str, Any]:
    return {"key": row["fingerprint"], **{name: row[name] for name in KEY_FIELDS}}


@router.get(
    "/v1/whoami", summary="Who you are here", responses=ex.shows({"name": "alice", "role": "owner", "key": ex.H64})
)
async def whoami(caller: Anybody) -> dict[str, Any]:
    return {"name": caller.name, "role": ", ".join(sorted(caller.roles)), "key": caller.fingerprint}


@router.post(
    "/v1/parties", summary="Enrol a party", status_code=201, openapi_extra=KEY_HONOURED,
    responses=ex.shows(ex.PARTY, 200, 201),
)  # fmt: skip
async def enrol(body: Annotated[NewParty, Few], caller: Owner, parts: Parts, once: Once) -> Response:
    async def act() -> Response:
        public = bytes.fromhex(body.public_key)
        _, created = await parts.library.parties.enrol(body.name, body.role, public, caller.name)
        row = await parts.library.parties.one(body.name)
        headers = {"location": f"/v1/parties/{body.name}"}
        return JSONResponse(_view(parts, row), status_code=201 if created else 200, headers=headers)

    return await once(act)


@router.post(
    "/v1/dry-run/parties", summary="Whether a party would be enrolled; nothing is done", responses=ex.shows(ex.VERDICT)
)
async def ask_enrol(body: Annotated[NewParty, Few], _: Owner, parts: Parts) -> Verdict:
    public = bytes.fromhex(body.public_key)
    return Verdict(changes=await parts.library.parties.would_enrol(body.name, body.role, public))


@router.get("/v1/parties", summary="Enrolled parties", responses=ex.shows(ex.listed(ex.PARTY)))
async def parties(caller: Anybody, parts: Parts, paging: Paging) -> dict[str, Any]:
    listing = paging.of("parties")
    found = await parts.library.parties.page(listing.after, listing.ask)
    return listing.page(shown(listing.cut(found, lambda row: row["name"]), partial(_view, parts), "parties"))


@router.get("/v1/parties/{name}", summary="One party", responses=ex.shows(ex.PARTY))
async def party(name: PartyName, caller: Anybody, parts: Parts) -> dict[str, Any]:
    with whole(f"party {name}"):
        return dict(presentable(_view(parts, await parts.library.parties.one(name))))


@router.get(
    "/v1/parties/{name}/keys", summary="Every key that a party had: from when to when it counted, and how it came",
    responses=ex.shows(ex.listed(ex.PARTY_KEY)),
)  # fmt: skip
async def keys(name: PartyName, caller: Anybody, parts: Parts, paging: Paging) -> dict[str, Any]:
    listing = paging.of(f"party-keys/{name}")
    found = await parts.library.parties.keys(name, listing.after or 0, listing.ask)
    return listing.page(shown(listing.cut(found, lambda row: row["number"]), _key_view, "party-keys"))


@router.put(
    "/v1/parties/{name}/key", summary="Be known by a new key from now on, signed by the old one and the new one",
    responses=ex.shows(ex.PARTY),
)  # fmt: skip
async def rotate(
    name: PartyName, body: Annotated[SignedRotation, Few, Body(examples=[ex.SIGNED_ROTATION])], caller: Enrolled, parts: Parts
) -> dict[str, Any]:  # fmt: skip
    row = await parts.library.parties.rotate(name, caller.fingerprint, body)
    _log.info("a party changed its key", party=name, fingerprint=row["fingerprint"])
    return _view(parts, row)


@router.post(
    "/v1/dry-run/parties/{name}/key", summary="Whether a party could be known by a new key, which nobody has signed yet; nothing is done",
    responses=ex.shows(ex.VERDICT),
)  # fmt: skip
async def ask_rotate(name: PartyName, body: Annotated[NewKey, Few], caller: Enrolled, parts: Parts) -> Verdict:
    public = bytes.fromhex(body.public_key)
    return Verdict(changes=await parts.library.parties.would_rotate(name, caller.fingerprint, public))


@router.put(
    "/v1/parties/{name}/replacement", summary="Confirm a party's new key, whose old one is lost or revoked",
    responses=ex.shows(ex.PARTY),
)  # fmt: skip
async def replace(name: PartyName, body: Annotated[KeyReplacement, Few], caller: Owner, parts: Parts) -> dict[str, Any]:
    row = await parts.library.parties.replace(name, bytes.fromhex(body.public_key), body.replaces, caller.name)
    parts.house.inboxes.replaced(name)
    _log.info("a party's key was replaced", party=name, fingerprint=row["fingerprint"], by=caller.name)
    return _view(parts, row)


@router.post(
    "/v1/dry-run/parties/{name}/replacement", summary="Whether a party's new key would be confirmed; nothing is done",
    responses=ex.shows(ex.VERDICT),
)  # fmt: skip
async def ask_replace(name: PartyName, body: Annotated[KeyReplacement, Few], _: Owner, parts: Parts) -> Verdict:
    public = bytes.fromhex(body.public_key)
    return Verdict(changes=await parts.library.parties.would_replace(name, public, body.replaces))


@router.put(
    "/v1/parties/{name}/revocation", summary="Refuse a party's key from now on, running sessions or not",
    responses=ex.shows(ex.PARTY),
)  # fmt: skip
async def revoke(name: PartyName, body: Annotated[KeyRevocation, Few], caller: Owner, parts: Parts) -> dict[str, Any]:
    row = await parts.library.parties.revoke(name, body.key, caller.name)
    parts.supervisor.dismiss(name, f"{name}'s key was revoked")
    _log.info("a party's key was revoked", party=name, fingerprint=body.key, by=caller.name)
    return _view(parts, row)
