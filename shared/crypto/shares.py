"""Shares of a visit's key in travel mode `direct`: X25519, salted with the visit key. Knows no statement, no wire and no memory.

    traffic key = HKDF(salt = K(e, h2d), X25519(holder, GPU),
                       CBOR["gput/direct", session, visit, holder, region, epoch, "h2d", both shares])

So it takes both: the visit key that the orchestrator sealed, and an agreement whose result the orchestrator never has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NoReturn

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from shared.canonical import cbor_bytes
from shared.claims.visit import Grant
from shared.crypto.schedule import KEY_BYTES, salted_hkdf
from shared.crypto.secret import Secret
from shared.crypto.visit_key import VisitKey
from shared.errors import ProtocolViolation, VerificationFailed

SHARE_BYTES: Final = 32


class Share:
    """One side's key pair for one visit. No repr of the private half; it agrees once."""

    __slots__ = ("_private", "public")

    def __init__(self, entropy: Callable[[int], bytes]) -> None:
        private = X25519PrivateKey.from_private_bytes(entropy(SHARE_BYTES))
        self._private: X25519PrivateKey | None = private
        self.public: bytes = private.public_key().public_bytes_raw()

    def agree(self, peer: bytes) -> Secret:
        """X25519 with the peer's share (32 bytes); the private half is gone afterwards.

        Raises:
            ProtocolViolation: `share-used`. VerificationFailed: `bad-share`: a point of small order; the private half is kept.
        """
        if self._private is None:
            raise ProtocolViolation("this share has been used", code="share-used")
        try:
            agreed = Secret(self._private.exchange(X25519PublicKey.from_public_bytes(peer)))
        except ValueError:
            raise VerificationFailed("a share is no point that anything can be agreed with", code="bad-share") from None
        self._private = None
        return agreed

    def __repr__(self) -> str:
        return f"Share({self.public.hex()[:12]}…)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key is not pickled")


def check_share(public: bytes) -> None:
    """A peer's share (32 bytes) agrees something with anybody's.

    Raises:
        VerificationFailed: `bad-share`: a point of small order.
    """
    Share(lambda length: b"\x01" * length).agree(public)


def direct_key(visit_key: bytes, agreed: Secret, grant: Grant) -> bytes:
    """The traffic key (32 bytes) of a grant that names both shares.

    Raises:
        ProtocolViolation: `no-shares`: it names none.
    """
    if grant.shares is None:
        raise ProtocolViolation("the grant names no shares", code="no-shares")
    fixed = [grant.session, grant.visit, grant.holder, grant.region, grant.epoch, grant.direction]
    shares = [bytes.fromhex(grant.shares.holder), bytes.fromhex(grant.shares.gpu)]
    return salted_hkdf(visit_key, agreed.reveal(), cbor_bytes(["gput/direct", *fixed, *shares]), KEY_BYTES)


def agreed_visit_key(visit_key: VisitKey, share: Share, grant: Grant) -> VisitKey:
    """What a holder seals its records under: the visit key with the traffic key in its place. Spends the share.

    Raises:
        ProtocolViolation, VerificationFailed: as `Share.agree` and `direct_key`.
    """
    gpu = bytes.fromhex(grant.shares.gpu) if grant.shares is not None else b""
    return replace(visit_key, key=direct_key(visit_key.key, share.agree(gpu), grant))
