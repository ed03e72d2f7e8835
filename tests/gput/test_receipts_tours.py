"""A saved log of tours: each visit adds to what was left, each end spends it under the device's own key; a gap or a stranger is named."""

from __future__ import annotations

import dataclasses
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from gput.approvals import signed_for
from gput.receipt_chain import check_models
from gput.receipt_folder import APPROVALS, LEAVES, read_lines, read_session
from gput.receipt_known import Keyring, SignedFor, Signer
from gput.receipt_leaves import HeldReceipt
from gput.receipt_tours import Ends, check_accumulated, tour_ends
from shared.canonical import cbor_bytes
from shared.claims.manifest import Validation
from shared.claims.receipt import TourStatement
from shared.crypto.cose import sign1
from shared.errors import VerificationFailed
from tests.gput.gput_samples import Saved

DEVICE = ec.generate_private_key(ec.SECP384R1())
STRANGER = ec.generate_private_key(ec.SECP384R1())
KEYS = Keyring({"r": Signer(b"k" * 32, DEVICE.public_key(), "e", "gpu-0", "EMULATED")})


FIRST_STEPS = {1: 0, 2: 2, 3: 2, 4: 4}
"""Of the visits at these stops, of which the second is rejected."""


def name(letter: str) -> str:
    """A digest."""
    return letter * 64


@pytest.fixture
def book(saved: Saved) -> SignedFor:
    usual = signed_for(read_session(saved.folder), read_lines(saved.folder, APPROVALS))
    return dataclasses.replace(usual, manifest=usual.manifest.model_copy(update={"accumulate": "tour"}))


def visit(stop: int, model: str, before: str, after: str, batches: int, outcome: str = "closed") -> HeldReceipt:
    """A visit of two batches."""
    return HeldReceipt(
        f"v_{stop}", stop, 1, "city", outcome, "EMULATED", 16, FIRST_STEPS.get(stop, 4), 2, name(model), name(model), None,
        (name(before), name(after), batches), None, 2 * stop,
    )  # fmt: skip


def statement(book: SignedFor, **changes: Any) -> TourStatement:
    fields: dict[str, Any] = {
        "device": "gpu-0", "backend": "EMULATED", "boot_counter": 1, "life": 1, "session": book.session,
        "program": book.manifest.program, "round": 1, "batches": 4, "stepped": True, "model_before": name("a"),
        "model_after": name("b"), "optimiser_before": name("3"), "optimiser_after": name("4"),
    }  # fmt: skip
    return TourStatement(**(fields | changes))


def restored(book: SignedFor, position: int) -> list[Any]:
    """The leaf of a restore."""
    return ["gput/log-event/1", book.session, "restored", {"position": position}]


def end(
    book: SignedFor,
    key: ec.EllipticCurvePrivateKey = DEVICE,
    losses: tuple[Any, Any] = (None, None),
    told: int = 0,
    **changes: Any,
) -> list[Any]:
    """The leaf of a tour's end, as CBOR gives it."""
    said = statement(book, **changes)
    cose = sign1(cbor_bytes(said.model_dump(mode="python")), key, kid=b"device")
    details = {
        "round": told or said.round, "stepped": said.stepped, "statement": b64encode(cose).decode(), "validation_before": losses[0],
        "validation_after": losses[1],
    }  # fmt: skip
    return ["gput/log-event/1", book.session, "tour_ended", details]


def log(book: SignedFor) -> tuple[dict[int, HeldReceipt], Ends, dict[int, Any]]:
    """Two visits, one rejected between them, the end, and a visit of the next tour."""
    receipts = {
        0: visit(1, "a", "1", "2", 2), 1: visit(2, "a", "2", "2", 2, "rejected"), 2: visit(3, "a", "2", "3", 4),
        4: visit(4, "b", "4", "5", 2),
    }  # fmt: skip
    events = {3: end(book)}
    return receipts, tour_ends(events, KEYS, book, LEAVES), events


def test_a_whole_log_holds(book: SignedFor) -> None:
    receipts, ends, events = log(book)
    check_models(receipts, ends, {}, LEAVES)
    check_accumulated(receipts, ends, events, LEAVES)


def test_a_restore_to_a_tours_last_stop_may_lie_on_either_side_of_its_end(book: SignedFor) -> None:
    """A checkpoint may have been sealed between the last visit and the step, and one behind it; both have three stops behind them."""
    receipts, ends, _ = log(book)
    del receipts[4]

    def last(position: int) -> str:
        back = {5: restored(book, position)}
        return "".join(model[0] for model in check_models(receipts, ends, back, LEAVES))

    assert (last(2), last(3)) == ("a", "ab")
    again = {**receipts, 7: visit(4, "b", "4", "5", 2)}
    assert check_models(again, {**ends, 6: ends[3]}, {5: restored(book, 3)}, LEAVES) == (name("b"),)


