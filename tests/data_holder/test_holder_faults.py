"""A fault of the holder's own program: it is told, and what it hit is tried again."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from data_holder.datasets import RecordTree
from tests.data_holder.conftest import Start
from tests.data_holder.test_holder_approvals import asked


async def test_a_fault_of_the_program_is_shown_by_its_frames_and_tried_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had ended what serves the session, and the whole engine with it: the holder was never heard of again."""
    faults, tree = [], RecordTree.__init__

    def faulty(self: RecordTree, *arguments: Any, **options: Any) -> None:
        if len(faults) < 2:
            faults.append(1)
            raise SystemError("error return without exception set")
        tree(self, *arguments, **options)

    log = Mock()
    monkeypatch.setattr(RecordTree, "__init__", faulty)
    monkeypatch.setattr("data_holder.commitments._log", log)
    async with start() as running:
        await asked(running)
        await running.until(lambda: running.orchestrator.approvals)
        assert running.orchestrator.approvals[0].decision == "approve"
        assert len(faults) == 2
    told = [call.kwargs["exc_info"] for call in log.warning.call_args_list]
    assert [type(error) for error in told] == [SystemError] * 2, "its frames are in the log"


@pytest.mark.parametrize("listed", ["undelivered", "unconsidered"])
async def test_a_fault_in_what_is_looked_at_each_second_ends_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch, listed: str
) -> None:
    """It had ended the listening as well: the holder was alive, and heard of no session any more."""
    faults: list[int] = []
    monkeypatch.setattr("data_holder.runner.TEND_S", 0.01)
    async with start() as running:
        approvals = running.holder.approvals
        of = approvals.delivery if listed == "undelivered" else approvals
        look = getattr(of, listed)

        async def faulty() -> list[str]:
            faults.append(1)
            if len(faults) < 3:
                raise RuntimeError("as a bug would")
            return list(await look())

        monkeypatch.setattr(of, listed, faulty)
        await running.until(lambda: len(faults) > 3)
        await asked(running)
        await running.until(lambda: running.orchestrator.approvals)
        assert running.orchestrator.approvals[0].decision == "approve"
