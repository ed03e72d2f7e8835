"""Party keys: labels separate, files are private and kept, nothing secret shows."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from shared.crypto.secret import Secret
from shared.crypto.signing import (
    PartyKey,
    fingerprint,
    load_public,
    public_pem,
    verify,
    verify_cose,
    verify_http,
)
from shared.errors import BadRequest, ConfigurationError, Conflict, VerificationFailed

# RFC 8032 section 7.1, test 1: seed and public key.
RFC8032_SEED = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
RFC8032_PUBLIC = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")


def test_public_key_is_that_of_rfc_8032() -> None:
    key = PartyKey.generate(lambda count: RFC8032_SEED[:count])
    assert key.public == RFC8032_PUBLIC
    assert key.fingerprint == fingerprint(RFC8032_PUBLIC)
    assert load_public(key.public_pem) == RFC8032_PUBLIC == load_public(public_pem(RFC8032_PUBLIC))


@given(st.binary(max_size=200), st.integers(min_value=0))
def test_a_signature_holds_for_its_label_data_and_key_only(data: bytes, where: int) -> None:
    key = PartyKey.generate()
    signature = key.sign("gput/approval", data)
    verify(key.public, "gput/approval", data, signature)
    bit = where % (len(signature) * 8)
    forged = bytearray(signature)
    forged[bit // 8] ^= 1 << (bit % 8)
    for public, label, message, candidate in (
        (PartyKey.generate().public, "gput/approval", data, signature),
        (key.public, "gput/approvals", data, signature),
        (key.public, "gput/approval", data + b"\0", signature),
        (key.public, "gput/approval", data, bytes(forged)),
        (key.public, "gput/approval", data, signature[:-1]),
    ):
        with pytest.raises(VerificationFailed) as caught:
            verify(public, label, message, candidate)
        assert caught.value.code == "bad-signature"


SMALL_ORDER = [
    head + last
    for head, ends in {
        "00" * 31: ("00", "80"), "01" + "00" * 30: ("00", "80"),
        "ec" + "ff" * 30: ("7f", "ff"), "ed" + "ff" * 30: ("7f", "ff"), "ee" + "ff" * 30: ("7f", "ff"),
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc": ("05", "85"),
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03": ("7a", "fa"),
    }.items()
    for last in ends
]  # fmt: skip
"""Every encoding, also those that are not canonical: the lists of libsodium and of "Taming the many EdDSAs" (2020)."""


@pytest.mark.parametrize("encoded", SMALL_ORDER)
def test_a_key_of_small_order_is_none(encoded: str) -> None:
    """Under the key 01 00…00 the signature 01 00…00 holds for every message: a party could deny all that it ever approved."""
    public = bytes.fromhex(encoded)
    constant = b"\1" + bytes(63)
    pem = Ed25519PublicKey.from_public_bytes(public).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for use in (
        lambda: verify(public, "gput/approval", b"what was never signed", constant),
        lambda: verify_http(public, b'"@method": PUT', constant),
        lambda: public_pem(public),
        lambda: load_public(pem),
    ):
        with pytest.raises(BadRequest, match="small order") as caught:
            use()
        assert caught.value.code == "bad-public-key"


def test_the_encodings_of_small_order_are_all_there_are() -> None:
    """Eight times each is the neutral point; the curve has eight such points, and six of their encodings are longer than need be."""
    prime, points = 2**255 - 19, set[tuple[int, int]]()
    d = -121665 * pow(121666, -1, prime) % prime

    def double(x: int, y: int) -> tuple[int, int]:
        part = d * x * x * y * y
        return 2 * x * y * pow(1 + part, -1, prime) % prime, (y * y + x * x) * pow(1 - part, -1, prime) % prime

    for encoded in SMALL_ORDER:
        number = int.from_bytes(bytes.fromhex(encoded), "little")
        sign, y = number >> 255, (number & (1 << 255) - 1) % prime
        square = (y * y - 1) * pow(d * y * y + 1, -1, prime) % prime
        x = pow(square, (prime + 3) // 8, prime)
        x = x if x * x % prime == square else x * pow(2, (prime - 1) // 4, prime) % prime
        assert x * x % prime == square
        points.add((prime - x if x and x % 2 != sign else x, y))
    assert len(points) == 8
    assert {double(*double(*double(*point))) for point in points} == {(0, 1)}
    assert len(set(SMALL_ORDER)) == 14


def test_the_three_kinds_of_message_cannot_be_taken_for_one_another() -> None:
    key = PartyKey.generate()
    base = b'"@method": PUT\n'
    verify_http(key.public, base, key.sign_http(base))
    for bad in (b"gput/offer\x00x", b"\x84\x6aSignature1"):
        with pytest.raises(BadRequest):
            key.sign_http(bad)
    with pytest.raises(BadRequest):
        key.sign_cose(base)
    with pytest.raises(BadRequest):
        verify_cose(key.public, base, key.sign_http(base))
    for label in ("", '"quoted', "UPPER", "a\x00b", "\x84"):
        with pytest.raises(BadRequest):
            key.sign(label, b"")


def test_key_file_is_private_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "data" / "identity.pem"
    key = PartyKey.load_or_generate(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert PartyKey.load(path).public == key.public == PartyKey.load_or_generate(path).public
    assert path.with_suffix(".pub").read_bytes() == key.public_pem
    before = path.read_bytes()
    with pytest.raises(Conflict):
        PartyKey.generate().save(path)
    assert path.read_bytes() == before


def test_unusable_key_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "identity.pem"
    with pytest.raises(ConfigurationError):
        PartyKey.load(path)
    PartyKey.generate().save(path)
    os.chmod(path, 0o640)
    with pytest.raises(ConfigurationError) as caught:
        PartyKey.load(path)
    assert caught.value.code == "key-file-mode"
    os.chmod(path, 0o600)
    path.write_bytes(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    with pytest.raises(ConfigurationError):
        PartyKey.load(path)
    with pytest.raises(BadRequest):
        load_public(b"nonsense")


def test_no_secret_shows() -> None:
    key = PartyKey.generate(lambda count: RFC8032_SEED[:count])
    assert RFC8032_SEED.hex() not in repr(key)
    secret = Secret(RFC8032_SEED)
    assert repr(secret) == str(secret) == "Secret(32 bytes)"
    assert secret == Secret(RFC8032_SEED)
    assert secret != Secret(RFC8032_PUBLIC)
    for hidden in (key, secret):
        with pytest.raises(TypeError):
            pickle.dumps(hidden)
        with pytest.raises(TypeError):
            copy.deepcopy(hidden)
