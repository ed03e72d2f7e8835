"""An orchestrator's proof to whoever calls it, before there is a session. Knows no HTTP, no key."""

from __future__ import annotations

from typing import Literal

from shared.claims import Claim
from shared.claims.program import HexSha256
from shared.wire.visit import Base64, Evidence, Nonce


class AttestationRequest(Claim):
    """Client -> orchestrator, POST /v1/attestation: prove what you are, now. `nonce`: 32 bytes of the client's own, hex."""

    nonce: Nonce


class OrchestratorStatement(Claim):
    """What the quote speaks for, as canonical JSON. `caller`: fingerprint of the key that asked, hex.

    `identity_key`: raw Ed25519 key, hex, by which holders and platform know this orchestrator.
    """

    profile: Literal["gput/orchestrator/1"] = "gput/orchestrator/1"
    nonce: Nonce
    caller: HexSha256
    identity_key: HexSha256


class OrchestratorProof(Claim):
    """Orchestrator -> client: the statement's exact bytes, and the evidence whose report data is over them."""

    statement: Base64
    evidence: Evidence
