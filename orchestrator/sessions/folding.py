"""A session's state out of its row and the facts of its verified journal: what was signed is verified again. Knows no storage, no key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.sessions.state import SessionState
from orchestrator.sessions.submission import read_manifest
from shared.attestation.approvals import verify_approval
from shared.attestation.owners import verify_owner
from shared.crypto.signing import fingerprint
from shared.errors import VerificationFailed
from shared.service.journal import Fact
from shared.wire.visit import Signed

_DECISIONS = {"session.approved", "session.refused", "session.vetoed"}


def fold(row: Mapping[Any, Any], facts: list[Fact]) -> SessionState:
    """A session's state from its row and its verified facts.

    1. The journal's first fact names manifest digest and owner's key; the row's manifest and key must be those.
    2. The owner's signature covers the manifest's bytes.
    3. Every approval, refusal and veto carries a roster holder's signature over this manifest.

    Raises:
        VerificationFailed: any of these fails.
    """
    document, owner_key = bytes(row["manifest"]), bytes.fromhex(row["owner_key"])
    if not facts or facts[0].kind != "session.submitted":
        raise VerificationFailed(
            f"The journal of {row['id']} does not begin with its submission", code="journal-tampered"
        )
    manifest, first = read_manifest(document), facts[0].body
    if manifest.digest().hex() != first["manifest"] or fingerprint(owner_key) != first["owner_key"]:
        raise VerificationFailed(f"The stored manifest of {row['id']} is not the submitted one", code="manifest-changed",
                                 expected=first["manifest"], got=manifest.digest().hex())  # fmt: skip
    verify_owner(document, owner_key, bytes(row["signature"]))
    state = SessionState(row["id"], manifest, first["owner"], first["gpu"])
    for fact in facts:
        if fact.kind in _DECISIONS:
            signed = Signed(document=fact.body["document"], signature=fact.body["signature"])
            key = bytes.fromhex(fact.body["public_key"])
            said = verify_approval(signed, key, session=row["id"], manifest=manifest).body()
            if said != {name: fact.body.get(name) for name in said}:
                raise VerificationFailed(
                    f"A decision in {row['id']}'s journal is not what its holder signed", code="journal-tampered"
                )
        state.apply(fact.kind, fact.body, fact.at)
    return state
