"""Whose manifest it is: the signature of a key over exactly these bytes, and nothing that anybody else can make."""

from __future__ import annotations

import pytest

from shared.attestation.owners import VerifiedOwner, verify_owner
from shared.crypto.signing import PartyKey
from shared.errors import VerificationFailed

OWNER, OTHER = PartyKey.generate(lambda n: b"\x01" * n), PartyKey.generate(lambda n: b"\x02" * n)
MANIFEST = b'{"name":"study"}'
SIGNATURE = OWNER.sign("gput/manifest", MANIFEST)


def test_an_owner_is_known_by_the_key_that_signed() -> None:
    owner = verify_owner(MANIFEST, OWNER.public, SIGNATURE)
    assert (owner.key, owner.fingerprint) == (OWNER.public, OWNER.fingerprint)


@pytest.mark.parametrize(
    ("manifest", "key", "signature"),
    [
        (MANIFEST + b" ", OWNER.public, SIGNATURE), (MANIFEST, OTHER.public, SIGNATURE), (MANIFEST, OWNER.public, SIGNATURE[:-1]),
        (MANIFEST, OWNER.public, OWNER.sign("gput/approval", MANIFEST)), (MANIFEST, b"", SIGNATURE),
    ],
    ids=["other bytes", "another's key", "a short signature", "said of something else", "no key"],
)  # fmt: skip
def test_nothing_else_makes_one(manifest: bytes, key: bytes, signature: bytes) -> None:
    with pytest.raises(VerificationFailed) as caught:
        verify_owner(manifest, key, signature)
    assert caught.value.code == "bad-signature"


def test_only_the_verifier_makes_one() -> None:
    with pytest.raises(TypeError):
        VerifiedOwner(OWNER.public, SIGNATURE)
