"""A party's statement that it is known by a new key from now on, under its old key and the new one. Knows no store and no HTTP.

    old_signature = Ed25519(enrolled key, "gput/key-rotation" 00 ‖ canonical JSON of KeyRotation)
    new_signature = Ed25519(new key,  "gput/key-rotation/new" 00 ‖ the same bytes)

The old key gives the name away; the new one shows that it is in the same hands and nobody else's public key.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass
from typing import Any

from pydantic import ValidationError

from shared.attestation.one_time_keys import decoded
from shared.canonical import json_bytes, json_value
from shared.claims.manifest import Manifest, Predecessor
from shared.crypto.signing import PartyKey, fingerprint, verify
from shared.errors import BadRequest, GputError, VerificationFailed
from shared.wire.party_keys import KeyRotation, SignedRotation

OLD_LABEL, NEW_LABEL = "gput/key-rotation", "gput/key-rotation/new"
_MINT = object()


@dataclass(frozen=True)
class VerifiedRotation:
    """A change of a party's key that both keys signed. Only `verify_rotation` makes it. Keys are raw Ed25519, 32 bytes."""

    party: str
    old: bytes
    new: bytes
    signed: SignedRotation
    _mint: InitVar[object] = None  # kept nowhere, so that `replace` cannot carry it into a changed copy

    def __post_init__(self, _mint: object) -> None:
        if _mint is not _MINT:
            raise TypeError("VerifiedRotation is made by verify_rotation only")


def sign_rotation(party: str, old: PartyKey, new: PartyKey, at: int) -> SignedRotation:
    """The party's statement; `at` in seconds since 1970."""
    said = KeyRotation(party=party, old=old.fingerprint, new=new.public.hex(), at=at)
    document = json_bytes(said.model_dump(mode="json"))
    signatures = {"old_signature": old.sign(OLD_LABEL, document), "new_signature": new.sign(NEW_LABEL, document)}
    return SignedRotation(
        document=base64.b64encode(document).decode(),
        **{name: base64.b64encode(signature).decode() for name, signature in signatures.items()},
    )


def verify_rotation(signed: SignedRotation, *, party: str, old: bytes) -> VerifiedRotation:
    """Check both signatures, then that the statement is `party`'s and about its key `old` (raw).

    Raises:
        BadRequest: `malformed-rotation`, `malformed-base64`, `not-canonical`. VerificationFailed: `bad-signature`, `rotation-mismatch`.
    """
    document = decoded(signed.document)
    verify(old, OLD_LABEL, document, decoded(signed.old_signature))
    try:
        said = KeyRotation.model_validate(json_value(document))
    except ValidationError:
        raise BadRequest("the statement of a key's rotation is malformed", code="malformed-rotation") from None
    if json_bytes(said.model_dump(mode="json")) != document:
        raise BadRequest("the statement of a key's rotation is not in canonical form", code="not-canonical")
    new = bytes.fromhex(said.new)
    verify(new, NEW_LABEL, document, decoded(signed.new_signature))
    if (said.party, said.old) != (party, fingerprint(old)):
        raise VerificationFailed(
            "the statement is about another party or another key", code="rotation-mismatch",
            expected=f"{party} {fingerprint(old)}", got=f"{said.party} {said.old}",
        )  # fmt: skip
    check_new_key(new, old)
    return VerifiedRotation(party, old, new, signed, _MINT)


def check_new_key(new: bytes, old: bytes) -> None:
    """That a party's key changes at all; both raw. Raises: BadRequest `malformed-rotation`."""
    if new == old:
        raise BadRequest("the new key is the old one", code="malformed-rotation", remedy="Make a new key.")


def moved_keys(old: Manifest, says: Predecessor, keys: Mapping[str, str]) -> dict[str, str]:
    """Parties of an ended session that have another key in `keys` (fingerprints by name) than in its roster or as contributors, with that
    older key. A name is no proof of who has it: whether the new key came from the older one is what `came_by_rotation` tells."""
    before = {entry.holder: entry.key for entry in old.roster} | {one.holder: one.key for one in says.contributors}
    return {party: key for party, key in before.items() if keys.get(party, key) != key}


def came_by_rotation(history: Iterable[Mapping[str, Any]], party: str, key: str, before: str) -> bool:
    """Whether a party's key came from the one `before` (fingerprints, hex) by its own signed rotations alone, each verified here.

    `history`: the party's keys as the orchestrator lists them; nothing in it is believed but what the older key signed.
    """
    known = {str(one.get("key")): one for one in history}
    while key != before:
        row = known.pop(key, None)  # each but once: a circle ends
        older = known.get(str(row.get("previous"))) if row is not None else None
        if row is None or older is None or not row.get("statement"):
            return False
        try:
            signed = SignedRotation.model_validate(row["statement"])
            said = verify_rotation(signed, party=party, old=bytes.fromhex(older["public_key"]))
        except (GputError, ValidationError, KeyError, TypeError, ValueError):
            return False
        if fingerprint(said.new) != key:
            return False
        key = fingerprint(said.old)
    return True
