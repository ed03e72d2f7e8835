"""COSE_Sign1 (RFC 9052 section 4) with ES384 or EdDSA (RFC 9053). Knows no payload, no certificate, no party.

Strict profile: tagged (18), deterministic CBOR, `alg` and `kid` in the protected header and nothing else, an empty unprotected
header, an attached payload. One signed value therefore has one encoding (but for ECDSA's own r, -s).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cbor2 import CBORTag
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from shared.canonical import cbor_byte_string, cbor_bytes, cbor_in_any_form, cbor_value
from shared.crypto.signing import COSE_PREFIX, PUBLIC_BYTES, PartyKey, verify_cose
from shared.errors import BadRequest, VerificationFailed

HEADER_ALG, HEADER_KID = 1, 4  # RFC 9052 table 3
EDDSA, ES384 = -8, -35  # IANA COSE Algorithms
P384_BYTES = 48
MAX_MESSAGE_BYTES = 1024 * 1024
MAX_HEADER_BYTES = 128  # an algorithm, and a key id of 64 bytes

Signer = PartyKey | ec.EllipticCurvePrivateKey
Verifier = bytes | ec.EllipticCurvePublicKey
"""A raw Ed25519 key, or one of P-384."""


@dataclass(frozen=True, slots=True)
class Sign1:
    """A COSE_Sign1 taken apart, *unverified*: `kid` is only good for looking up the key, under which `verified` gives the payload."""

    kid: bytes
    _alg: int
    _protected: bytes
    _payload: bytes
    _signature: bytes

    def verified(self, public: Verifier, *, external_aad: bytes = b"", kid: bytes | None = None) -> bytes:
        """Payload, signed by exactly this key (raw Ed25519, or P-384).

        Raises:
            VerificationFailed: `cose-alg`, `cose-kid` or `bad-signature`.
        """
        fitting = EDDSA if isinstance(public, bytes) else ES384
        if self._alg != fitting:
            raise VerificationFailed(
                "COSE algorithm does not fit the key", code="cose-alg", expected=str(fitting), got=str(self._alg)
            )
        if kid is not None and self.kid != kid:
            raise VerificationFailed(
                "COSE message names another key", code="cose-kid", expected=kid.hex(), got=self.kid.hex()
            )
        structure = _sig_structure(self._protected, external_aad, self._payload)
        if isinstance(public, bytes):
            verify_cose(public, structure, self._signature)
        else:
            _verify_es384(public, structure, self._signature)
        return self._payload


def sign1(payload: bytes, signer: Signer, *, kid: bytes, external_aad: bytes = b"", alg: int | None = None) -> bytes:
    """A tagged COSE_Sign1 over `payload`; the algorithm follows from the key.

    Args:
        signer: Ed25519 party key, or a P-384 private key.
        kid: public key identifier, 1 to 64 bytes.
        external_aad: bound but not transported (RFC 9052 4.3).
    Raises:
        BadRequest: `alg` does not fit the key, the curve is not P-384, or `kid` has a wrong length.
    """
    fitting = EDDSA if isinstance(signer, PartyKey) else ES384
    if alg not in (None, fitting):
        raise BadRequest(f"COSE algorithm {alg} does not fit the key ({fitting})", code="cose-alg")
    if not 1 <= len(kid) <= 64:
        raise BadRequest("a COSE key id has 1 to 64 bytes", code="cose-kid")
    protected = cbor_bytes({HEADER_ALG: fitting, HEADER_KID: kid})
    structure = _sig_structure(protected, external_aad, payload)
    signature = signer.sign_cose(structure) if isinstance(signer, PartyKey) else _sign_es384(signer, structure)
    return _message(protected, payload, signature)


def verify1(message: bytes, public: Verifier, *, external_aad: bytes = b"", kid: bytes | None = None) -> bytes:
    """Payload of a valid COSE_Sign1 by exactly this key (raw Ed25519, or P-384).

    Raises:
        BadRequest: `malformed-cose`, not of the strict profile.
        VerificationFailed: `cose-alg`, `cose-kid` or `bad-signature`.
    """
    return parse1(message).verified(public, external_aad=external_aad, kid=kid)


def p384_point(public: ec.EllipticCurvePublicKey) -> bytes:
    """Uncompressed point, 97 bytes (SEC 1 2.3.3)."""
    return public.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


def load_p384_public(point: bytes) -> ec.EllipticCurvePublicKey:
    """P-384 key from its uncompressed point. Raises: BadRequest `bad-public-key`."""
    if len(point) != 1 + 2 * P384_BYTES:
        raise BadRequest(f"a P-384 point has 97 bytes, got {len(point)}", code="bad-public-key")
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP384R1(), point)
    except ValueError:
        raise BadRequest("not a point of P-384", code="bad-public-key") from None


def load_verifier(raw: bytes) -> Verifier:
    """The key that its raw form says, and its length of which kind: Ed25519 (32 bytes), or an uncompressed point of P-384 (97).

    Raises:
        BadRequest `bad-public-key`.
    """
    return raw if len(raw) == PUBLIC_BYTES else load_p384_public(raw)


def raw_verifier(public: Verifier) -> bytes:
    """Inverse of `load_verifier`."""
    return public if isinstance(public, bytes) else p384_point(public)


def _sig_structure(protected: bytes, external_aad: bytes, payload: bytes) -> bytes:
    return COSE_PREFIX + b"".join(map(cbor_byte_string, (protected, external_aad, payload)))


def _message(protected: bytes, payload: bytes, signature: bytes) -> bytes:
    """The one encoding: tag 18, an array of four, the second of them an empty map."""
    return b"\xd2\x84%b\xa0%b%b" % tuple(map(cbor_byte_string, (protected, payload, signature)))


def parse1(message: bytes) -> Sign1:
    """A message taken apart, its signature unchecked. Raises: BadRequest `malformed-cose`, not of the strict profile."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise _malformed(f"{len(message)} bytes are too many")
    tagged: Any = cbor_in_any_form(message)
    if not isinstance(tagged, CBORTag):
        raise _malformed("not tagged as COSE_Sign1")
    value = tagged.value
    if not isinstance(value, (list, tuple)) or len(value) != 4:
        raise _malformed("not an array of four")
    protected, unprotected, payload, signature = value
    if not isinstance(unprotected, Mapping) or unprotected:
        raise _malformed("the unprotected header must be empty")
    if not all(isinstance(part, bytes) for part in (protected, payload, signature)):
        raise _malformed("protected header, payload and signature must be byte strings")
    if _message(protected, payload, signature) != message:
        raise _malformed("not in deterministic form")
    alg, kid = _header(protected)
    return Sign1(kid, alg, protected, payload, signature)


