"""Stops in a saved log: each receipt is of a stop of the plan and of its holder, and no stop, visit or epoch has a second one.

What a restore takes back may come again: its leaf says which stops still lie behind. Knows no file, no key and no service.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shared.claims.manifest import Manifest
from shared.claims.receipt import Receipt
from shared.errors import VerificationFailed
from shared.protocol.log_events import restored_to
from shared.protocol.session import SessionFact
from shared.protocol.stops import holder_at, last_stop

if TYPE_CHECKING:
    from gput.receipt_leaves import HeldReceipt


_OVER = frozenset({SessionFact.STOPPED_EARLY, SessionFact.COMPLETED, SessionFact.FAILED, SessionFact.CANCELLED})
"""Behind these no visit is made; but what was learnt enough may be lost again."""


def expected_of_stop(receipt: Receipt, manifest: Manifest) -> dict[str, tuple[Any, ...]]:
    """What receipt and itinerary must agree on of the stop, by name. The device signs no stop: without this its records could be counted
    as another's.

    Raises:
        VerificationFailed: the plan has no such stop.
    """
    if not 1 <= receipt.index <= last_stop(manifest):
        raise VerificationFailed(
            "the plan has no such stop", code="mismatch", expected=f"1 to {last_stop(manifest)}", got=str(receipt.index)
        )
    return {"holder at this stop": (holder_at(manifest, receipt.index), receipt.holder)}


def check_once(receipts: Mapping[int, HeldReceipt], events: Mapping[int, Any], where: str) -> None:
    """Stops follow one another in the log as in the plan, so none comes twice; behind the leaf of a restore they go on from where that
    went back to. A visit and its epoch are never used again, not by a repeat either. None follows the session's end; that it had learnt
    enough a restore takes back.

    Raises:
        VerificationFailed: naming the leaf, code `visit-repeated`.
    """
    behind, seen, over = 0, set[str | int](), ""
    for leaf in sorted({*receipts, *events}):
        receipt = receipts.get(leaf)
        if receipt is None:
            position, kind = restored_to(events[leaf]), events[leaf][2]
            behind = behind if position is None else position
            if over in ("", SessionFact.STOPPED_EARLY):  # what is over otherwise is over for good
                over = kind if kind in _OVER else "" if position is not None else over
            continue
        fault = f"visit {receipt.visit} comes after {over}" if over else _fault(receipt, behind, seen)
        if fault:
            raise VerificationFailed(f"{where}: leaf {leaf}: {fault}", code="visit-repeated")
        behind = receipt.stop
        seen |= {receipt.visit, receipt.epoch}


def _fault(receipt: HeldReceipt, behind: int, seen: set[str | int]) -> str:
    if receipt.visit in seen:
        return f"visit {receipt.visit} has a receipt before"
    if receipt.epoch in seen:
        return f"epoch {receipt.epoch} of visit {receipt.visit} has a receipt before"
    if receipt.stop <= behind:
        return f"stop {receipt.stop} of visit {receipt.visit} lies behind already, and no leaf tells of a restore to before it"
    return ""


def still_counting(receipts: Mapping[int, HeldReceipt], events: Mapping[int, Any]) -> dict[int, HeldReceipt]:
    """Those that no later restore took back."""
    counting: dict[int, HeldReceipt] = {}
    for leaf in sorted({*receipts, *events}):
        if leaf in receipts:
            counting[leaf] = receipts[leaf]
        elif (position := restored_to(events[leaf])) is not None:
            counting = {at: one for at, one in counting.items() if one.stop <= position}
    return counting
