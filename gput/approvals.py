"""What the parties signed before anything ran, verified offline: manifest, and each holder's word for one dataset. Asks no service."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Any

from gput.receipt_folder import APPROVALS, SESSION, parse_line
from gput.receipt_keys import named
from gput.receipt_known import Dataset, SignedFor
from shared.attestation.approvals import verify_approval
from shared.claims.manifest import parse_manifest
from shared.errors import VerificationFailed
from shared.wire.visit import Signed


def signed_for(session: Mapping[str, Any], lines: Iterable[bytes]) -> SignedFor:
    """The manifest, and each holder's approval, believed from its own signature over this session and manifest.

    `lines` are those of the folder's decisions. A later refusal or veto takes nothing away from the visits before it.

    Raises:
        VerificationFailed: naming the decision: its roster key did not sign it, it names another manifest, or (`dataset-changed`) its
            holder approved two datasets.
    """
    with named(f"{SESSION}: manifest"):
        manifest = parse_manifest(b64decode(session["manifest"]["document"], validate=True))
        book = SignedFor(session["session"], manifest, manifest.digest().hex())
    for number, line in enumerate(lines):
        with named(f"{APPROVALS}: approval {number}"):
            _take(book, parse_line(line))
    return book


def _take(book: SignedFor, item: Mapping[str, Any]) -> None:
    if item["decision"] != "approve":
        return
    signed, key = Signed(document=item["document"], signature=item["signature"]), bytes.fromhex(item["public_key"])
    said = verify_approval(signed, key, session=book.session, manifest=book.manifest).approval
    found = Dataset(str(said.dataset_root), int(said.records or 0))
    before = book.approved.setdefault(said.holder, found)
    book.keys[said.holder] = key
    book.approved_at.append(float(said.at))
    if before.root != found.root:
        raise VerificationFailed(
            f"{said.holder} approved two datasets", code="dataset-changed", expected=before.root, got=found.root
        )
