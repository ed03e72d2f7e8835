"""Whose manifest a session is: the owner's signature over the manifest's exact bytes. Knows no session, no store and no HTTP.

It says that this key signed these bytes, and neither who holds the key nor that nobody else submitted the same bytes.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass

from shared.crypto.signing import fingerprint, verify
from shared.errors import BadRequest, VerificationFailed

LABEL = "gput/manifest"
_MINT = object()


@dataclass(frozen=True)
class VerifiedOwner:
    """The key (raw Ed25519) that signed a manifest, and its signature (64 bytes). Only `verify_owner` makes one."""

    key: bytes
    signature: bytes
    _mint: InitVar[object] = None  # kept nowhere, so that `replace` cannot carry it into a changed copy

    def __post_init__(self, _mint: object) -> None:
        if _mint is not _MINT:
            raise TypeError("only verify_owner makes a VerifiedOwner")

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the key, 64 hex digits, as `gput party init` prints it."""
        return fingerprint(self.key)


def verify_owner(manifest: bytes, key: bytes, signature: bytes) -> VerifiedOwner:
    """The owner of a manifest, of its exact bytes. Raises: VerificationFailed `bad-signature`."""
    try:
        verify(key, LABEL, manifest, signature)
    except BadRequest as error:
        raise VerificationFailed(f"the manifest's owner has no key: {error.detail}", code="bad-signature") from None
    return VerifiedOwner(key, signature, _MINT)
