"""A receipt is held to what the journal says that this holder did: who writes its database has no key for that."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from data_holder.protocol.visit import HolderFact
from data_holder.tables.schema import VISITS
from data_holder.visit_facts import VisitFacts
from shared.claims.visit import VisitTimers
from shared.wire.visit import OfferDocument, VisitReport
from tests.data_holder.conftest import Running
from tests.data_holder.holder_receipts import told, visited
from tests.data_holder.holder_world import SESSION, visit_key

FALSE = {"records": 19, "length": 7, "commitment": "00" * 32}


async def rewrite(running: Running, **said: Any) -> None:
    """What whoever has the database makes the holder's rows of visits say."""
    await running.holder.store.write(lambda connection: connection.execute(sa.update(VISITS).values(**said)))


async def told_of(running: Running, document: OfferDocument, report: VisitReport, **changes: Any) -> dict[str, Any]:
    """What the holder says of a receipt of this visit."""
    cose = running.orchestrator.make_receipt(document, report, **changes)
    return await told(running, running.orchestrator.close_visit(cose))


@pytest.mark.parametrize("over", [False, True], ids=["under way", "over, for the next offer came first"])
async def test_what_the_database_says_of_a_visit_makes_no_receipt_false_and_none_true(
    over: bool, running: Running
) -> None:
    document, report = await visited(running)
    if over:
        await VisitFacts(running.holder.ledger, running.clock).settle(SESSION, HolderFact.SUPERSEDED)
    await rewrite(running, count=19, length=7, commitment="00" * 32, visit="v_bbbbbbbbbbbbbbbb")
    assert (await told_of(running, document, report, **FALSE))["verified"] is False
    shown = await told_of(running, document, report)
    assert shown["verified"] is True, [check for check in shown["checks"] if not check["ok"]]


async def test_of_a_visit_that_was_not_provisioned_no_receipt_is_believed(running: Running) -> None:
    """Whatever its row says: the journal knows no report of it, whether it is under way or given up."""
    await running.approved_with_channel()
    made, document = running.orchestrator.make_offer(visit_key())
    running.gpu.install(document, visit_key())
    running.gpu.unbound = 10**9  # it does not come
    running.orchestrator.send_offer(made)
    await running.until(lambda: running.attempt_phase(1) == "VERIFIED")
    grant, timers = document.grant, VisitTimers(grab_gpu=0, import_key=0, buffer_read=0, gpu_write=0, export_key=0)
    report = VisitReport(
        visit=grant.visit, epoch=1, records=grant.records, length=grant.length, commitment="ab" * 32, timers=timers, bytes_sent=1
    )  # fmt: skip
    await rewrite(running, count=report.records, length=report.length, commitment=report.commitment)
    under_way = await told_of(running, document, report)
    assert running.attempt_phase(1) == "VERIFIED"
    running.gpu.unbound, running.gpu.refuse_with = 0, "copy-refused"
    await running.until(lambda: running.attempt_phase(1) is None)
    given_up = await told_of(running, document, report, closed_at=int(under_way["closed_at"]) + 1)
    for shown in (under_way, given_up):
        assert "own visit" in [check["check"] for check in shown["checks"] if not check["ok"]]
