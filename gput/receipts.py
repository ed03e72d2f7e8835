"""Receipts in a folder: fetch them, and verify them offline with nothing but what is in the folder.

Knows the API's views and the formats of `shared`; asks no service while it verifies.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gput.approvals import approval_of, approved_datasets
from gput.client import AsyncClient
from gput.receipt_folder import (
    KEYS,
    LEAVES,
    SESSION,
    altered,
    not_as_saved,
    parse_line,
    read_lines,
    read_session,
    write,
)
from gput.receipt_keys import Signer, named, signers_of
from gput.receipt_privacy import check_privacy, check_spent_once, spent_by_holder
from shared.canonical import cbor_value, sha256
from shared.claims.manifest import Manifest, parse_manifest
from shared.claims.receipt import DeviceStatement, Receipt
from shared.crypto.cose import peek_kid, verify1
from shared.crypto.tree_head import TreeHead, verify_tree_head
from shared.errors import VerificationFailed
from shared.names import TravelMode
from shared.protocol.merkle import leaf_hash, verify_inclusion
from shared.wire.visit import Approval

COSE_SIGN1_TAG = b"\xd2"


async def save(client: AsyncClient, session: str, folder: Path, trust: Path) -> None:
    """Fetch log, keys, manifest and approvals of a session into `folder`, with a copy of the trust folder's public files."""
    head = await client.get(f"sessions/{session}/log/head")
    bundle = {
        "session": session,
        "head": head,
        # What was appended after the head was signed is neither proven nor disproven yet.
        "leaves": await client.items(f"sessions/{session}/log/leaves", size=head["size"]),
        "keys": await client.items(f"sessions/{session}/keys"),
        "manifest": await client.get(f"sessions/{session}/manifest"),
        "approvals": await client.items(f"sessions/{session}/approvals"),
    }
    await asyncio.to_thread(write, folder, bundle, trust)


@dataclass(frozen=True)
class Verified:
    """The outcome: how many leaves and receipts hold, and what they add up to. `datasets`: root that each holder approved.
    `privacy_spent`: epsilon by holder, empty without privacy."""

    session: str
    leaves: int
    receipts: int
    backends: tuple[str, ...]
    travel_mode: TravelMode
    holders: dict[str, int]
    datasets: dict[str, str]
    records: int
    privacy_spent: dict[str, float]
    root: str


def verify(folder: Path) -> Verified:
    """Verify everything in `folder`, in numbered steps; what fails is named by its file and its number there.

    1. every file is as it was saved; 2. every key: quote over its runtime data, GPU evidence and its nonce, statement key under
    the device's leaf; 3. the log's signed head; 4. every leaf by itself: a receipt's two signatures (orchestrator, device),
    that receipt and statement say the same, that the visit's records are proven within the one dataset that its holder signed
    for, the privacy spent, and its place under the signed root; 5. the chain of model digests has no gap, and no visit's privacy was spent
    twice.

    An altered file with lines is gone through first, so that the line is named; steps 2 to 5 do not rely on step 1.

    Raises:
        VerificationFailed: naming file, key or leaf, and the check. BadRequest: the folder is incomplete.
    """
    changed = altered(folder)
    for name in changed:
        if name not in (KEYS, LEAVES):
            raise not_as_saved(name)
    session = read_session(folder)
    signers = signers_of(folder, session)
    if KEYS in changed:
        raise not_as_saved(KEYS)
    head = _check_head(session, signers)
    book = _signed_for(session)
    receipts, leaves = _check_leaves(folder, session["session"], head, signers, book)
    if LEAVES in changed:
        raise not_as_saved(LEAVES)
    _check_models(receipts)
    check_spent_once(receipts, book.manifest, LEAVES)
    return _summed_up(session["session"], leaves, head, receipts, book)


@dataclass(frozen=True)
class _SignedFor:
    """What the parties signed before anything ran: the manifest, and each holder's approval with its dataset's root."""

    manifest: Manifest
    approved: dict[str, Approval]


def _signed_for(session: dict[str, Any]) -> _SignedFor:
    with named(f"{SESSION}: manifest"):
        manifest = parse_manifest(b64decode(session["manifest"]["document"], validate=True))
    with named(f"{SESSION}: approvals"):
        return _SignedFor(manifest, approved_datasets(session["approvals"], session["session"], manifest))


def _summed_up(
    session: str, leaves: int, head: TreeHead, receipts: dict[int, tuple[Receipt, DeviceStatement]], book: _SignedFor
) -> Verified:
    holders: dict[str, int] = {}
    for receipt, _ in receipts.values():
        holders[receipt.holder] = holders.get(receipt.holder, 0) + 1
    return Verified(
        session=session,
        leaves=leaves,
        receipts=len(receipts),
        backends=tuple(sorted({statement.backend for _, statement in receipts.values()})),
        travel_mode=book.manifest.travel_mode,
        holders=holders,
        datasets={name: str(said.dataset_root) for name, said in book.approved.items()},
        records=sum(statement.records for _, statement in receipts.values()),
        privacy_spent=spent_by_holder(receipts),
        root=head.root.hex(),
    )


def is_receipt(leaf: bytes) -> bool:
    """Whether a leaf is a receipt (tagged COSE_Sign1, RFC 9052 section 2) and no event (a map): its bytes say so, not the bundle."""
    return leaf[:1] == COSE_SIGN1_TAG


