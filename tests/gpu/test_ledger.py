"""What the GPU keeps of the losses of its works: of the newest ones, and of none that may not be told."""

from __future__ import annotations

import pytest

from gpu_agent.hardware.compute import Finished
from gpu_agent.hardware.ledger import LOSSES_KEPT, REMEMBERED, Ledger, ReleaseRule, Work
from shared.wire.gpu import Train

STEPS, BATCH = 5, 8
TOLD = ReleaseRule(4, BATCH)


def entered(ledger: Ledger, number: int, rule: ReleaseRule = TOLD) -> Work:
    """A training that has made all of its steps, and failed before its end."""
    train = Train(
        work=f"w{number}", visit="v_aaaaaaaaaaaaaaaa", region=1, records=BATCH * STEPS, first_step=0, steps=STEPS
    )
    work = Work(train, batch=BATCH, own_data=False)
    ledger.begin(work)
    for step in range(STEPS):
        work.note(step, step / 7, rule)
    ledger.running, work.state = None, "failed"
    return work


def test_losses_are_kept_of_the_newest_works_alone() -> None:
    ledger = Ledger()
    works = [entered(ledger, number) for number in range(REMEMBERED)]
    assert sum(len(work.losses) for work in ledger.works.values()) == LOSSES_KEPT * STEPS
    last, first = works[-1].tell(TOLD, 1), works[0].tell(TOLD, 1)
    assert [step for step, _ in last.losses] == [1, 2, 3, 4]
    assert (first.losses, first.steps_done, last.steps_done) == ([], STEPS, STEPS), "a repeat counts as before"
    works[0].end = Finished(0.5, BATCH * STEPS, STEPS, 0.1, True, 1.0)
    assert works[0].tell(TOLD, 0).loss == 0.5


@pytest.mark.parametrize("rule", [ReleaseRule(4, 1, withheld=True), ReleaseRule(4, BATCH + 1)], ids=["private", "few"])
def test_a_loss_that_may_not_be_told_is_not_kept(rule: ReleaseRule) -> None:
    work = entered(Ledger(), 1, rule)
    assert [loss for _, loss in work.losses] == [None] * STEPS
    assert work.tell(rule, 0).steps_done == STEPS
    own = Work(work.command, batch=BATCH, own_data=True)
    own.note(0, 0.25, rule)
    assert own.tell(rule, 0).losses == [(0, 0.25)], "the owner's own records have no floor"
