"""Collected tours in a saved log: the device's word on each visit's place in a mixture, and that the places make up whole mixtures.

A tour's receipts lie one after another in the log, in the order in which the mixture takes up its visits before it shuffles their records;
so whoever has them and every holder's records has the very order of training. Knows no file, no key and no service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from shared.claims.manifest import Manifest
from shared.claims.receipt import DeviceStatement, Mixed, Receipt
from shared.errors import VerificationFailed
from shared.protocol.mixture import mixture_seed

if TYPE_CHECKING:
    from gput.receipt_leaves import HeldReceipt


class Place(NamedTuple):
    """A visit's place in its mixture; fields as in `shared.claims.receipt.Mixed`."""

    round: int
    seed: int
    visits: int
    records: int
    first: int

    @classmethod
    def of(cls, said: Mixed | None) -> Place | None:
        """What counts of a statement."""
        return None if said is None else cls(said.round, said.seed, said.visits, said.records, said.first)


def expected_of_mixture(receipt: Receipt, said: DeviceStatement, manifest: Manifest) -> dict[str, tuple[Any, ...]]:
    """What receipt, statement and manifest must agree on of the mixture that the records were trained on in, if in any, by name."""
    mixed = said.mixed
    expected: dict[str, tuple[Any, ...]] = {"mixture": (manifest.collect == "tour", mixed is not None)}
    if mixed is None:
        return expected
    expected["round"] = (receipt.round, mixed.round)
    expected["mixture seed"] = (mixture_seed(manifest.training.seed, receipt.round), mixed.seed)
    return expected


def check_mixtures(receipts: Mapping[int, HeldReceipt], where: str) -> None:
    """Each tour's receipts follow one another, each where the one before it ends, until all of the mixture's records are somebody's.

    Raises:
        VerificationFailed: naming the leaf, code `mixture-gap`.
    """
    tour: list[tuple[int, HeldReceipt]] = []
    for leaf in sorted(receipts):
        fault = _fault(tour, leaf, receipts[leaf])
        if fault:
            raise VerificationFailed(f"{where}: leaf {leaf}: visit {receipts[leaf].visit} {fault}", code="mixture-gap")
        tour.append((leaf, receipts[leaf]))
        if _whole(tour):
            tour.clear()
    if tour:
        raise VerificationFailed(
            f"{where}: leaf {tour[-1][0]}: the tour of round {tour[-1][1].round} lacks visits", code="mixture-gap"
        )


def _fault(tour: Sequence[tuple[int, HeldReceipt]], leaf: int, receipt: HeldReceipt) -> str:
    place = _place(receipt)
    if place is None:
        return "was not trained on in a mixture"
    if place.first != sum(one.records for _, one in tour):
        return "does not begin where the visit before it ends"
    if not tour:
        return ""
    before_leaf, before = tour[-1]
    if leaf != before_leaf + 1 or _shared(receipt) != _shared(before):
        return "is of another tour, and the one before it lacks visits"
    if receipt.holder in {one.holder for _, one in tour}:
        return "is the second of its holder in one tour"
    return ""


def _place(receipt: HeldReceipt) -> Place | None:
    return None if receipt.place is None else Place(*receipt.place)


def _shared(receipt: HeldReceipt) -> tuple[Any, ...]:
    """What is the same of all visits of a tour."""
    place = _place(receipt)
    return (
        place and place._replace(first=0),
        receipt.outcome,
        receipt.first_step,
        receipt.steps,
        receipt.model_before,
        receipt.model_after,
    )


def _whole(tour: Sequence[tuple[int, HeldReceipt]]) -> bool:
    place = _place(tour[-1][1])
    return place is not None and (len(tour), sum(one.records for _, one in tour)) == (place.visits, place.records)