def test_after_a_restore_the_log_goes_on_from_what_an_earlier_leaf_left(book: SignedFor) -> None:
    receipts, ends, events = log(book)
    receipts[6] = visit(3, "a", "2", "3", 4)
    with pytest.raises(VerificationFailed, match="leaf 6"):
        check_accumulated(receipts, ends, events, LEAVES)
    for position in (1, 2):  # the rejected visit between them left it as it was
        check_accumulated(receipts, ends, events | {5: restored(book, position)}, LEAVES)


@pytest.mark.parametrize("position", [0, 3, 4])
def test_a_restore_brings_back_no_accumulator_but_the_one_that_stood_there(book: SignedFor, position: int) -> None:
    """That another one had been there once is no reason to go on from it: what was added since would be in no step, and nobody told."""
    receipts, ends, events = log(book)
    receipts[6] = visit(3, "a", "2", "3", 4)
    with pytest.raises(VerificationFailed, match="leaf 6: the accumulator did not begin with") as caught:
        check_accumulated(receipts, ends, events | {5: restored(book, position)}, LEAVES)
    assert caught.value.code == "accumulator-gap"


def test_behind_a_restore_to_a_tours_last_stop_its_end_comes_again_or_the_next_tour(book: SignedFor) -> None:
    receipts, ends, events = log(book)
    events[5] = restored(book, 3)
    check_accumulated(receipts, {**ends, 6: ends[3]}, events, LEAVES)
    check_accumulated({**receipts, 6: visit(4, "b", "4", "5", 2)}, ends, events, LEAVES)


def twice(book: SignedFor, *rounds: int) -> tuple[dict[int, HeldReceipt], Ends, dict[int, Any]]:
    """A visit of round 1 and its end, then a visit and an end of these rounds."""
    events = {1: end(book, batches=2, optimiser_before=name("2"))}
    receipts = {0: visit(1, "a", "1", "2", 2), 2: visit(2, "b", "4", "5", 2)._replace(round=rounds[0])}
    if len(rounds) > 1:
        events[3] = end(book, round=rounds[1], batches=2, model_before=name("b"), model_after=name("c"),
                        optimiser_before=name("5"), optimiser_after=name("6"))  # fmt: skip
    return receipts, tour_ends(events, KEYS, book, LEAVES), events


def test_who_joins_late_is_stepped_with_by_itself(book: SignedFor) -> None:
    """So a round has two ends, of which each spends what its own visits added."""
    for rounds in ((1, 1), (2, 2), (2,)):
        check_accumulated(*twice(book, *rounds), LEAVES)


@pytest.mark.parametrize("rounds", [(2, 1), (1, 2), (1, 99)])
def test_an_end_is_of_the_round_whose_visits_it_ends(book: SignedFor, rounds: tuple[int, int]) -> None:
    with pytest.raises(VerificationFailed, match="leaf 3: the accumulator holds the gradients of round") as caught:
        check_accumulated(*twice(book, *rounds), LEAVES)
    assert caught.value.code == "accumulator-gap"


def test_no_visit_of_a_later_round_adds_to_a_tour_that_is_not_ended(book: SignedFor) -> None:
    receipts = {0: visit(1, "a", "1", "2", 2), 1: visit(2, "a", "2", "3", 4)._replace(round=2)}
    for outcome in ("closed", "rejected"):
        receipts[1] = receipts[1]._replace(
            outcome=outcome, accumulated=(name("2"), name("3"), 4 if outcome == "closed" else 2)
        )
        with pytest.raises(VerificationFailed, match="leaf 1: the accumulator holds the gradients of round 1, and"):
            check_accumulated(receipts, {}, {}, LEAVES)


def test_a_late_visit_goes_on_from_the_best_model_and_its_accumulator(book: SignedFor) -> None:
    """A late approval after the choice: the GPU stands at the chosen model with what was accumulated then, which is nothing."""
    receipts, ends, events = log(book)
    receipts[6] = visit(5, "a", "1", "7", 2)
    events[5] = ["gput/log-event/1", book.session, "best_chosen", {"model": name("a")}]
    check_accumulated(receipts, ends, events, LEAVES)
    receipts[6] = visit(5, "a", "9", "7", 2)
    with pytest.raises(VerificationFailed, match="leaf 6: "):
        check_accumulated(receipts, ends, events, LEAVES)


