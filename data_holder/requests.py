"""Verification of what is approved: manifest bytes, program bytes, this holder's own signature. Knows no storage and no HTTP.

Everything here is verified again from bytes each time it is loaded (design 4.3, "storage is hostile").
"""

from __future__ import annotations

import base64
from contextlib import suppress
from dataclasses import InitVar, dataclass
from functools import lru_cache

from pydantic import ValidationError

from data_holder.identity import OwnKeys
from data_holder.protocol.state import SessionState
from shared.attestation.approvals import LABEL
from shared.attestation.owners import VerifiedOwner, verify_owner
from shared.canonical import json_bytes, json_value, sha256, sha384
from shared.claims.archive import open_archive
from shared.claims.manifest import Manifest, parse_manifest
from shared.claims.program import ProgramManifest
from shared.claims.shape import first_fault
from shared.crypto.signing import PartyKey, verify
from shared.errors import InvalidManifest, InvalidProgram, NotPermitted, VerificationFailed
from shared.wire.visit import Approval, Signed

_MINT = object()


@dataclass(frozen=True)
class VerifiedManifest:
    """A manifest whose bytes are canonical and which names this holder with this holder's key. Made by `verify_manifest`."""

    manifest: Manifest
    data: bytes
    digest: str

    def __init__(self, manifest: Manifest, data: bytes, digest: str, mint: object) -> None:
        if mint is not _MINT:
            raise TypeError("only verify_manifest makes a VerifiedManifest")
        for name, value in (("manifest", manifest), ("data", data), ("digest", digest)):
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Approved:
    """What this holder agreed to, verified from its own signature. Made by `verify_approved`."""

    request: VerifiedManifest
    dataset: str
    records: int
    record_bytes: int
    dataset_root: str
    _mint: InitVar[object] = None  # kept nowhere, so that `replace` cannot carry it into a changed copy

    def __post_init__(self, _mint: object) -> None:
        if _mint is not _MINT:
            raise TypeError("only verify_approved makes an Approved")


def verify_manifest(data: bytes, holder: str, keys: OwnKeys) -> VerifiedManifest:
    """Check a manifest's exact bytes for this holder.

    Raises:
        InvalidManifest: schema, or not the canonical form (two byte strings must never mean one manifest).
        NotPermitted: the roster does not name this holder, or names it with another key.
    """
    return _verified(data, holder, frozenset(keys.publics), keys.current.fingerprint)


@lru_cache(maxsize=16)
def _verified(data: bytes, holder: str, known: frozenset[str], current: str) -> VerifiedManifest:
    # Pure in its arguments, so the same bytes need not be parsed again at every offer; other bytes are another entry.
    try:
        manifest = parse_manifest(data)
    except ValidationError as error:
        raise InvalidManifest(first_fault(error, "manifest")) from None
    if manifest.canonical() != data:
        raise InvalidManifest("the manifest is not in canonical form (RFC 8785)", code="not-canonical")
    entry = next((entry for entry in manifest.roster if entry.holder == holder), None)
    if entry is None:
        raise NotPermitted(f"the roster does not name {holder!r}", code="not-in-roster")
    if entry.key not in known:
        raise NotPermitted(
            f"the roster names {holder!r} with another key", code="key-mismatch",
            expected=current, got=entry.key, remedy="Enrol this holder's key again at the orchestrator",
        )  # fmt: skip
    return VerifiedManifest(manifest, data, sha256(data).hex(), _MINT)


def program_from_archive(archive: bytes, digest: str) -> bytes:
    """The program manifest's exact bytes out of a fetched archive, after hashing it again.

    Raises:
        InvalidProgram: the archive is malformed. VerificationFailed: it is another program than the manifest names.
    """
    opened = open_archive(archive)
    if opened.digest.hex() != digest:
        raise VerificationFailed(
            "the orchestrator served another program than the manifest names", code="program-mismatch",
            expected=digest, got=opened.digest.hex(),
        )  # fmt: skip
    return opened.manifest_bytes


def verify_program(data: bytes, digest: str) -> ProgramManifest:
    """A stored program manifest, hashed again. Raises: VerificationFailed, InvalidProgram."""
    if sha384(data).hex() != digest:
        raise VerificationFailed("the stored program manifest was changed", code="program-mismatch", expected=digest)
    try:
        return ProgramManifest.model_validate(json_value(data))
    except ValidationError as error:
        raise InvalidProgram(f"program manifest: {error.error_count()} faults") from None


def verify_signer(state: SessionState) -> VerifiedOwner | None:
    """Whose manifest it is, verified again from the signature; None: no orchestrator said so. Raises: VerificationFailed."""
    return None if state.owner is None else verify_owner(state.manifest, *state.owner)


def sign_decision(key: PartyKey, approval: Approval) -> Signed:
    """This holder's signed word, as the exact bytes that travel."""
    document = json_bytes(approval.model_dump(mode="json"))
    signature = key.sign(LABEL, document)
    return Signed(document=base64.b64encode(document).decode(), signature=base64.b64encode(signature).decode())


def verify_decision(state: SessionState, keys: OwnKeys) -> Approval | None:
    """This holder's newest decision on the session, verified from its signature; None while undecided.

    Raises:
        VerificationFailed: the stored decision is not this holder's, or not about this session.
    """
    if state.decision is None:
        return None
    _verify_own(keys, state.decision.document, state.decision.signature)
    approval = Approval.model_validate(json_value(state.decision.document))
    if approval.session != state.session:
        raise VerificationFailed("the stored decision is about another session", code="decision-mismatch")
    return approval


def _verify_own(keys: OwnKeys, document: bytes, signature: bytes) -> None:
    """Signed by the key of now or one of before. Raises: VerificationFailed."""
    for public in keys.former.values():
        with suppress(VerificationFailed):
            verify(public, LABEL, document, signature)
            return
    verify(keys.current.public, LABEL, document, signature)


def verify_approved(state: SessionState, holder: str, keys: OwnKeys) -> Approved:
    """What an offer may rely on: an approval by this holder's key of exactly these manifest bytes, not vetoed since.

    Raises:
        NotPermitted: `not-approved` or `vetoed`. VerificationFailed: stored bytes were changed.
    """
    approval = verify_decision(state, keys)
    if approval is None or approval.decision == "refuse":
        raise NotPermitted(f"this holder has not approved session {state.session}", code="not-approved")
    if approval.decision == "veto":
        raise NotPermitted(f"this holder has vetoed session {state.session}", code="vetoed")
    request = verify_manifest(state.manifest, holder, keys)
    if approval.manifest != request.digest or approval.holder != holder:
        raise VerificationFailed(
            "the approval names another manifest than the stored one", code="decision-mismatch",
            expected=approval.manifest, got=request.digest,
        )  # fmt: skip
    dataset = state.decision.dataset if state.decision else None
    records, record_bytes, root = approval.records, approval.record_bytes, approval.dataset_root
    if dataset is None or records is None or record_bytes is None or root is None:
        raise VerificationFailed("the approval names no dataset", code="decision-mismatch")
    return Approved(request, dataset, records, record_bytes, root, _MINT)
