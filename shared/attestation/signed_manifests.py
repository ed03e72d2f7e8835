"""A manifest's signature: by which key its owner submitted it. Knows no list of owners and no session."""

from __future__ import annotations

from shared.crypto.signing import fingerprint, verify

LABEL = "gput/manifest"


def verify_signer(manifest: bytes, key: bytes, signature: bytes) -> str:
    """Fingerprint of the key (raw Ed25519) that signed these very bytes. Whose key it is, nobody here knows.

    Raises:
        VerificationFailed: `bad-signature`.
    """
    verify(key, LABEL, manifest, signature)
    return fingerprint(key)