@lru_cache(maxsize=256)
def _header(protected: bytes) -> tuple[int, bytes]:
    """Algorithm and key id. Few keys sign very many messages: the same bytes are taken apart once."""
    if len(protected) > MAX_HEADER_BYTES:
        raise _malformed("the protected header must hold alg and kid only")
    header: Any = cbor_value(protected, numbered=True)
    # Numbers by type too: True and 1.0 are equal to 1, and in another reader's map `alg` is not found under them.
    named = isinstance(header, Mapping) and set(header) == {HEADER_ALG, HEADER_KID}
    if not named or any(type(name) is not int for name in header):
        raise _malformed("the protected header must hold alg and kid only")
    alg, kid = header[HEADER_ALG], header[HEADER_KID]
    if type(alg) is not int or not isinstance(kid, bytes):
        raise _malformed("alg must be a number and kid a byte string")
    return alg, kid


def _malformed(why: str) -> BadRequest:
    return BadRequest(f"COSE_Sign1: {why}", code="malformed-cose")


def _sign_es384(key: ec.EllipticCurvePrivateKey, structure: bytes) -> bytes:
    _require_p384(key.curve)
    r, s = decode_dss_signature(key.sign(structure, ec.ECDSA(hashes.SHA384())))
    return r.to_bytes(P384_BYTES, "big") + s.to_bytes(P384_BYTES, "big")


def _verify_es384(key: ec.EllipticCurvePublicKey, structure: bytes, signature: bytes) -> None:
    _require_p384(key.curve)
    failed = VerificationFailed("the signature over COSE_Sign1 is not of this P-384 key", code="bad-signature")
    if len(signature) != 2 * P384_BYTES:
        raise failed
    r, s = (int.from_bytes(half, "big") for half in (signature[:P384_BYTES], signature[P384_BYTES:]))
    try:
        key.verify(encode_dss_signature(r, s), structure, ec.ECDSA(hashes.SHA384()))
    except InvalidSignature:
        raise failed from None


def _require_p384(curve: ec.EllipticCurve) -> None:
    if not isinstance(curve, ec.SECP384R1):
        raise BadRequest(f"ES384 needs a P-384 key, got {curve.name}", code="cose-alg")
