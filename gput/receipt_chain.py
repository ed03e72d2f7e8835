"""What receipts say of one another: the chain of models, the privacy that a plan spends once. Knows no signature and no file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gput.receipt_leaves import HeldReceipt
from gput.receipt_tours import Ends
from shared.claims.manifest import Manifest
from shared.errors import VerificationFailed
from shared.protocol.session import SessionFact

Checked = Mapping[int, HeldReceipt]
"""Receipts by the number of their leaf, in the log's order."""


def check_models(receipts: Checked, ends: Ends, events: Mapping[int, Any], where: str) -> tuple[str, ...]:
    """Each visit starts from the model the last committed one left, or a tour's end; a visit after a restore repeats an earlier model.

    Returns:
        Digests of the models that the log may end with: one; after a restore that no visit followed, any of the earlier ones.

    Raises:
        VerificationFailed: naming the leaf.
    """
    known: set[str] = set()
    last: set[str] = set()
    for leaf in sorted({*receipts, *ends, *events}):
        receipt = receipts.get(leaf)
        if receipt is None and leaf not in ends:
            last = _after(events[leaf], known, last, f"{where}: leaf {leaf}")
            continue
        said = ends[leaf] if receipt is None else receipt
        if known and said.model_before not in known:
            who = "the end of a tour" if receipt is None else f"visit {receipt.visit}"
            raise VerificationFailed(
                f"{where}: leaf {leaf}: {who} starts from a model that no earlier receipt left", code="model-gap"
            )
        last = {said.model_after if receipt is None or receipt.outcome == "closed" else said.model_before}
        known |= {said.model_before, *last}
    return tuple(sorted(last))


def _after(event: Any, known: set[str], last: set[str], where: str) -> set[str]:
    """What the log may end with after an event: a restore, or the choice of the model with the least held-out loss, moves it."""
    _, _, kind, details = event
    if kind == SessionFact.RESTORED:
        return set(known)
    if kind != SessionFact.BEST_CHOSEN:
        return last
    if details["model"] not in known:
        raise VerificationFailed(f"{where}: the chosen model is one that no earlier receipt left", code="model-gap")
    return {details["model"]}


def check_spent_once(receipts: Checked, manifest: Manifest, where: str) -> None:
    """No stop was trained on twice with different noise: then what the plan spends is the most that was spent.

    A repeat after a reset of the GPU begins with the same model, draws the same noise, and tells nothing new.

    Raises:
        VerificationFailed: naming the leaf.
    """
    began: dict[int, tuple[str, int]] = {}
    for leaf, receipt in receipts.items():
        start = (receipt.model_before, receipt.first_step)
        if manifest.privacy is not None and began.setdefault(receipt.stop, start) != start:
            raise VerificationFailed(
                f"{where}: leaf {leaf}: the records of visit {receipt.stop} took part twice, with other noise",
                code="privacy-spent-twice",
            )


def spent_by_holder(receipts: Checked) -> dict[str, float]:
    """Epsilon that each visited holder's records have spent, as its last receipt says; empty without privacy."""
    ordered = sorted(receipts.values(), key=lambda receipt: receipt.round)
    return {receipt.holder: receipt.epsilon for receipt in ordered if receipt.epsilon is not None}
