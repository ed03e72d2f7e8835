"""Ed25519 party keys: make, keep in a file, sign with a label, verify. Knows no party, no HTTP and no document.

Four kinds of message are signed and cannot be taken for one another: labelled data begins with a lower-case letter and has a zero
byte behind its label, a JWS signing input (RFC 7515 5.1) has letters, digits, `-`, `_` and one `.` only, an RFC 9421 signature base
begins with `"`, a COSE Sig_structure (RFC 9052 4.4) with 0x84.
Public keys are raw 32 bytes (RFC 8032) everywhere; their fingerprint is SHA-256 of those, hex.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from shared.canonical import sha256
from shared.crypto.private_file import write_private
from shared.errors import BadRequest, ConfigurationError, Conflict, VerificationFailed

SEED_BYTES = 32
PUBLIC_BYTES = 32
SIGNATURE_BYTES = 64
_PRIME = 2**255 - 19
_EIGHTH = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER = frozenset((0, 1, _PRIME - 1, _EIGHTH, _PRIME - _EIGHTH))
"""The y of every point of order 1, 2, 4 or 8, with either x. A signature that holds for any message, under any label, is easily made for
such a key, so whoever has one enrolled can deny all that it signed."""
COSE_PREFIX = b"\x84\x6aSignature1"
_LABEL = re.compile(r"[a-z][a-z0-9/._-]{0,63}")
_JWS_INPUT = re.compile(rb"eyJ[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*")


class PartyKey:
    """One party's private key. It has no repr of its own and is never pickled; `public` and `fingerprint` may be shown."""

    __slots__ = ("_private", "public")

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public: bytes = private.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, entropy: Callable[[int], bytes] | None = None) -> PartyKey:
        """A new key from `entropy(32)`, or from the operating system."""
        return cls(Ed25519PrivateKey.from_private_bytes((entropy or os.urandom)(SEED_BYTES)))

    @classmethod
    def load(cls, path: Path) -> PartyKey:
        """Key from a PKCS8 PEM file.

        Raises:
            ConfigurationError: absent, a public key, readable by others, or not an unencrypted Ed25519 key.
        """
        try:
            mode, pem = path.stat().st_mode, path.read_bytes()
        except IsADirectoryError:
            raise ConfigurationError(
                f"{path} is a folder, and a key file is needed", code="key-file",
                remedy="Name the file. A name that is empty is this folder.",
            ) from None  # fmt: skip
        except OSError as error:
            raise ConfigurationError(
                f"key file {path} cannot be read: {error.strerror}",
                code="key-file",
                remedy="Check the path, and that this user owns the file.",
            ) from None
        if b"-----BEGIN PUBLIC KEY-----" in pem:  # before its mode, which anybody may read
            raise ConfigurationError(
                f"{path} is the public half of a key, and the private one is needed",
                code="key-file",
                remedy=f"Name the file that was made with it, for instance {path.with_suffix('.pem')}.",
            )
        if mode & 0o077:
            raise ConfigurationError(
                f"key file {path} is open to other users", code="key-file-mode", remedy=f"chmod 600 {path}"
            )
        try:
            private = serialization.load_pem_private_key(pem, password=None)
        except (ValueError, TypeError):
            private = None
        if not isinstance(private, Ed25519PrivateKey):
            raise ConfigurationError(
                f"key file {path} is not an Ed25519 key in PKCS8 PEM",
                code="key-file",
                remedy="Restore it from a backup; a new key must be enrolled anew.",
            )
        return cls(private)

    def save(self, path: Path) -> None:
        """Write PKCS8 PEM, mode 0600, never over an existing file. Raises: Conflict."""
        pem = self._private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        try:
            write_private(path, pem)
        except FileExistsError:
            raise Conflict(f"key file {path} exists already and is kept", code="key-exists") from None

    @classmethod
    def load_or_generate(cls, path: Path) -> PartyKey:
        """The key in `path`, its public half beside it (`.pub`); made and saved there on first use.

        Raises:
            ConfigurationError: as `load`; also when only the public half is left: a key that was enrolled is not replaced unasked.
        """
        public = path.with_suffix(".pub")
        if not path.exists():
            if public.exists():
                raise ConfigurationError(
                    f"key file {path} is gone, and {public.name} beside it says that there was one",
                    code="key-file",
                    remedy=f"Restore it from a backup; or delete {public} to have a new key made, which must be enrolled anew.",
                )
            cls.generate().save(path)
        key = cls.load(path)
        if not public.exists() or public.read_bytes() != key.public_pem:
            public.write_bytes(key.public_pem)
        return key

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the raw public key, 64 hex digits."""
        return fingerprint(self.public)

    @property
    def public_pem(self) -> bytes:
        """SubjectPublicKeyInfo PEM."""
        return public_pem(self.public)

    def sign(self, label: str, data: bytes) -> bytes:
        """64-byte signature over `label ‖ 00 ‖ data`."""
        return self._private.sign(_labelled(label, data))

    def sign_http(self, base: bytes) -> bytes:
        """64-byte signature over an RFC 9421 signature base."""
        return self._private.sign(_begins(base, b'"', "RFC 9421 signature base"))

    def sign_cose(self, structure: bytes) -> bytes:
        """64-byte signature over a COSE Sig_structure (RFC 9052 4.4)."""
        return self._private.sign(_begins(structure, COSE_PREFIX, "COSE Sig_structure"))

    def sign_jws(self, signing_input: bytes) -> bytes:
        """64-byte signature over a JWS signing input, `header.payload` in base64url (RFC 7515 5.1)."""
        return self._private.sign(_jws_input(signing_input))

    def __repr__(self) -> str:
        return f"PartyKey({self.fingerprint[:16]}…)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key is not pickled")


def fingerprint(public: bytes) -> str:
    """SHA-256 of a raw public key, 64 hex digits."""
    return sha256(public).hex()


def verify(public: bytes, label: str, data: bytes, signature: bytes) -> None:
    """Check `signature` over `label ‖ 00 ‖ data`. Raises: VerificationFailed `bad-signature`."""
    _verify(public, _labelled(label, data), signature, label)


def verify_http(public: bytes, base: bytes, signature: bytes) -> None:
    """Check `signature` over an RFC 9421 signature base. Raises: VerificationFailed `bad-signature`."""
    _verify(public, _begins(base, b'"', "RFC 9421 signature base"), signature, "HTTP message")


def verify_cose(public: bytes, structure: bytes, signature: bytes) -> None:
    """Check `signature` over a COSE Sig_structure. Raises: VerificationFailed `bad-signature`."""
    _verify(public, _begins(structure, COSE_PREFIX, "COSE Sig_structure"), signature, "COSE_Sign1")


def verify_jws(public: bytes, signing_input: bytes, signature: bytes) -> None:
    """Check `signature` over a JWS signing input. Raises: VerificationFailed `bad-signature`."""
    _verify(public, _jws_input(signing_input), signature, "JWS")


def load_public(pem: bytes) -> bytes:
    """Raw public key from SubjectPublicKeyInfo PEM. Raises: BadRequest `bad-public-key`."""
    try:
        public = serialization.load_pem_public_key(pem)
    except ValueError:
        public = None
    if not isinstance(public, Ed25519PublicKey):
        raise BadRequest("not an Ed25519 public key in PEM", code="bad-public-key")
    raw = public.public_bytes_raw()
    check_public(raw)
    return raw


def check_public(public: bytes) -> None:
    """A raw key that may be somebody's: of 32 bytes, and not of small order. Raises: BadRequest `bad-public-key`."""
    _public(public)


