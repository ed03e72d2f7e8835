"""Receipts in a folder: fetch them, and verify them offline with nothing but what is in the folder.

Knows the API's views and the formats of `shared`; asks no service while it verifies.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gput.approvals import SignedFor, signed_for
from gput.client import AsyncClient
from gput.receipt_folder import (
    APPROVALS,
    LEAVES,
    SESSION,
    check_as_saved,
    not_as_saved,
    read_lines,
    read_session,
    write,
)
from gput.receipt_heads import Seen, check_memories, check_seen
from gput.receipt_keys import Keyring, believed_keys, named
from gput.receipt_leaves import Leaves
from gput.receipt_privacy import check_spent_once, spent_by_holder
from shared.claims.receipt import DeviceStatement, Receipt
from shared.crypto.tree_head import TreeHead, verify_tree_head
from shared.errors import VerificationFailed
from shared.names import TravelMode


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


def verify(folder: Path, seen: Iterable[Seen] = ()) -> Verified:
    """Verify everything in `folder`, in numbered steps; what fails is named by its file and its number there.

    1. every file is as it was saved; 2. every key: quote over its runtime data, GPU evidence and its nonce, statement key under
    the device's leaf; 3. the log's signed head; 4. every leaf by itself: a receipt's two signatures (orchestrator, device),
    that receipt and statement say the same, that the visit's records are proven within the one dataset that its holder signed
    for, the privacy spent, and its place under the signed root; 5. every head that a holder remembered at a restart, and those in `seen`,
    are of this very log; 6. the chain of model digests has no gap, and no visit's privacy was spent twice.

    An altered log is gone through first, so that the leaf is named by what is wrong with it; steps 2 to 6 do not rely on step 1.

    Raises:
        VerificationFailed: naming file, key, approval or leaf, and the check. BadRequest: the folder is incomplete.
    """
    log_altered = check_as_saved(folder)
    session = read_session(folder)
    keys = believed_keys(folder, session)
    head = _check_head(session, keys)
    book = signed_for(session, read_lines(folder, APPROVALS))
    found = _check_leaves(folder, head, keys, book)
    if log_altered:
        raise not_as_saved(LEAVES)
    check_memories(found.events, found.hashes, book, LEAVES)
    for one in seen:
        check_seen(found.hashes, one, "you were shown")
    _check_models(found.receipts)
    check_spent_once(found.receipts, book.manifest, LEAVES)
    return _summed_up(found, head, book)


def _check_head(session: dict[str, Any], keys: Keyring) -> TreeHead:
    head = session["head"]
    with named(f"{SESSION}: log head"):
        key = keys.named_by(bytes.fromhex(head["key"]))
        tree = TreeHead(session["session"], head["size"], bytes.fromhex(head["root"]), int(head["time"]))
        return verify_tree_head(tree, key, b64decode(head["signature"])).head


def _check_leaves(folder: Path, head: TreeHead, keys: Keyring, book: SignedFor) -> Leaves:
    found = Leaves(head, keys, book)
    lines = read_lines(folder, LEAVES)
    for index, line in enumerate(lines):
        with named(f"{LEAVES}: leaf {index}"):
            found.take(line)
    if len(lines) != head.size:
        raise VerificationFailed(f"{LEAVES} does not hold all leaves of the signed log", code="log-mismatch",
                                 expected=str(head.size), got=str(len(lines)))  # fmt: skip
    return found


def _summed_up(found: Leaves, head: TreeHead, book: SignedFor) -> Verified:
    receipts = found.receipts
    holders: dict[str, int] = {}
    for receipt, _ in receipts.values():
        holders[receipt.holder] = holders.get(receipt.holder, 0) + 1
    return Verified(
        session=book.session,
        leaves=len(found.hashes),
        receipts=len(receipts),
        backends=tuple(sorted({statement.backend for _, statement in receipts.values()})),
        travel_mode=book.manifest.travel_mode,
        holders=holders,
        datasets={name: str(said.dataset_root) for name, said in book.approved.items()},
        records=sum(statement.records for _, statement in receipts.values()),
        privacy_spent=spent_by_holder(receipts),
        root=head.root.hex(),
    )


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
