"""What the 32-byte GPU nonce is made of (design 4.2 step 4). Knows no report and no session state."""

from __future__ import annotations

from shared.canonical import cbor_bytes, sha256
from shared.errors import BadRequest


def gpu_nonce(challenge: bytes, th2: bytes, epoch: int, signing_key: bytes) -> bytes:
    """SHA-256(CBOR["gput/gpu-nonce", challenge, TH2, epoch, SHA-256(signing key)]), 32 bytes.

    Args:
        challenge: 32 fresh bytes.
        th2: SHA-384 transcript hash of the SPDM session (DSP0274 TH2), 48 bytes.
        signing_key: the orchestrator's raw Ed25519 session signing key, 32 bytes.
    """
    if (len(challenge), len(th2), len(signing_key)) != (32, 48, 32) or epoch < 0:
        raise BadRequest("a GPU nonce is made of 32, 48 and 32 bytes and an epoch", code="bad-gpu-nonce")
    return sha256(cbor_bytes(["gput/gpu-nonce", challenge, th2, epoch, sha256(signing_key)]))