def public_pem(public: bytes) -> bytes:
    """SubjectPublicKeyInfo PEM of a raw public key. Raises: BadRequest `bad-public-key`."""
    return _public(public).public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _verify(public: bytes, message: bytes, signature: bytes, what: str) -> None:
    try:
        _public(public).verify(signature, message)
    except InvalidSignature:
        raise VerificationFailed(
            f"the signature over {what} is not of key {fingerprint(public)[:16]}…", code="bad-signature"
        ) from None


@lru_cache(maxsize=256)
def _public(public: bytes) -> Ed25519PublicKey:
    """Raises: BadRequest `bad-public-key`."""
    try:
        key = Ed25519PublicKey.from_public_bytes(public)
    except ValueError:
        raise BadRequest(f"an Ed25519 public key has 32 bytes, got {len(public)}", code="bad-public-key") from None
    # Reduced first: RFC 8032 5.1.3 wants y below the prime, but the library's decoding takes any.
    if (int.from_bytes(public, "little") & (1 << 255) - 1) % _PRIME in _SMALL_ORDER:
        raise BadRequest(
            "an Ed25519 public key of small order is no key: one signature fits every message", code="bad-public-key",
            remedy="make one with `gput party init`",
        )  # fmt: skip
    return key


def _labelled(label: str, data: bytes) -> bytes:
    if not _LABEL.fullmatch(label):
        raise BadRequest(f"signature label {label!r} is malformed", code="bad-label")
    return label.encode("ascii") + b"\x00" + data


def _begins(data: bytes, prefix: bytes, what: str) -> bytes:
    if not data.startswith(prefix):
        raise BadRequest(f"not a {what}", code="bad-signature-input")
    return data


def _jws_input(data: bytes) -> bytes:
    if not _JWS_INPUT.fullmatch(data):
        raise BadRequest("not a JWS signing input", code="bad-signature-input")
    return data
