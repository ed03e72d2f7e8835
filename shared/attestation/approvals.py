"""A holder's approval, refusal or veto: signed, and verified against the manifest's roster whenever it is loaded. Knows no session's state.

Pure: the orchestrator, the holder itself and whoever reads receipts offline hold a decision to the same rules.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from shared.attestation.one_time_keys import decoded
from shared.canonical import json_bytes, json_value
from shared.claims.manifest import Manifest
from shared.claims.profile import LEAST_RECORDS, DatasetProfile
from shared.claims.records import ITEM_BYTES
from shared.claims.shape import first_fault
from shared.crypto.signing import fingerprint, verify
from shared.errors import BadRequest, NotPermitted, VerificationFailed
from shared.wire.visit import Approval, Signed

LABEL = "gput/approval"
_STATED = ("records", "record_bytes", "dataset_root")


@dataclass(frozen=True)
class VerifiedApproval:
    """An approval whose signature is the roster's holder's. Only `verify_approval` makes one."""

    approval: Approval
    signed: Signed
    public_key: bytes

    def body(self) -> dict[str, Any]:
        """As the journal keeps it: enough to verify it again without any other row."""
        return {
            "holder": self.approval.holder, "document": self.signed.document, "signature": self.signed.signature,
            "public_key": self.public_key.hex(), "reason": self.approval.reason,
            **{name: getattr(self.approval, name) for name in _STATED},
            "profile": self.approval.profile and self.approval.profile.model_dump(mode="json"),
        }  # fmt: skip


def verify_approval(signed: Signed, public_key: bytes, *, session: str, manifest: Manifest) -> VerifiedApproval:
    """Check one approval document.

    1. The key is the one the manifest's roster names for that holder.
    2. The signature covers the document's exact bytes.
    3. The document speaks of this session and this manifest.
    4. An approval states its dataset (number and bytes of records, root); another decision states none.
    5. Its profile, if it has one, is of records of that length, and says nothing of records that are too few to be spoken of.

    Raises:
        BadRequest: not an approval, or it commits to nothing. VerificationFailed: any of the above fails.
        NotPermitted: not in the roster.
    """
    document = decoded(signed.document)
    approval = _parse(document)
    verify(roster_key(manifest, approval.holder, public_key), LABEL, document, decoded(signed.signature))
    if approval.session != session or approval.manifest != manifest.digest().hex():
        raise VerificationFailed(
            "The approval speaks of another session or another manifest", code="approval-mismatch",
            remedy="Read the manifest again and sign its digest.",
            expected=f"{session} {manifest.digest().hex()}", got=f"{approval.session} {approval.manifest}",
        )  # fmt: skip
    return VerifiedApproval(approval, signed, public_key)


def roster_key(manifest: Manifest, holder: str, public_key: bytes) -> bytes:
    """`public_key` (raw), if it is the one that the manifest's roster names for `holder`.

    Raises:
        NotPermitted: not in the roster. VerificationFailed: another key.
    """
    entry = next((e for e in manifest.roster if e.holder == holder), None)
    if entry is None:
        raise NotPermitted(f"{holder} is not in this session's roster", code="not-in-roster")
    if fingerprint(public_key) != entry.key:
        raise VerificationFailed(f"The key is not the one that the roster names for {holder}", code="key-mismatch",
                                 expected=entry.key, got=fingerprint(public_key))  # fmt: skip
    return public_key


def _parse(document: bytes) -> Approval:
    try:
        approval = Approval.model_validate(json_value(document))
    except ValidationError as error:
        raise BadRequest(f"The approval is wrong: {first_fault(error)}", code="malformed-approval") from None
    if json_bytes(approval.model_dump(mode="json")) != document:
        raise BadRequest("The approval is not in canonical form", code="not-canonical")
    states = {getattr(approval, name) is not None for name in _STATED}
    if states != {approval.decision == "approve"}:
        raise BadRequest(
            "An approval states records, record_bytes and dataset_root, and no other decision does",
            code="malformed-approval", remedy="Approve with a data holder of this version.",
        )  # fmt: skip
    _check_profile(approval)
    return approval


def _check_profile(approval: Approval) -> None:
    """What an honest holder never states. Raises: BadRequest: `malformed-profile`."""
    profile = approval.profile
    if profile is None:
        return
    if approval.decision != "approve" or approval.records is None:
        why = "only an approval states a dataset's profile"
    elif profile.measured and approval.records < LEAST_RECORDS:
        why = f"a dataset of fewer than {LEAST_RECORDS} records states no sizes and no classes that are there"
    elif _record_bytes(profile) != approval.record_bytes:
        why = "the profile's fields do not add up to the record that the approval states"
    else:
        return
    raise BadRequest(f"The approval cannot stand: {why}", code="malformed-profile",
                     remedy="Approve with a data holder of this version.")  # fmt: skip


def _record_bytes(profile: DatasetProfile) -> int:
    return sum(math.prod(field.shape) * ITEM_BYTES[field.dtype] for field in profile.fields)
