"""A receipt is held to what the journal says that this holder did: who writes its database has no key for that."""

from __future__ import annotations

import sqlalchemy as sa

from data_holder.protocol.visit import HolderFact
from data_holder.tables.schema import VISITS
from data_holder.visit_facts import VisitFacts
from shared.claims.visit import VisitTimers
from shared.wire.visit import VisitReport
from tests.data_holder.conftest import Running
from tests.data_holder.holder_receipts import told, visited
from tests.data_holder.holder_world import SESSION, visit_key


async def test_what_the_database_says_of_a_visit_makes_no_receipt_false_and_none_true(running: Running) -> None:
    """Until the visit is settled its report counts, as it stands in the journal: who writes the table of visits has no key for that."""
    document, report = await visited(running)
    said = {"count": 19, "length": 7, "commitment": "00" * 32, "visit": "v_bbbbbbbbbbbbbbbb"}
    await running.holder.store.write(lambda connection: connection.execute(sa.update(VISITS).values(**said)))
    false = {"records": 19, "length": 7, "commitment": "00" * 32}
    for changes, verified in ((false, False), ({}, True)):
        index = running.orchestrator.close_visit(running.orchestrator.make_receipt(document, report, **changes))
        shown = await told(running, index)
        assert shown["verified"] is verified, [check for check in shown["checks"] if not check["ok"]]


async def test_of_a_visit_that_was_not_provisioned_no_receipt_is_believed(running: Running) -> None:
    """Whatever its row says: the journal knows no report of it, whether it is under way or given up."""
    await running.approved_with_channel()
    made, document = running.orchestrator.make_offer(visit_key())
    running.orchestrator.send_offer(made)  # and the GPU takes no record
    await running.until(lambda: running.attempt_phase(1) == "VERIFIED")
    grant, timers = document.grant, VisitTimers(grab_gpu=0, import_key=0, buffer_read=0, gpu_write=0, export_key=0)
    report = VisitReport(
        visit=grant.visit, epoch=1, records=grant.records, length=grant.length, commitment="ab" * 32, timers=timers, bytes_sent=1
    )  # fmt: skip
    said = {"count": report.records, "length": report.length, "commitment": report.commitment}
    for phase in ("VERIFIED", None):
        await running.until(lambda phase=phase: running.attempt_phase(1) == phase)
        await running.holder.store.write(lambda connection: connection.execute(sa.update(VISITS).values(**said)))
        shown = await told(
            running, running.orchestrator.close_visit(running.orchestrator.make_receipt(document, report))
        )
        assert "own visit" in [check["check"] for check in shown["checks"] if not check["ok"]]


async def test_a_receipt_of_a_visit_that_is_over_is_held_to_what_was_reported(running: Running) -> None:
    """The next offer came first. What the row says of it makes no receipt false, and none true."""
    document, report = await visited(running)
    await VisitFacts(running.holder.ledger, running.clock).settle(SESSION, HolderFact.SUPERSEDED)
    said = {"count": 19, "length": 7, "commitment": "00" * 32}
    await running.holder.store.write(lambda connection: connection.execute(sa.update(VISITS).values(**said)))
    false = {"records": 19, "length": 7, "commitment": "00" * 32}
    for changes, verified in ((false, False), ({}, True)):
        index = running.orchestrator.close_visit(running.orchestrator.make_receipt(document, report, **changes))
        shown = await told(running, index)
        assert shown["verified"] is verified, [check for check in shown["checks"] if not check["ok"]]
