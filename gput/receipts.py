"""Receipts in a folder: fetch them, and verify them offline with nothing but what is in the folder.

Knows the API's views and the formats of `shared`; asks no service while it verifies.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gput.api import Api
from gput.approvals import check_quorum, signed_for
from gput.receipt_chain import check_models, check_spent_once, spent_by_holder
from gput.receipt_crew import held
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
from gput.receipt_keys import believed_keys, named
from gput.receipt_known import Keyring, Known
from gput.receipt_leaves import HeldReceipt, check_leaf
from gput.receipt_mixtures import check_mixtures
from gput.receipt_stops import check_once
from gput.receipt_successor import check_succession
from gput.receipt_tours import check_accumulated, tour_ends
from shared.canonical import cbor_value
from shared.crypto.tree_head import TreeHead, verify_tree_head
from shared.errors import VerificationFailed
from shared.names import TravelMode


async def save(client: Api, session: str, folder: Path, trust: Path) -> None:
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
    `privacy_spent`: epsilon by holder, empty without privacy. `models`: what it may have ended with (`check_models`). `predecessor`: the
    session that it goes on from."""

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
    models: tuple[str, ...]
    predecessor: str | None = None


Progress = Callable[[int, int], None]
"""Told how many of how many leaves hold so far."""


@dataclass
class _Leaves:
    """What was believed so far: `receipts` by their leaf's number, `events` as CBOR values by theirs, `hashes` of all leaves in order,
    `models` that it may have ended with."""

    receipts: dict[int, HeldReceipt] = field(default_factory=dict)
    events: dict[int, Any] = field(default_factory=dict)
    hashes: list[bytes] = field(default_factory=list)
    models: tuple[str, ...] = ()


def verify(
    folder: Path,
    seen: Iterable[Seen] = (),
    jobs: int = 1,
    progress: Progress | None = None,
    predecessor: Path | None = None,
    trust: Path | None = None,
) -> Verified:
    """Verify everything in `folder`, in numbered steps; what fails is named by its file and its number there.

    1. every file is as it was saved; 2. every key: that it is of this session and manifest, quote over its runtime data, GPU evidence and
    its nonce, statement key under the device's leaf; 3. the log's signed head; 4. every leaf by itself: a receipt's two signatures
    (orchestrator, device), that receipt and statement say the same, that the visit's records are proven within the one dataset that its
    holder signed for, the privacy spent, and its place under the signed root; 5. every head that a holder remembered at a restart, and
    those in `seen`, are of this very log; 6. the chain of model digests has no gap, from the predecessor's model on where the manifest
    names one, and no visit's privacy was spent twice; where gradients are accumulated, each tour's end under the device's signature, and
    the accumulator's chain; where tours are collected, that its visits make up each mixture without a gap.

    Step 4 is shared out among `jobs` processes, where there are leaves enough; what is found does not depend on how many.
    `predecessor`: the folder of the session that this one goes on from, verified in the same way; 7. then it came to rest as the manifest
    says: log, model, step, and whose records are in it.

    `trust`: the trust folder to judge the keys of both by; None: each folder's own copy, which whoever saved it chose.

    An altered log is gone through first, so that the leaf is named by what is wrong with it; steps 2 to 6 do not rely on step 1.

    Raises:
        VerificationFailed: naming file, key, approval or leaf, and the check. BadRequest: the folder is incomplete.
    """
    report = progress or (lambda done, total: None)
    found, known = _verified(folder, seen, jobs, report, trust)
    if predecessor is not None:
        before, then = _verified(predecessor, (), jobs, report, trust)
        check_succession(known.book.manifest.predecessor, then.book, before.receipts, before.events, before.hashes)
    return _summed_up(found, known)


def _verified(
    folder: Path, seen: Iterable[Seen], jobs: int, progress: Progress, trust: Path | None
) -> tuple[_Leaves, Known]:
    log_altered = check_as_saved(folder)
    session = read_session(folder)
    # Before the keys, of which each names the manifest: an altered one is told by whoever signed another.
    book = signed_for(session, read_lines(folder, APPROVALS))
    keys = believed_keys(folder, book, trust)
    head = _check_head(session, keys)
    known = Known(head, keys, book)
    found = _check_leaves(folder, known, jobs, progress)
    if log_altered:
        raise not_as_saved(LEAVES)
    if found.receipts:
        check_quorum(book)
    check_memories(found.events, found.hashes, book, LEAVES)
    for one in seen:
        check_seen(found.hashes, one, "you were shown")
    check_once(found.receipts, found.events, LEAVES)
    ends = tour_ends(found.events, known.keys, book, LEAVES)
    rule = book.manifest.validation
    best = rule is not None and rule.release == "best"
    found.models = check_models(
        found.receipts, ends, found.events, LEAVES, book.manifest.predecessor, releases_best=best
    )
    if book.manifest.accumulate is not None:
        check_accumulated(found.receipts, ends, found.events, LEAVES)
    if book.manifest.collect == "tour":
        check_mixtures(found.receipts, LEAVES)
    check_spent_once(found.receipts, book.manifest, LEAVES)
    return found, known


def _check_head(session: dict[str, Any], keys: Keyring) -> TreeHead:
    head = session["head"]
    with named(f"{SESSION}: log head"):
        key = keys.named_by(bytes.fromhex(head["key"]))
        size, at = head["size"], head["time"]
        if type(size) is not int or type(at) is not int:  # what is signed are these, and not what could be made of them
            raise VerificationFailed("a log head's size and time are whole numbers", code="malformed")
        tree = TreeHead(session["session"], size, bytes.fromhex(head["root"]), at)
        return verify_tree_head(tree, key, b64decode(head["signature"])).head


def _check_leaves(folder: Path, known: Known, jobs: int, progress: Progress) -> _Leaves:
    found, lines = _Leaves(), read_lines(folder, LEAVES)
    with closing(held(known, lines, jobs)) as pieces:
        for piece in pieces:
            for leaf in piece:
                if isinstance(leaf.says, HeldReceipt):
                    found.receipts[len(found.hashes)] = leaf.says
                else:
                    found.events[len(found.hashes)] = cbor_value(leaf.says)
                found.hashes.append(leaf.hash)
            progress(len(found.hashes), len(lines))
    if (first := len(found.hashes)) < len(lines):
        with named(f"{LEAVES}: leaf {first}"):
            check_leaf(known, first, lines[first])
            raise VerificationFailed("refused by one process, holds for another", code="checked-differently")
    if len(lines) != known.head.size:
        raise VerificationFailed(f"{LEAVES} does not hold all leaves of the signed log", code="log-mismatch",
                                 expected=str(known.head.size), got=str(len(lines)))  # fmt: skip
    return found


def _summed_up(found: _Leaves, known: Known) -> Verified:
    receipts, book = found.receipts, known.book
    holders: dict[str, int] = {}
    for receipt in receipts.values():
        holders[receipt.holder] = holders.get(receipt.holder, 0) + 1
    return Verified(
        session=book.session,
        leaves=len(found.hashes),
        receipts=len(receipts),
        backends=tuple(sorted({receipt.backend for receipt in receipts.values()})),
        travel_mode=book.manifest.travel_mode,
        holders=holders,
        datasets={name: said.root for name, said in book.approved.items()},
        records=sum(receipt.records for receipt in receipts.values()),
        privacy_spent=spent_by_holder(receipts),
        root=known.head.root.hex(),
        models=found.models,
        predecessor=None if book.manifest.predecessor is None else book.manifest.predecessor.session,
    )
