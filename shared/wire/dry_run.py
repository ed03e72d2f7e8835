"""What is asked and answered where an act is only judged (docs/adr/0052). Knows no act and no rule.

Nothing that is sent here could be used as the act: a manifest and a key's rotation go without their signatures.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from shared.claims import Claim
from shared.claims.program import HexSha256
from shared.wire.visit import Base64


class Verdict(BaseModel):
    """Service -> caller, 200 of a POST under /v1/dry-run: the act would be taken as things stand. A refusal is the act's own.

    A reader that knows fewer fields leaves the others unread.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    changes: bool = Field(description="whether the act would change anything; false where the same was said before")
    unjudged: tuple[str, ...] = Field(
        default=(), description="what the act would still look at, and this answer did not; a sentence each"
    )


class UnsignedManifest(Claim):
    """Owner -> orchestrator, POST /v1/dry-run/sessions: the bytes that the owner would sign. Whoever holds them signed can submit them."""

    document: Base64
    idempotency_key: str | None = Field(
        default=None, description="the Idempotency-Key of the submission, to have it judged, too"
    )


class NewKey(Claim):
    """Party -> orchestrator, POST /v1/dry-run/parties/{name}/key: the raw public key (hex) that it would be known by. Two signatures over
    the statement of it would be the rotation."""

    public_key: HexSha256 = Field(examples=["a3" * 32])


__all__ = ["NewKey", "UnsignedManifest", "Verdict"]
