"""A saved log of collected tours: its visits make up whole mixtures in the manifest's order; a gap or a stranger among them is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gput.receipt_folder import LEAVES
from gput.receipt_leaves import HeldReceipt
from gput.receipt_mixtures import Place, check_mixtures, expected_of_mixture
from shared.claims.manifest import Manifest
from shared.claims.receipt import DeviceStatement, Mixed, Receipt
from shared.errors import VerificationFailed
from shared.protocol.mixture import mixture_seed
from tests.orchestrator.orchestrator_samples import manifest

RECORDS = {"city": 8, "harbour": 24, "north": 16}
IN_ALL = sum(RECORDS.values())
Held = dict[int, HeldReceipt]


def visit(holder: str, stop: int, first: int, **changes: Any) -> HeldReceipt:
    place = Place(round=1, seed=7, visits=3, records=IN_ALL, first=first)
    usual = HeldReceipt(
        f"v_{stop}", stop, 1, holder, "closed", "EMULATED", RECORDS[holder], 0, 6, "a" * 64, "b" * 64, None, None, tuple(place),
        2 * stop,
    )  # fmt: skip
    return usual._replace(**changes)


def tour(at: int, **changes: Any) -> Held:
    """Three visits' receipts from leaf `at` on."""
    found, first = {}, 0
    for number, holder in enumerate(RECORDS):
        found[at + number] = visit(holder, number + 1, first, **changes)
        first += RECORDS[holder]
    return found


def test_whole_tours_hold_with_leaves_of_other_kinds_between_them() -> None:
    check_mixtures({}, LEAVES)
    check_mixtures(tour(2) | tour(5, model_before="b" * 64) | tour(11, outcome="rejected"), LEAVES)


def _without(leaf: int) -> Callable[[Held], None]:
    return lambda receipts: receipts.pop(leaf) and None


def _changed(leaf: int, **changes: Any) -> Callable[[Held], None]:
    return lambda receipts: receipts.update({leaf: receipts[leaf]._replace(**changes)})


FAULTS: dict[str, tuple[Callable[[Held], None], int]] = {
    "its first visit is missing": (_without(2), 3),
    "its last visit is missing": (_without(4), 3),
    "a visit between is missing": (_without(3), 4),
    "a leaf lies between its visits": (lambda r: r.update({9: r.pop(4)}), 9),
    "a visit says nothing of it": (_changed(3, place=None), 3),
    "a visit has fewer records": (_changed(2, records=4), 3),
    "a visit has other records before it": (_changed(3, place=(1, 7, 3, IN_ALL, 9)), 3),
    "a visit is of another seed": (_changed(3, place=(1, 8, 3, IN_ALL, 8)), 3),
    "a visit ended at another model": (_changed(4, model_after="c" * 64), 4),
    "a visit began at another step": (_changed(3, first_step=1), 3),
    "one was rejected by itself": (_changed(4, outcome="rejected"), 4),
    "a holder is in it twice": (_changed(4, holder="city"), 4),
    "it counts another number of visits": (
        lambda r: r.update({n: r[n]._replace(place=(*r[n].place[:2], 4, *r[n].place[3:])) for n in r if r[n].place}), 4,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "leaf"), FAULTS.values(), ids=FAULTS.keys())
def test_what_does_not_make_up_a_tour_is_named(change: Callable[[Held], None], leaf: int) -> None:
    receipts = tour(2)
    change(receipts)
    with pytest.raises(VerificationFailed, match=rf"leaf {leaf}:") as caught:
        check_mixtures(receipts, LEAVES)
    assert caught.value.code == "mixture-gap"


def _said(rules: Manifest, **changes: Any) -> dict[str, tuple[Any, ...]]:
    batch, holder = rules.training.batch_size, rules.roster[0].holder
    own = rules.steps_for(holder) * batch
    usual: dict[str, Any] = {
        "round": 2, "seed": mixture_seed(rules.training.seed, 2), "visits": 3, "records": 3 * own, "first": own,
    }  # fmt: skip
    fields = {"records": own, "mixed": Mixed(**(usual | changes.pop("mixed", {})))} | changes
    receipt = Receipt.model_construct(holder=holder, round=2)
    return expected_of_mixture(receipt, DeviceStatement.model_construct(**fields), rules)


def _differing(said: dict[str, tuple[Any, ...]]) -> set[str]:
    return {name for name, values in said.items() if len(set(values)) > 1}


def test_a_statement_is_held_against_the_manifest() -> None:
    rules = manifest(collect="tour")
    assert _differing(_said(rules)) == set()
    assert _differing(_said(rules, mixed={"seed": 1})) == {"mixture seed"}
    assert _differing(_said(rules, mixed={"round": 1})) == {"round"}
    assert _differing(_said(rules.model_copy(update={"collect": "visit"}))) == {"mixture"}
    assert _differing(_said(rules, mixed={}) | _said(manifest(), mixed={})) == {"mixture"}
