"""Each receipt is of a stop that the plan has, of that stop's holder, and the only one of it: whatever its signatures are worth."""

from __future__ import annotations

from typing import Any

import pytest

from gput.receipt_folder import LEAVES
from gput.receipt_leaves import HeldReceipt
from gput.receipt_stops import check_once, still_counting
from shared.claims.accountant import spent
from shared.claims.privacy import Privacy
from shared.errors import VerificationFailed
from shared.protocol.log_events import LABEL, event_bytes
from shared.protocol.stops import last_stop, travel_order
from tests.gput.forged_logs import A, Again, Forger, Happened, Leaf, Visited

PRIVACY = Privacy(max_grad_norm=1.0, noise_multiplier=2.0, delta=1e-6)


@pytest.fixture(scope="module", params=["roster", "shuffled"])
def forger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Forger:
    """A private session of two rounds."""
    changes = {"rounds": 2, "privacy": PRIVACY.model_dump(), "visit_order": request.param}
    return Forger(tmp_path_factory.mktemp(request.param), **changes)


def private(forger: Forger, stop: int, holder: str = "", round_number: int | None = None, **more: Any) -> Visited:
    """A visit whose receipt says what its round has spent."""
    number = round_number or (stop - 1) // 3 + 1
    told = {"round": number, "privacy_spent": spent(forger.manifest, holder or A, number, 1000)}
    return Visited(stop, holder, {"privacy": PRIVACY} | more.pop("said", {}), told | more.pop("told", {}), **more)


def refused(forger: Forger, *leaves: Leaf) -> VerificationFailed:
    with pytest.raises(VerificationFailed) as caught:
        forger.verified(*leaves)
    return caught.value


def test_the_plan_as_it_is_holds(forger: Forger) -> None:
    found = forger.verified(*(private(forger, stop) for stop in range(1, 7)))
    assert found.receipts == last_stop(forger.manifest) == 6
    # Stops that are passed over leave gaps, and a rejected visit is the only one of its stop as well.
    states = forger.states
    assert forger.verified(private(forger, 2), private(forger, 6)).receipts == 2
    assert states != forger.states


def test_one_holders_records_as_every_stop_of_a_round_are_named(forger: Forger) -> None:
    """Trained on three times, they had counted once: epsilon was told as 2.25 where it was 4.15."""
    own = travel_order(forger.manifest, 1).index(A) + 1
    for stop in {1, 2, 3} - {own}:
        error = refused(forger, private(forger, stop, A))
        assert (error.code, error.expected) == ("mismatch", travel_order(forger.manifest, 1)[stop - 1])
        assert "leaf 0: holder at this stop differs" in error.detail
    assert forger.verified(private(forger, own, A)).holders == {A: 1}


@pytest.mark.parametrize(("stop", "round_number"), [(0, 1), (7, 3), (11998, 4000)])
def test_a_stop_that_no_plan_has_is_named(forger: Forger, stop: int, round_number: int) -> None:
    said = {"first_step": 0}
    error = refused(forger, private(forger, stop, A, round_number, said=said))
    assert (error.code, error.expected, error.got) == ("mismatch", "1 to 6", str(stop))


def test_a_stop_before_all_counting_is_none(forger: Forger) -> None:
    assert refused(forger, private(forger, -2, A, 1, said={"first_step": 0})).code == "malformed"


@pytest.mark.parametrize("last", [1, 2])
def test_a_second_receipt_of_a_stop_is_named(forger: Forger, last: int) -> None:
    usual = [private(forger, 1), private(forger, 2)]
    error = refused(forger, *usual, private(forger, last))
    assert error.code == "visit-repeated"
    assert f"leaf 2: stop {last} of visit v_" in error.detail


def test_what_a_restore_took_back_comes_again_once(forger: Forger) -> None:
    restored = Happened("restored", {"checkpoint": "c", "position": 1, "from": 2, "boot_counter": 2})
    usual: list[Leaf] = [private(forger, 1), private(forger, 2), restored, private(forger, 2, start=0)]
    assert forger.verified(*usual, private(forger, 3)).receipts == 4
    assert "leaf 4: stop 2 of" in refused(forger, *usual, private(forger, 2)).detail
    # The very receipt once more is no repeat of the visit: each has a visit and an epoch of its own.
    assert "leaf 3: visit v_" in refused(forger, *usual[:3], Again(1)).detail


