"""Who signed a manifest: asked of the orchestrator when the request comes, and verified. Knows no policy and no storage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from data_holder.answers import fetched, parsed
from data_holder.links import OrchestratorLink
from shared.attestation.one_time_keys import decoded
from shared.attestation.signed_manifests import verify_signer
from shared.errors import NotFound
from shared.wire.visit import ManifestSigner

MALFORMED: Final = "manifest-signer-malformed"
UNKNOWN: Final[Mapping[str, None]] = {"owner_key": None, "owner_signature": None}
"""What a request's fact says of its owner where nobody did: earlier releases had no such fields."""


async def signer_of(link: OrchestratorLink, session: str, manifest: bytes) -> dict[str, str | None]:
    """The key that signed the manifest, and its signature, as a request's fact has them. Neither where the orchestrator does not say:
    earlier releases could not.

    Raises:
        VerificationFailed: `manifest-signer-malformed`, or `bad-signature`: it is not that key's. Unavailable: no answer.
    """
    try:
        answer = await fetched(link, f"/v1/sessions/{session}/owner", MALFORMED)
    except NotFound:
        return dict(UNKNOWN)
    said = parsed(ManifestSigner, answer, MALFORMED)
    verify_signer(manifest, bytes.fromhex(said.key), decoded(said.signature))
    return {"owner_key": said.key, "owner_signature": said.signature}