def test_a_restore_behind_the_choice_brings_the_best_model_back_and_its_accumulator(book: SignedFor) -> None:
    """The GPU had gone back to it, a checkpoint sealed it there, and the GPU's memory was lost before the export was done."""
    receipts, ends, events = log(book)
    receipts[7] = visit(5, "a", "1", "7", 2)
    events |= {5: ["gput/log-event/1", book.session, "best_chosen", {"model": name("a")}], 6: restored(book, 4)}
    check_models(receipts, ends, events, LEAVES, releases_best=True)
    check_accumulated(receipts, ends, events, LEAVES)
    events[6] = restored(book, 3)  # where the choice was not made yet, only what stood then comes back
    with pytest.raises(VerificationFailed, match="leaf 7: ") as caught:
        check_accumulated(receipts, ends, events, LEAVES)
    assert caught.value.code == "accumulator-gap"


Change = Callable[[dict[int, HeldReceipt]], Any]
GAPS: dict[str, tuple[Change, int]] = {
    "begins with something": (lambda r: r.update({0: visit(1, "a", "1", "2", 3)}), 0),
    "a visit is missing": (lambda r: r.pop(2), 3),
    "counts too many": (lambda r: r.update({2: visit(3, "a", "2", "3", 5)}), 2),
    "adds to something else": (lambda r: r.update({2: visit(3, "a", "6", "3", 4)}), 2),
    "a rejected visit stays in": (lambda r: r.update({1: visit(2, "a", "2", "7", 2, "rejected")}), 2),
    "a visit steps by itself": (lambda r: r.update({2: r[2]._replace(model_after=name("c"))}), 2),
    "a visit says nothing of it": (lambda r: r.update({2: r[2]._replace(accumulated=None)}), 2),
}


@pytest.mark.parametrize("which", GAPS)
def test_a_gap_is_named(book: SignedFor, which: str) -> None:
    receipts, ends, events = log(book)
    change, leaf = GAPS[which]
    change(receipts)
    with pytest.raises(VerificationFailed, match=f"leaf {leaf}:") as caught:
        check_accumulated(receipts, ends, events, LEAVES)
    assert caught.value.code == "accumulator-gap"


def test_a_model_that_no_end_left_is_named(book: SignedFor) -> None:
    receipts, ends, _ = log(book)
    with pytest.raises(VerificationFailed, match="leaf 4: visit v_4"):
        check_models(receipts, {}, {}, LEAVES)
    with pytest.raises(VerificationFailed, match="leaf 3: the end of a tour"):
        check_models(receipts, {3: ends[3].model_copy(update={"model_before": name("c")})}, {}, LEAVES)


def _told(book: SignedFor, **details: Any) -> list[Any]:
    """An end whose leaf says otherwise than the device."""
    leaf = end(book)
    leaf[3] |= details
    return leaf


def test_a_step_that_raised_the_held_out_loss_too_far_is_named(book: SignedFor) -> None:
    validation = Validation(dataset="ab" * 32, records=8, max_loss_increase=0.5)
    ruled = dataclasses.replace(book, manifest=book.manifest.model_copy(update={"validation": validation}))
    for losses in ((1.0, 1.5), (1.0, 0.2), (None, 9.0), (1.0, None)):
        assert tour_ends({3: end(book, losses=losses)}, KEYS, ruled, LEAVES)
    dropped = end(book, losses=(1.0, 2.0), stepped=False, model_after=name("a"))
    assert tour_ends({3: dropped}, KEYS, ruled, LEAVES)
    for losses in ((1.0, 1.75), (1.0, float("nan"))):
        assert tour_ends({3: end(book, losses=losses)}, KEYS, book, LEAVES), "nobody agreed on a limit"
        with pytest.raises(VerificationFailed, match="leaf 3: a tour's step was kept though") as caught:
            tour_ends({3: end(book, losses=losses)}, KEYS, ruled, LEAVES)
        assert caught.value.code == "mismatch"


def test_an_end_is_the_attested_devices_own_word(book: SignedFor) -> None:
    for leaf, code in (
        (end(book, STRANGER), "bad-signature"),
        (end(book, device="gpu-1"), "bad-signature"),
        (end(book, round=2, told=1), "mismatch"),
        (_told(book, stepped=False), "mismatch"),
        (end(book, session="s_0000000000000000"), "mismatch"),
        (end(book, program="0" * 96), "mismatch"),
        (end(book, stepped=False), "mismatch"),
        (end(book, batches=0), "mismatch"),
    ):
        with pytest.raises(VerificationFailed, match="leaf 3:") as caught:
            tour_ends({3: leaf}, KEYS, book, LEAVES)
        assert caught.value.code == code
    usual = dataclasses.replace(book, manifest=book.manifest.model_copy(update={"accumulate": None}))
    with pytest.raises(VerificationFailed, match="a session that has none"):
        tour_ends({3: end(book)}, KEYS, usual, LEAVES)
