"""A log that is sound in itself and not what the parties agreed to: too few approved, too much is spent, a verdict against the rule."""

from __future__ import annotations

import dataclasses
import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gput.approvals import signed_for
from gput.local import receipts_bench
from gput.receipt_folder import APPROVALS, LEAVES, read_lines, read_session
from shared.canonical import json_bytes
from shared.claims.accountant import spent
from shared.claims.manifest import Validation
from shared.claims.privacy import Privacy
from shared.errors import VerificationFailed
from tests.gput.forged_logs import A, B, C, Forger, Happened, Leaf, Visited
from tests.gput.gput_samples import Saved

RULE = Validation(dataset="ab" * 32, records=10, every_visits=1, max_loss_increase=0.125)
Make = Callable[..., Forger]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """A session under a manifest with these changes; the same changes give the same one."""
    made: dict[str, Forger] = {}

    def session(**changes: Any) -> Forger:
        key = json.dumps(changes, sort_keys=True)
        if key not in made:
            made[key] = Forger(tmp_path_factory.mktemp("agreed"), **changes)
        return made[key]

    return session


def refused(forger: Forger, *leaves: Leaf, **parts: Any) -> VerificationFailed:
    with pytest.raises(VerificationFailed) as caught:
        forger.verified(*leaves, **parts)
    return caught.value


def word(forger: Forger, holder: str, **changes: Any) -> dict[str, Any]:
    """The holder's approval with changes, signed by it."""
    item = forger._approval(holder)
    said = {**json.loads(b64decode(item["document"])), **changes}
    document, key = json_bytes(said), forger.keys[holder]
    signature = key.sign(receipts_bench.LABEL, document)
    return {**item, "document": b64encode(document).decode(), "signature": b64encode(signature).decode()}


@pytest.mark.parametrize(("quorum", "who", "enough"), [(None, (A, B), False), (2, (A,), False), (2, (A, C), True)])
def test_nothing_runs_before_a_quorum_has_approved(
    make: Make, quorum: int | None, who: tuple[str, ...], enough: bool
) -> None:
    forger = make(quorum=quorum)
    approvals = [forger._approval(name) for name in who]
    if enough:
        assert forger.verified(Visited(1), Visited(3), approvals=approvals).receipts == 2
        return
    error = refused(forger, Visited(1), approvals=approvals)
    assert (error.code, error.got) == ("quorum-lost", str(len(who)))
    # A session that waited in vain has a log of events, perhaps, and nobody's records in it.
    assert forger.verified(Happened("recalled", {}), approvals=approvals).receipts == 0


def test_the_plan_spends_no_more_than_was_agreed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """An approval over so few records is one that the orchestrator refuses; who reads the log later is told as well."""
    privacy = Privacy(max_grad_norm=1.0, noise_multiplier=2.0, delta=1e-6, max_epsilon=3.0)
    forger = make(rounds=3, privacy=privacy.model_dump())

    def visit(records: int) -> Visited:
        return Visited(1, said={"privacy": privacy}, told={"privacy_spent": spent(forger.manifest, A, 1, records)})

    assert forger.verified(visit(1000)).privacy_spent[A] < 3
    monkeypatch.setattr(receipts_bench, "RECORDS", 32)
    error = refused(forger, visit(32))
    assert error.code == "privacy-budget"
    assert error.detail.startswith("approvals.jsonl: approval 0: this approval cannot stand: the plan spends epsilon")


def test_a_key_is_not_dated_before_its_session_with_one_holders_help(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound, runtime = make(), receipts_bench.build_orchestrator_runtime

    def dated_back(*, not_after: int, **said: Any) -> bytes:
        return runtime(not_after=not_after - 1800, **said)

    monkeypatch.setattr(receipts_bench, "build_orchestrator_runtime", dated_back)
    forger = Forger(tmp_path)
    approvals = [forger._approval(A), forger._approval(B), word(forger, C, at=0)]
    assert refused(forger, Visited(1), approvals=approvals).code == "introduction-backdated"
    approvals = [sound._approval(A), sound._approval(B), word(sound, C, at=0)]
    assert sound.verified(Visited(1), approvals=approvals).receipts == 1


@pytest.mark.parametrize(("after", "rose"), [(1.125, False), (0.5, False), (None, False), (1.2, True), (101.0, True)])
def test_an_accepted_visit_did_not_raise_the_held_out_loss_too_far(make: Make, after: float | None, rose: bool) -> None:
    forger = make(validation=RULE.model_dump(mode="json"))
    losses = {"validation_before": 1.0, "validation_after": after}
    if not rose:
        assert forger.verified(Visited(1, told=losses)).receipts == 1
        return
    error = refused(forger, Visited(1, told=losses))
    assert error.code == "mismatch"
    assert error.detail.startswith(f"{LEAVES}: leaf 0: held-out loss of an accepted visit differs")
    model = "c" * 64
    rejected = Visited(2, said={"model_before": model, "model_after": model}, told={**losses, "outcome": "rejected"})
    assert forger.verified(Visited(1, said={"model_after": model}), rejected).receipts == 2


@pytest.mark.parametrize("records", [0, 1, 33, 10**9])
def test_a_visit_is_of_the_planned_records(make: Make, records: int) -> None:
    error = refused(make(), Visited(1, said={"records": records, "length": 65}))
    assert error.detail.startswith(f"{LEAVES}: leaf 0: records of its stop differs")
    assert (error.code, error.expected) == ("mismatch", "32")


def test_a_best_model_is_chosen_where_that_was_agreed(make: Make) -> None:
    agreed = RULE.model_copy(update={"release": "best"}).model_dump(mode="json")

    def chosen(forger: Forger) -> dict[str, Any]:
        return {"checkpoint": "c", "position": 1, "model": forger.states[0].model}

    leaves = Visited(1), Visited(2), Happened("best_chosen", chosen)
    found = make(validation=agreed).verified(*leaves)
    assert found.models == (make(validation=agreed).states[0].model,)
    for changes in ({}, {"validation": RULE.model_dump(mode="json")}):
        error = refused(make(**changes), *leaves)
        assert error.code == "mismatch"
        assert error.detail.startswith(f"{LEAVES}: leaf 2: the choice of a best model")


def test_a_restore_at_the_end_leaves_one_model(make: Make) -> None:
    """Any model that the session ever had passed for the one that it ended with."""
    forger = make()
    restored = Happened("restored", {"checkpoint": "c", "position": 2, "from": 3, "boot_counter": 2})
    found = forger.verified(Visited(1), Visited(2), Visited(3), restored)
    assert found.models == (forger.states[1].model,)
    assert refused(forger, Visited(1), Visited(2), restored, Visited(3, start=0)).code == "model-gap"


@pytest.mark.parametrize(
    ("quorum", "times", "since"),
    [
        (None, (30, 10, 20), 20), (None, (30, 0, 20), 20), (None, (10, 10**9, 20), 20), (2, (30, 10, 20), 10), (1, (30, 10, 20), 10),
        (None, (), 0),
    ],
)  # fmt: skip
def test_no_single_holders_word_says_when_a_session_began(
    saved: Saved, quorum: int | None, times: tuple[int, ...], since: float
) -> None:
    """One that is in league with the orchestrator had put it back to 1970, and with it what its keys' evidence is judged by."""
    book = signed_for(read_session(saved.folder), read_lines(saved.folder, APPROVALS))
    manifest = book.manifest.model_copy(update={"quorum": quorum})
    approved_at = {f"h{n}": float(at) for n, at in enumerate(times)}
    assert dataclasses.replace(book, manifest=manifest, approved_at=approved_at).since == since
