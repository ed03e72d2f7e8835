"""What the parties signed before anything ran, verified offline: manifest, and each holder's word for one dataset. Asks no service."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Any

from gput.receipt_folder import APPROVALS, SESSION, parse_line
from gput.receipt_keys import named
from gput.receipt_known import Dataset, SignedFor
from shared.attestation.approvals import verify_approval
from shared.claims.accountant import over_budget
from shared.claims.manifest import parse_manifest
from shared.errors import VerificationFailed
from shared.wire.visit import Approval, Signed


def signed_for(session: Mapping[str, Any], lines: Iterable[bytes]) -> SignedFor:
    """The manifest, and each holder's approval, believed from its own signature over this session and manifest.

    `lines` are those of the folder's decisions. A later refusal or veto takes nothing away from the visits before it.

    Raises:
        VerificationFailed: naming the decision: its roster key did not sign it, it names another manifest or says otherwise than its
            line, (`dataset-changed`) its holder approved two datasets, or (`privacy-budget`) the plan spends too much of its records.
    """
    with named(f"{SESSION}: manifest"):
        manifest = parse_manifest(b64decode(session["manifest"]["document"], validate=True))
        book = SignedFor(session["session"], manifest, manifest.digest().hex())
    for number, line in enumerate(lines):
        with named(f"{APPROVALS}: approval {number}"):
            _take(book, parse_line(line))
    return book


def check_quorum(book: SignedFor) -> None:
    """As many holders approved as the manifest asks for before anything of it runs. Raises: VerificationFailed `quorum-lost`."""
    if len(book.approved) < book.quorum:
        raise VerificationFailed(
            f"{APPROVALS}: something was trained though too few holders approved", code="quorum-lost",
            expected=f"at least {book.quorum}", got=str(len(book.approved)),
        )  # fmt: skip


def _take(book: SignedFor, item: Mapping[str, Any]) -> None:
    if item["decision"] != "approve" and item["public_key"] is None:
        return  # of who never approved no key is shown, and nothing is taken
    signed, key = Signed(document=item["document"], signature=item["signature"]), bytes.fromhex(item["public_key"])
    said = verify_approval(signed, key, session=book.session, manifest=book.manifest).approval
    if said.decision != item["decision"]:
        raise VerificationFailed(
            f"{said.holder} signed another decision", code="mismatch", expected=said.decision, got=str(item["decision"])
        )
    if said.decision == "approve":
        _approved(book, said, key)


def _approved(book: SignedFor, said: Approval, key: bytes) -> None:
    found = Dataset(str(said.dataset_root), int(said.records or 0))
    before = book.approved.setdefault(said.holder, found)
    if before.root != found.root:
        raise VerificationFailed(
            f"{said.holder} approved two datasets", code="dataset-changed", expected=before.root, got=found.root
        )
    if too_much := over_budget(book.manifest, said.holder, found.records):
        raise VerificationFailed(f"this approval cannot stand: {too_much}", code="privacy-budget")
    book.keys[said.holder] = key
    book.approved_at[said.holder] = min(float(said.at), book.approved_at.get(said.holder, float(said.at)))
