"""COSE_Sign1 against an encoding written out by hand from RFC 9052, and every byte of a message counts."""

from __future__ import annotations

import hashlib

import cbor2
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from shared.canonical import cbor_byte_string
from shared.crypto.cose import load_p384_public, p384_point, parse1, sign1, verify1
from shared.crypto.signing import PartyKey
from shared.errors import BadRequest, GputError, VerificationFailed

PAYLOAD = b"\xa1\x61a\x01"
KID = b"device-7"
AAD = b"context"


def _head(major: int, length: int) -> bytes:
    """CBOR initial bytes for lengths below 65536, by hand (RFC 8949 3)."""
    if length < 24:
        return bytes([major << 5 | length])
    return bytes([major << 5 | 24, length]) if length < 256 else bytes([major << 5 | 25]) + length.to_bytes(2, "big")


def _text(data: bytes) -> bytes:
    return _head(2, len(data)) + data


def _by_hand(alg: bytes, signature: bytes) -> tuple[bytes, bytes]:
    """(Sig_structure, message), each byte placed by hand."""
    protected = b"\xa2\x01" + alg + b"\x04" + _text(KID)
    structure = b"\x84\x6aSignature1" + _text(protected) + _text(AAD) + _text(PAYLOAD)
    return structure, b"\xd2\x84" + _text(protected) + b"\xa0" + _text(PAYLOAD) + _text(signature)


def test_eddsa_message_is_the_one_computed_by_hand() -> None:
    key = PartyKey.generate()
    message = sign1(PAYLOAD, key, kid=KID, external_aad=AAD)
    structure, expected = _by_hand(b"\x27", message[-64:])
    assert message == expected
    Ed25519PublicKey.from_public_bytes(key.public).verify(message[-64:], structure)
    assert verify1(message, key.public, external_aad=AAD, kid=KID) == PAYLOAD
    assert parse1(message).kid == KID


def test_es384_message_is_the_one_computed_by_hand() -> None:
    key = ec.generate_private_key(ec.SECP384R1())
    message = sign1(PAYLOAD, key, kid=KID, external_aad=AAD, alg=-35)
    structure, expected = _by_hand(b"\x38\x22", message[-96:])
    assert message == expected
    r, s = int.from_bytes(message[-96:-48], "big"), int.from_bytes(message[-48:], "big")
    key.public_key().verify(encode_dss_signature(r, s), structure, ec.ECDSA(hashes.SHA384()))
    with pytest.raises(InvalidSignature):
        key.public_key().verify(encode_dss_signature(r, s), structure + b"x", ec.ECDSA(hashes.SHA384()))
    public = load_p384_public(p384_point(key.public_key()))
    assert verify1(message, public, external_aad=AAD) == PAYLOAD


@pytest.mark.parametrize("kind", ["eddsa", "es384"])
def test_every_byte_counts(kind: str) -> None:
    key = PartyKey.generate() if kind == "eddsa" else ec.generate_private_key(ec.SECP384R1())
    public = key.public if isinstance(key, PartyKey) else key.public_key()
    message = sign1(PAYLOAD, key, kid=KID)
    assert verify1(message, public) == PAYLOAD
    for position in range(len(message)):
        changed = bytearray(message)
        changed[position] ^= 0x01
        with pytest.raises(GputError):
            verify1(bytes(changed), public)
    for other in (message[:-1], message + b"\0", b""):
        with pytest.raises(GputError):
            verify1(other, public)
    with pytest.raises(VerificationFailed):
        verify1(message, public, external_aad=b"other")
    with pytest.raises(VerificationFailed) as caught:
        verify1(message, public, kid=b"other")
    assert caught.value.code == "cose-kid"


def test_algorithm_must_fit_the_key() -> None:
    party, device = PartyKey.generate(), ec.generate_private_key(ec.SECP384R1())
    with pytest.raises(VerificationFailed) as caught:
        verify1(sign1(PAYLOAD, party, kid=KID), device.public_key())
    assert caught.value.code == "cose-alg"
    with pytest.raises(VerificationFailed):
        verify1(sign1(PAYLOAD, device, kid=KID), party.public)
    with pytest.raises(BadRequest):
        sign1(PAYLOAD, party, kid=KID, alg=-35)
    with pytest.raises(BadRequest):
        sign1(PAYLOAD, ec.generate_private_key(ec.SECP256R1()), kid=KID)
    with pytest.raises(BadRequest):
        sign1(PAYLOAD, party, kid=b"")


def test_lax_forms_are_refused() -> None:
    key = PartyKey.generate()
    protected, unprotected, payload, signature = cbor2.loads(sign1(PAYLOAD, key, kid=KID)).value
    lax = [
        cbor2.dumps([protected, unprotected, payload, signature]),
        cbor2.dumps(cbor2.CBORTag(18, [protected, {4: KID}, payload, signature])),
        cbor2.dumps(cbor2.CBORTag(18, [protected, unprotected, None, signature])),
        b"\xd2\x9f" + sign1(PAYLOAD, key, kid=KID)[2:] + b"\xff",  # an array of indefinite length
        sign1(PAYLOAD, key, kid=KID) + b"\x00",
        cbor2.dumps(cbor2.CBORTag(98, [protected, unprotected, payload, signature])),
        cbor2.dumps(cbor2.CBORTag(18, [cbor2.dumps({1: -8}), unprotected, payload, signature])),
        cbor2.dumps(cbor2.CBORTag(18, [cbor2.dumps({1: -8, 2: [1], 4: KID}), unprotected, payload, signature])),
        cbor2.dumps(cbor2.CBORTag(18, [cbor2.dumps({4: KID, 1: -8}), unprotected, payload, signature])),
    ]
    for message in lax:
        with pytest.raises(BadRequest):
            verify1(message, key.public)


@pytest.mark.parametrize("size", [0, 1, 23, 24, 255, 256, 65535, 65536, 70000])
def test_byte_strings_of_every_length_have_the_general_form(size: int) -> None:
    data = bytes(size)
    assert cbor_byte_string(data) == cbor2.dumps(data, canonical=True)
    key = PartyKey.generate()
    message = sign1(data, key, kid=KID)
    assert message == cbor2.dumps(cbor2.loads(message), canonical=True)
    assert verify1(message, key.public) == data


def test_points_are_checked() -> None:
    point = bytearray(p384_point(ec.generate_private_key(ec.SECP384R1()).public_key()))
    point[50] ^= 1
    for bad in (bytes(point), b"", hashlib.sha384(b"").digest() * 2):
        with pytest.raises(BadRequest):
            load_p384_public(bad)
