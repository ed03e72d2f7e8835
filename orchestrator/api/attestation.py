"""Route by which a client attests this orchestrator before it says anything else. Knows no session and no GPU."""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated

from fastapi import APIRouter, Body

from orchestrator.api import examples as ex
from orchestrator.api.deps import Anybody, Parts
from shared.attestation.orchestrator_proof import build_statement, statement_report_data
from shared.service.bodies import Few
from shared.wire.attestation import AttestationRequest, OrchestratorProof

router = APIRouter(tags=["attestation"])
Request = Annotated[AttestationRequest, Few, Body(examples=[ex.CHANNEL_REQUEST])]


@router.post(
    "/v1/attestation", summary="Attest this orchestrator", response_model=OrchestratorProof,
    responses=ex.shows({"statement": ex.B64, "evidence": ex.EVIDENCE}),
)  # fmt: skip
async def attest(body: Request, caller: Anybody, parts: Parts) -> OrchestratorProof:
    house = parts.house
    said = build_statement(nonce=body.nonce, caller=caller.fingerprint, identity_key=house.identity.public)
    evidence = await house.guest.quote(statement_report_data(said))
    return OrchestratorProof(statement=b64encode(said).decode(), evidence=evidence)
