"""HPKE (RFC 9180) to a one-time key with the hybrid KEM MLKEM768_X25519. Knows no sender: base mode authenticates nobody.

All context goes into `info`; there is no separate AAD. Public key = ML-KEM-768 encapsulation key (1184) ‖ X25519 key (32);
sealed = encapsulated key (1120) ‖ ciphertext ‖ tag (16).
"""

from __future__ import annotations

from typing import NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)

from shared.errors import BadRequest, ProtocolViolation, VerificationFailed

MLKEM_PUBLIC_BYTES = 1184
PUBLIC_BYTES = MLKEM_PUBLIC_BYTES + 32
ENCAPSULATED_BYTES = 1120
OVERHEAD_BYTES = ENCAPSULATED_BYTES + 16
_SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


class OneTimeKey:
    """A key pair whose private half opens one message and is then dropped. No repr of the private half."""

    __slots__ = ("_private", "public")

    def __init__(self, mlkem: MLKEM768PrivateKey, x25519: X25519PrivateKey) -> None:
        self._private: MLKEM768X25519PrivateKey | None = MLKEM768X25519PrivateKey(mlkem, x25519)
        self.public: bytes = mlkem.public_key().public_bytes_raw() + x25519.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> OneTimeKey:
        """A fresh pair from the operating system's entropy."""
        return cls(MLKEM768PrivateKey.generate(), X25519PrivateKey.generate())

    @property
    def used(self) -> bool:
        """Whether the private half is gone."""
        return self._private is None

    def open(self, sealed: bytes, info: bytes) -> bytes:
        """Plaintext of `sealed`. The key is spent by the attempt, successful or not.

        Raises:
            ProtocolViolation: `one-time-key-used`, the key has been spent before.
            VerificationFailed: `hpke-open`, not sealed to this key with this `info`.
        """
        private, self._private = self._private, None
        if private is None:
            raise ProtocolViolation("this one-time key has been used", code="one-time-key-used")
        try:
            return _SUITE.decrypt(sealed, private, info)
        except (InvalidTag, ValueError):
            raise VerificationFailed("the message is not sealed to this key and context", code="hpke-open") from None

    def __repr__(self) -> str:
        return f"OneTimeKey({'used' if self.used else 'unused'})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key is not pickled")


def seal(public: bytes, plaintext: bytes, info: bytes) -> bytes:
    """Seal `plaintext` to a raw public key of 1216 bytes. Raises: BadRequest `bad-hpke-key`."""
    if len(public) != PUBLIC_BYTES:
        raise BadRequest(f"an HPKE public key has {PUBLIC_BYTES} bytes, got {len(public)}", code="bad-hpke-key")
    try:
        recipient = MLKEM768X25519PublicKey(
            MLKEM768PublicKey.from_public_bytes(public[:MLKEM_PUBLIC_BYTES]),
            X25519PublicKey.from_public_bytes(public[MLKEM_PUBLIC_BYTES:]),
        )
        return _SUITE.encrypt(plaintext, recipient, info)
    except ValueError:
        raise BadRequest("the HPKE public key is malformed", code="bad-hpke-key") from None