def _check_head(session: dict[str, Any], signers: dict[str, Signer]) -> TreeHead:
    head = session["head"]
    with named(f"{SESSION}: log head"):
        key = bytes.fromhex(head["key"])
        if key not in {signer.signing_key for signer in signers.values()}:
            raise VerificationFailed("signed by a key that no attested orchestrator has", code="unknown-key")
        tree = TreeHead(session["session"], head["size"], bytes.fromhex(head["root"]), int(head["time"]))
        return verify_tree_head(tree, key, b64decode(head["signature"])).head


def _check_leaves(
    folder: Path, session: str, head: TreeHead, signers: dict[str, Signer], book: _SignedFor
) -> tuple[dict[int, tuple[Receipt, DeviceStatement]], int]:
    """Receipts by their leaf's number, and how many leaves there are."""
    receipts: dict[int, tuple[Receipt, DeviceStatement]] = {}
    lines = read_lines(folder, LEAVES)
    for index, line in enumerate(lines):
        with named(f"{LEAVES}: leaf {index}"):
            item = parse_line(line)
            leaf = _leaf(index, item)
            if is_receipt(leaf):
                receipts[index] = _check_receipt(leaf, signers, session, book)
            _check_place(head, index, leaf, item["path"])
    if len(lines) != head.size:
        raise VerificationFailed(f"{LEAVES} does not hold all leaves of the signed log", code="log-mismatch",
                                 expected=str(head.size), got=str(len(lines)))  # fmt: skip
    return receipts, len(lines)


def _leaf(index: int, item: dict[str, Any]) -> bytes:
    """A leaf's bytes; its line has the four fields only, and its label says what the bytes are."""
    leaf = b64decode(item["leaf"], validate=True)
    says = {"index": index, "kind": "receipt" if is_receipt(leaf) else "event", "leaf": b64encode(leaf).decode()}
    label = {name: value for name, value in item.items() if name != "path"}
    if label != says:
        differs = next(name for name in (*says, *label) if label.get(name) != says.get(name))
        raise VerificationFailed(f"its {differs} is not what its bytes say", code="mismatch",
                                 expected=str(says.get(differs)), got=str(label.get(differs)))  # fmt: skip
    return leaf


def _check_place(head: TreeHead, index: int, leaf: bytes, path: list[str]) -> None:
    nodes = [bytes.fromhex(node) for node in path]
    if [node.hex() for node in nodes] != path:
        raise VerificationFailed("its path is not written as hashes are", code="not-canonical")
    try:
        verify_inclusion(leaf_hash(leaf), index, head.size, nodes, head.root)
    except VerificationFailed as error:
        raise VerificationFailed(
            f"not what the signed log holds at this place ({error.detail})", code="log-mismatch"
        ) from None


def _check_receipt(
    leaf: bytes, signers: dict[str, Signer], session: str, book: _SignedFor
) -> tuple[Receipt, DeviceStatement]:
    receipt = Receipt.model_validate(cbor_value(_payload(leaf, signers)))
    signer = signers.get(receipt.orchestrator_runtime_data)
    if signer is None:
        raise VerificationFailed("the receipt names runtime data that no key introduces", code="unknown-key")
    statement = DeviceStatement.model_validate(cbor_value(verify1(receipt.statement, signer.statement_key)))
    said = approval_of(book.approved, receipt.holder)
    expected = {
        "session": (session, receipt.session, statement.session),
        "manifest": (book.manifest.digest().hex(), receipt.manifest),
        "dataset root": (said.dataset_root, receipt.dataset_root, statement.dataset_root),
        "dataset records": (said.records, statement.dataset_records),
        "visit": (receipt.visit, statement.visit),
        "travel mode": (book.manifest.travel_mode, statement.travel_mode),
        "epoch": (receipt.epoch, statement.epoch),
        "holder": (receipt.holder, statement.holder),
        "gpu evidence": (signer.gpu_evidence, receipt.gpu_evidence),
        "device": (signer.device, statement.device),
        "backend": (signer.backend, statement.backend),
    }
    for name, values in expected.items():
        if len(set(values)) != 1:
            raise VerificationFailed(f"{name} differs", code="mismatch", expected=str(values[0]), got=str(values[1:]))
    check_privacy(receipt, statement, book.manifest, said.records or 0)
    if statement.scrubbed_bytes < statement.length:
        raise VerificationFailed("fewer bytes scrubbed than were written", code="scrub")
    if receipt.fence_epoch <= receipt.epoch:
        raise VerificationFailed("the fence is not after the visit", code="fence")
    return receipt, statement


def _payload(leaf: bytes, signers: dict[str, Signer]) -> bytes:
    """The payload under the believed key that the leaf names.

    Not only the key of the visit's own channel counts: an orchestrator that restarts after the training closes the visit in its next life.
    """
    kid = peek_kid(leaf)
    for signer in signers.values():
        if kid in (signer.signing_key, sha256(signer.signing_key)):
            return verify1(leaf, signer.signing_key)
    raise VerificationFailed("signed by a key that no attested orchestrator has", code="unknown-key")


def _check_models(receipts: dict[int, tuple[Receipt, DeviceStatement]]) -> None:
    """Each visit starts from the model the last committed one left; a visit after a restore repeats an earlier model."""
    known: set[str] = set()
    for index, (receipt, statement) in receipts.items():
        if known and statement.model_before not in known:
            raise VerificationFailed(
                f"{LEAVES}: leaf {index}: visit {receipt.visit} starts from a model that no earlier receipt left",
                code="model-gap",
            )
        known |= {statement.model_before}
        if receipt.outcome == "closed":
            known |= {statement.model_after}
