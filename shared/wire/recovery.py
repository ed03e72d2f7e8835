"""Messages by which holders give their shares of a session's key to another orchestrator, as JSON bodies. Knows no HTTP and no key."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shared.claims import Claim
from shared.claims.manifest import PartyName
from shared.claims.program import HexSha256
from shared.claims.visit import SessionId
from shared.wire.visit import Base64, Evidence, Nonce


class RecoveryRuntime(Claim):
    """What the orchestrator's quote speaks for when it asks one holder for its share: canonical JSON of this is hashed into report_data.

    `peer_nonce` is the holder's; `key` the one-time HPKE public key (raw, base64) that the share is to be sealed to; `enrolled_key` the
    orchestrator's identity, raw Ed25519 in hex.
    """

    profile: Literal["gput/recovery/1"] = "gput/recovery/1"
    role: Literal["orchestrator"] = "orchestrator"
    session: SessionId
    holder: PartyName
    manifest: HexSha256
    peer_nonce: Nonce
    enrolled_key: HexSha256
    key: Base64


class ShareRequest(Claim):
    """Holder -> orchestrator, POST /v1/sessions/{id}/share-offers: attest yourself to me, for this session's key."""

    nonce: Nonce


class ShareOffer(Claim):
    """The orchestrator's proof. `offer` names it in the holder's answer."""

    offer: str
    runtime_data: Base64
    evidence: Evidence


class GivenShare(Claim):
    """Holder -> orchestrator, PUT /v1/sessions/{id}/share-offers/{offer}.

    `sealed` = HPKE to the offer's key, info = SHA-512("gput/recovery/1 seal" 00 ‖ runtime_data), plaintext = 33 bytes. `measurement`: of
    the orchestrator as this holder verified it (MRTD or SNP measurement, hex).
    """

    sealed: Base64
    measurement: Annotated[str, Field(pattern=r"^[0-9a-f]{96}$")]


class ShareRefusal(Claim):
    """Holder -> orchestrator, POST /v1/sessions/{id}/share-refusals: it will not or cannot give its share."""

    code: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$")]
    detail: str = Field(max_length=500)
