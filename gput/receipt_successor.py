"""A session's log held against its predecessor's: one goes on where the other came to rest, and names all whose records are in the model.

Knows what both logs say once each has been verified by itself; no file, no signature.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gput.receipt_heads import Seen, check_seen
from gput.receipt_known import SignedFor
from gput.receipt_leaves import HeldReceipt
from gput.receipt_stops import still_counting
from shared.claims.manifest import Predecessor
from shared.errors import BadRequest, VerificationFailed


def check_succession(
    said: Predecessor | None,
    before: SignedFor,
    receipts: Mapping[int, HeldReceipt],
    events: Mapping[int, Any],
    hashes: Sequence[bytes],
) -> None:
    """`said` is of the session `before`, whose log has these receipts and events (by their leaf) and leaf hashes.

    Raises:
        BadRequest: it is another session's folder. VerificationFailed: `predecessor-mismatch`, `log-rolled-back`, `log-split-view`.
    """
    if said is None or said.session != before.session:
        names = "no predecessor" if said is None else said.session
        raise BadRequest(
            f"these are receipts of {before.session}, and the manifest names {names}", code="predecessor-mismatch",
            remedy="Name the folder of the session that the manifest goes on from.",
        )  # fmt: skip
    if said.manifest != before.digest:
        raise _other("the manifest", before.digest, said.manifest)
    check_seen(hashes, Seen(said.log_size, bytes.fromhex(said.log_root)), "its successor was approved upon")
    closed = [one for leaf, one in receipts.items() if one.outcome == "closed" and leaf < said.log_size]
    first = before.manifest.predecessor
    left = {(one.model_after, one.first_step + one.steps) for one in closed}
    left |= set() if first is None else {(first.model, first.step)}
    if (said.model, said.step) not in left:
        raise _other("the model", "one that an accepted visit left", f"{said.model} at step {said.step}")
    _check_contributors(said, first, closed, still_counting(receipts, events).values())


def _check_contributors(
    said: Predecessor, first: Predecessor | None, closed: Collection[HeldReceipt], counting: Collection[HeldReceipt]
) -> None:
    """Named is everybody whose records are in the model. Whose accepted visits a restore took back, and were not made again, may be."""
    inherited = {one.holder for one in first.contributors} if first is not None else set()
    named = {one.holder for one in said.contributors}
    due = inherited | {one.holder for one in closed if one in counting}
    if not due <= named or not named <= inherited | {one.holder for one in closed}:
        raise _other("whose records are in it", ", ".join(sorted(due)), ", ".join(sorted(named)))


def _other(what: str, expected: str, got: str) -> VerificationFailed:
    return VerificationFailed(
        f"{what} that the session goes on with is not its predecessor's",
        code="predecessor-mismatch",
        expected=expected,
        got=got,
    )