def test_a_rejected_receipt_is_one_leaf_as_well(forger: Forger) -> None:
    model = "c" * 64
    rejected = private(forger, 2, said={"model_before": model, "model_after": model}, told={"outcome": "rejected"})
    first = private(forger, 1, said={"model_after": model})
    assert forger.verified(first, rejected, private(forger, 3)).receipts == 3
    assert refused(forger, first, rejected, Again(1)).code == "visit-repeated"


def visit(stop: int, epoch: int, name: str = "") -> HeldReceipt:
    return HeldReceipt(
        name or f"v_{epoch}",
        stop,
        1,
        "city",
        "closed",
        "EMULATED",
        16,
        0,
        3,
        "a" * 64,
        "b" * 64,
        None,
        None,
        None,
        epoch,
    )


def restored(position: Any) -> list[Any]:
    return [LABEL, "s", "restored", {"position": position}]


def test_a_visit_and_an_epoch_have_one_receipt_over_all_lives() -> None:
    usual = {0: visit(1, 1), 1: visit(2, 3)}
    check_once({**usual, 3: visit(2, 5)}, {2: restored(1)}, LEAVES)
    for again, named in ((visit(2, 3, "v_9"), "epoch 3 of visit v_9"), (visit(2, 7, "v_1"), "visit v_1 has")):
        with pytest.raises(VerificationFailed, match=rf"{LEAVES}: leaf 3: {named}") as caught:
            check_once({**usual, 3: again}, {2: restored(0)}, LEAVES)
        assert caught.value.code == "visit-repeated"


def test_no_visit_follows_the_end() -> None:
    """What was learnt enough may be lost with the GPU's memory, and is learnt again behind a restore; a session that ended is over."""
    usual = {0: visit(1, 1), 3: visit(2, 5)}
    for kind in ("stopped_early", "completed", "failed", "cancelled"):
        over = {1: [LABEL, "s", kind, {}]}
        check_once({0: visit(1, 1)}, over, LEAVES)
        with pytest.raises(VerificationFailed, match=f"{LEAVES}: leaf 3: visit v_5 comes after {kind}") as caught:
            check_once(usual, over, LEAVES)
        assert caught.value.code == "visit-repeated"
        again = over | {2: restored(1)}
        if kind == "stopped_early":
            check_once(usual, again, LEAVES)
        else:
            with pytest.raises(VerificationFailed, match=f"comes after {kind}"):
                check_once(usual, again, LEAVES)


def test_what_counts_is_what_no_later_restore_took_back() -> None:
    receipts = {0: visit(1, 1), 1: visit(2, 3), 3: visit(2, 5), 4: visit(3, 7)}
    events = {2: restored(1), 5: restored(2), 6: [LABEL, "s", "recalled", {}]}
    assert sorted(still_counting(receipts, events)) == [0, 3]
    assert sorted(still_counting(receipts, {2: restored(0)})) == [3, 4]


EVENTS: dict[str, Any] = {
    "another label": [f"{LABEL}x", None, "restored", {"position": 0}],
    "another session's": [LABEL, "s_aaaaaaaaaaaaaaaa", "restored", {"position": 0}],
    "three parts": [LABEL, None, "restored"],
    "no details": [LABEL, None, "restored", 7],
    "a kind that is no text": [LABEL, None, {"a": 1}, {}],
    "no list": {"a": 1},
    "a restore to nowhere": [LABEL, None, "restored", {}],
    "a restore to before the beginning": [LABEL, None, "restored", {"position": -1}],
    "a restore to a truth": [LABEL, None, "restored", {"position": True}],
    "a restore to no number": [LABEL, None, "restored", {"position": "1"}],
    "a choice of nothing": [LABEL, None, "best_chosen", {"position": 1}],
    "a choice of many": [LABEL, None, "best_chosen", {"model": ["a" * 64]}],
}


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_of_another_form_is_named_by_its_leaf(forger: Forger, name: str) -> None:
    from shared.canonical import cbor_bytes

    value = EVENTS[name]
    if isinstance(value, list):
        value = [forger.session if part is None else part for part in value]
    error = refused(forger, private(forger, 1), cbor_bytes(value))
    assert error.code == ("mismatch" if name == "another session's" else "malformed")
    assert error.detail.startswith(f"{LEAVES}: leaf 1: ")
    assert forger.verified(private(forger, 1), event_bytes(forger.session, "recalled", {})).leaves == 2
