"""Messages by which an enrolled key changes. Knows no signature and no store."""

from __future__ import annotations

from pydantic import Field

from shared.claims import Claim
from shared.claims.manifest import KeyFingerprint, PartyName
from shared.claims.program import HexSha256
from shared.wire.visit import Base64


class KeyRotation(Claim):
    """Canonical JSON of this is signed by the party's enrolled key and by the new one (docs/adr/0028).

    "I, `party`, am known by the key `new` (raw Ed25519, hex) from now on and no more by that of fingerprint `old`." `at`: seconds since
    1970 by the party's own clock.
    """

    party: PartyName
    old: KeyFingerprint
    new: HexSha256
    at: int = Field(ge=0)


class SignedRotation(Claim):
    """Party -> orchestrator, PUT /v1/parties/{name}/key: the statement's exact bytes under both keys (64 bytes each).

    Labels: "gput/key-rotation" by the old key, "gput/key-rotation/new" by the new one.
    """

    document: Base64
    old_signature: Base64
    new_signature: Base64


class KeyReplacement(Claim):
    """Owner -> orchestrator, PUT /v1/parties/{name}/replacement: the raw public key (hex) that takes the place of one that was lost."""

    public_key: HexSha256 = Field(examples=["a3" * 32])
    replaces: KeyFingerprint = Field(
        examples=["b4" * 32], description="fingerprint of the party's newest key, so that nothing is replaced unseen"
    )


class KeyRevocation(Claim):
    """Owner -> orchestrator, PUT /v1/parties/{name}/revocation: the key with this fingerprint authenticates nothing from now on."""

    key: KeyFingerprint = Field(examples=["b4" * 32])
