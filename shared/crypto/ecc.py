"""P-384 as SPDM uses it: raw 96-byte points and signatures, ECDHE with entropy from the door. Knows no message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA384

from shared.errors import VerificationFailed

HALF: Final = 48
_ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973


def private_key(entropy: Callable[[int], bytes]) -> ec.EllipticCurvePrivateKey:
    """A P-384 key from 64 bytes of entropy (FIPS 186-5 A.2.1: 128 extra bits make the bias negligible)."""
    return ec.derive_private_key(int.from_bytes(entropy(64), "big") % (_ORDER - 1) + 1, ec.SECP384R1())


def point(public: ec.EllipticCurvePublicKey) -> bytes:
    """X ‖ Y, 96 bytes."""
    numbers = public.public_numbers()
    return numbers.x.to_bytes(HALF, "big") + numbers.y.to_bytes(HALF, "big")


def from_point(raw: bytes) -> ec.EllipticCurvePublicKey:
    """Public key from X ‖ Y; off-curve points are refused. Raises: VerificationFailed `bad-point`."""
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP384R1(), b"\x04" + raw)
    except ValueError:
        raise VerificationFailed("a P-384 point is not on the curve", code="bad-point") from None


def shared_x(private: ec.EllipticCurvePrivateKey, peer: bytes) -> bytes:
    """ECDH: the X coordinate (48 bytes). Raises: VerificationFailed `bad-point`."""
    return private.exchange(ec.ECDH(), from_point(peer))


def sign(private: ec.EllipticCurvePrivateKey, data: bytes) -> bytes:
    """ECDSA over SHA-384(data): r ‖ s, 96 bytes big-endian."""
    r, s = decode_dss_signature(private.sign(data, ec.ECDSA(SHA384())))
    return r.to_bytes(HALF, "big") + s.to_bytes(HALF, "big")


def verify(public: ec.EllipticCurvePublicKey, data: bytes, signature: bytes, what: str) -> None:
    """Check r ‖ s over SHA-384(data). Raises: VerificationFailed `signature-invalid` naming `what`."""
    if len(signature) != 2 * HALF:
        raise VerificationFailed(f"{what}: a P-384 signature has 96 bytes", code="signature-invalid")
    r, s = int.from_bytes(signature[:HALF], "big"), int.from_bytes(signature[HALF:], "big")
    try:
        public.verify(encode_dss_signature(r, s), data, ec.ECDSA(SHA384()))
    except InvalidSignature:
        raise VerificationFailed(f"{what}: the signature does not verify", code="signature-invalid") from None
