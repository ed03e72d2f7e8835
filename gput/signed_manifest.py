"""A manifest as the orchestrator hands it out, signed: read, and where its owner's key is known, verified. Asks nobody."""

from __future__ import annotations

from shared.attestation.one_time_keys import decoded
from shared.attestation.owners import verify_owner
from shared.claims.faults import judged
from shared.claims.manifest import Manifest
from shared.errors import VerificationFailed
from shared.wire.visit import Signed


def read_signed(signed: Signed, session: str, owner: bytes | None = None) -> Manifest:
    """The manifest of `session`. `owner`: the raw key that must have signed it; without, whoever answers may have made it up.

    Raises:
        VerificationFailed `bad-signature`. ManifestRefused; BadRequest `malformed-base64`.
    """
    document = decoded(signed.document)
    if owner is not None:
        try:
            verify_owner(document, owner, decoded(signed.signature))
        except VerificationFailed as error:
            raise VerificationFailed(
                f"the manifest that the orchestrator shows of {session} was not signed with your key", code=error.code,
                remedy="Use the key that submitted the session. If it did, somebody changed the manifest: trust nothing else from there.",
            ) from None  # fmt: skip
    return judged(document, f"{session}: ")
