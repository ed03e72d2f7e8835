"""What receipts say of one another: the chain of models, the privacy that a plan spends once. Knows no signature and no file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gput.receipt_keys import named
from gput.receipt_leaves import HeldReceipt
from gput.receipt_mixtures import Place
from gput.receipt_past import Past, Reached
from gput.receipt_tours import Ends
from shared.claims.manifest import Manifest, Predecessor
from shared.claims.receipt import TourStatement
from shared.errors import VerificationFailed

Checked = Mapping[int, HeldReceipt]
"""Receipts by the number of their leaf, in the log's order."""


def check_models(
    receipts: Checked,
    ends: Ends,
    events: Mapping[int, Any],
    where: str,
    start: Predecessor | None = None,
    *,
    releases_best: bool = False,
) -> tuple[str, ...]:
    """Each visit starts from the model the last committed one left, or a tour's end, and counts its steps on from there; only a visit after
    the leaf of a restore may go on from an earlier one, and then from the one that stood where that leaf says. Else an accepted visit's
    update could vanish unsaid. Visits of one collected tour all start where its first does. `start`: what the first one starts from, where
    the manifest names a predecessor. `releases_best`: whether the manifest releases the model of the least held-out loss.

    Returns:
        Digests of the models that the log may end with: one; two after a restore that no visit followed, where a tour ended there.

    Raises:
        VerificationFailed: naming the leaf.
    """
    past = Past() if start is None else Past.from_model(start.model, start.step)
    leaves = sorted({*receipts, *ends, *events})
    first = min((*receipts, *ends), default=None)
    before: HeldReceipt | None = None
    for leaf in leaves:
        receipt, at = receipts.get(leaf), f"{where}: leaf {leaf}"
        if receipt is None and leaf not in ends:
            with named(at):
                past.hear(events[leaf], releases_best=releases_best)
            continue
        said = ends[leaf] if receipt is None else receipt
        who = f"{at}: the end of a tour" if receipt is None else f"{at}: visit {receipt.visit}"
        if start is not None and receipt is not None:
            _check_first_link(receipt, start, who, first=leaf == first)
        tour = before if before is not None and _same_tour(before, receipt) else None
        stands = past.stands if tour is None else {Reached(tour.model_before, tour.first_step)}
        begun = past.start(said.model_before, None if receipt is None else receipt.first_step, who, stands)
        before = receipt
        past.leave(None if receipt is None else receipt.stop, begun, _left(said, begun))
    return tuple(sorted({one.model for one in past.ends}))


def _left(said: HeldReceipt | TourStatement, begun: set[Reached]) -> set[Reached]:
    """Where what began there has led: a tour's end takes no step that is counted, and a rejected visit leads nowhere."""
    if isinstance(said, TourStatement):
        return {one._replace(model=said.model_after) for one in begun}
    return {Reached(said.model_after, said.first_step + said.steps)} if said.outcome == "closed" else begun


def _same_tour(before: HeldReceipt, receipt: HeldReceipt | None) -> bool:
    """Whether the receipt goes on with the mixture that the one before it is of; the first of a mixture begins another."""
    if before.place is None or receipt is None or receipt.place is None:
        return False
    was, now = Place(*before.place), Place(*receipt.place)
    return now.first > 0 and now._replace(first=0) == was._replace(first=0)


def _check_first_link(receipt: HeldReceipt, start: Predecessor, who: str, *, first: bool) -> None:
    """The first step after the predecessor's is trained from its model, nothing before that is trained again, and the log begins there."""
    next_step = receipt.first_step == start.step
    if receipt.first_step < start.step or first > next_step or (next_step and receipt.model_before != start.model):
        raise VerificationFailed(
            f"{who} does not go on where {start.session} came to rest", code="predecessor-link",
            expected=f"{start.model} at step {start.step}", got=f"{receipt.model_before} at step {receipt.first_step}",
        )  # fmt: skip


def check_spent_once(receipts: Checked, manifest: Manifest, where: str) -> None:
    """No holder's records for a round were trained on twice with different noise: then what the plan spends is the most that was spent.

    A repeat after a reset of the GPU begins with the same model, draws the same noise, and tells nothing new.

    Raises:
        VerificationFailed: naming the leaf.
    """
    began: dict[tuple[str, int], tuple[str, int]] = {}
    for leaf, receipt in receipts.items():
        start, records = (receipt.model_before, receipt.first_step), (receipt.holder, receipt.round)
        if manifest.privacy is not None and began.setdefault(records, start) != start:
            raise VerificationFailed(
                f"{where}: leaf {leaf}: the records of {receipt.holder} for round {receipt.round} took part twice, with other noise",
                code="privacy-spent-twice",
            )


def spent_by_holder(receipts: Checked) -> dict[str, float]:
    """Epsilon that each visited holder's records have spent, as its last receipt says; empty without privacy."""
    ordered = sorted(receipts.values(), key=lambda receipt: receipt.round)
    return {receipt.holder: receipt.epsilon for receipt in ordered if receipt.epsilon is not None}
