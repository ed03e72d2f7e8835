"""The holders' approvals in a folder of receipts, verified offline: which dataset each of them committed to. Asks no service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shared.attestation.approvals import verify_approval
from shared.claims.manifest import Manifest
from shared.errors import VerificationFailed
from shared.wire.visit import Approval, Signed


def approved_datasets(items: Iterable[Mapping[str, Any]], session: str, manifest: Manifest) -> dict[str, Approval]:
    """Each holder's approval, believed from its own signature over this session and manifest.

    `items` are the API's views of decisions. A later refusal or veto takes nothing away from the visits before it.

    Raises:
        BadRequest, VerificationFailed, NotPermitted: a decision that its roster key did not sign, or that names another manifest.
        VerificationFailed: `dataset-changed`, one holder approved two datasets.
    """
    found: dict[str, Approval] = {}
    for item in items:
        if item["decision"] != "approve":
            continue
        signed = Signed(document=item["document"], signature=item["signature"])
        said = verify_approval(signed, bytes.fromhex(item["public_key"]), session=session, manifest=manifest).approval
        before = found.setdefault(said.holder, said)
        if before.dataset_root != said.dataset_root:
            raise VerificationFailed(
                f"{said.holder} approved two datasets", code="dataset-changed",
                expected=str(before.dataset_root), got=str(said.dataset_root),
            )  # fmt: skip
    return found


def approval_of(approved: Mapping[str, Approval], holder: str) -> Approval:
    """The holder's approval. Raises: VerificationFailed `not-approved`: there is none, so no visit of it may be."""
    if holder not in approved:
        raise VerificationFailed(f"{holder} never approved the session", code="not-approved")
    return approved[holder]
