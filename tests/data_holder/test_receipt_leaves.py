"""Which leaf of the log a receipt is: nobody signs it, so the log decides where two things are said."""

from __future__ import annotations

from functools import partial

import pytest

from shared.errors import VerificationFailed
from tests.data_holder.conftest import Running
from tests.data_holder.holder_world import SESSION, b64
from tests.data_holder.test_holder_visits import visit


def reported(running: Running, epoch: int) -> bool:
    return running.attempt_phase(epoch) == "REPORTED"


async def two_receipts(running: Running) -> list[bytes]:
    """Of two visits, in the log in this order; none of them sent."""
    await running.approved_with_channel()
    orchestrator = running.orchestrator
    for epoch in (1, 2):
        document = await visit(running, epoch=epoch, visit=f"v_{epoch:016}", round=epoch)
        await running.until(partial(reported, running, epoch))
        orchestrator.leaves.append(orchestrator.make_receipt(document, orchestrator.reports[-1]))
    orchestrator.receipts = [
        {"index": index, "holder": "north", "cose": b64(cose)} for index, cose in enumerate(orchestrator.leaves)
    ]
    return orchestrator.leaves


@pytest.mark.parametrize("then", ["the true one of that leaf", "its own leaf", "nothing"])
async def test_a_leaf_that_the_wire_made_up_gives_way_to_the_true_one(running: Running, then: str) -> None:
    """Nothing signs the index beside a receipt. The true receipt of that leaf had been refused for good, as if the log had been changed."""
    first, second = await two_receipts(running)
    book = running.holder.runner._receipts
    await book.receive(SESSION, first, 1)
    if then == "the true one of that leaf":
        await book.receive(SESSION, second, 1)
    if then == "its own leaf":
        await book.receive(SESSION, first, 0)
    await book.receive(SESSION, first, 0)
    running.orchestrator.post("ended", phase="COMPLETED")
    await running.until(lambda: running.holder.ledger.state(SESSION).ended)
    items = (await running.get("/v1/receipts"))["items"]
    assert [(one["index"], one["visit"], one["verified"]) for one in items] == [
        (0, "v_0000000000000001", True), (1, "v_0000000000000002", True),
    ]  # fmt: skip
    assert all(one["checks"][-1]["check"] == "log inclusion" for one in items)


async def test_a_kept_receipt_gives_way_to_no_leaf_that_is_not_proven(running: Running) -> None:
    first, second = await two_receipts(running)
    book = running.holder.runner._receipts
    await book.receive(SESSION, first, 0)
    await book.receive(SESSION, first, 1)  # kept anyway, and not there
    await book.receive(SESSION, first, 7)  # no signed head reaches so far
    with pytest.raises(VerificationFailed) as caught:
        await book.receive(SESSION, second, 0)
    assert caught.value.code == "receipt-changed"
    assert [one["index"] for one in (await running.get("/v1/receipts"))["items"]] == [0]


@pytest.mark.parametrize("changes", [{"epoch": 2**63}, {"closed_at": 2**53}, {"closed_at": -1}, {"length": 2**64 - 1}])
async def test_a_number_that_no_table_and_no_page_can_hold_is_no_receipts(
    running: Running, changes: dict[str, int]
) -> None:
    await running.approved_with_channel()
    document = await visit(running, epoch=1, visit=f"v_{1:016}", round=1)
    await running.until(partial(reported, running, 1))
    cose = running.orchestrator.make_receipt(document, running.orchestrator.reports[-1], **changes)
    with pytest.raises(VerificationFailed) as caught:
        await running.holder.runner._receipts.receive(SESSION, cose, 0)
    assert caught.value.code == "receipt-malformed"
    assert (await running.get("/v1/receipts"))["items"] == []
