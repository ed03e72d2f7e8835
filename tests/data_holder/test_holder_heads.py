"""The head a holder remembers: durable before it acts on the offer that showed it, and stated to every start that asks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from data_holder.keyring import JOURNAL_LABEL
from data_holder.ledger import Ledger
from data_holder.protocol.state import RememberedHead
from data_holder.runner import TEND_S
from shared.errors import GputError
from shared.protocol.merkle import EMPTY_ROOT, leaf_hash
from shared.service.store import Store
from tests.data_holder.conftest import Running, Start
from tests.data_holder.holder_world import SESSION, make_manifest, visit_key


def asked(number: int) -> str:
    return f"{number:02x}" * 32


async def visit(running: Running, epoch: int = 1) -> RememberedHead:
    """Send an offer; the head it shows."""
    made, document = running.orchestrator.make_offer(visit_key(epoch), epoch=epoch)
    running.gpu.install(document, visit_key(epoch))
    running.orchestrator.send_offer(made)
    return RememberedHead(document.log_size, bytes.fromhex(document.log_root))


async def stated(running: Running, count: int) -> RememberedHead:
    await running.until(lambda: len(running.orchestrator.head_statements) >= count)
    newest = running.orchestrator.head_statements[-1]
    return RememberedHead(newest.size, newest.root)


async def on_disk(running: Running) -> RememberedHead | None:
    """What another process would read from the holder's database at this moment."""
    store = Store(running.holder.store.url)
    await store.open()
    try:
        ledger = Ledger(store, running.clock)
        await ledger.open(await running.holder.foundation.guest.derived_key(JOURNAL_LABEL))
        return ledger.state(SESSION).head
    finally:
        await store.close()


async def test_a_head_is_durable_before_the_first_byte_goes_to_the_gpu(running: Running) -> None:
    seen: list[RememberedHead | None] = []

    async def look(_index: int) -> None:
        if not seen:
            seen.append(await on_disk(running))

    await running.approved_with_channel()
    running.orchestrator.leaves = [b"one", b"two"]
    assert await on_disk(running) is None
    assert (await running.get(f"/v1/requests/{SESSION}"))["log_head"] is None
    running.gpu.hook = look
    shown = await visit(running)
    await running.until(lambda: running.orchestrator.reports)
    assert shown.size == 2
    assert seen == [shown]
    told = (await running.get(f"/v1/requests/{SESSION}"))["log_head"]
    assert told == f"2:{shown.root.hex()}", "as an auditor's --head takes it"


async def test_without_a_memory_the_empty_log_is_stated(running: Running) -> None:
    running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
    await running.until(lambda: running.orchestrator.approvals)
    running.orchestrator.ask_head(asked(1))
    assert await stated(running, 1) == RememberedHead(0, EMPTY_ROOT)


async def test_the_newest_verified_receipt_is_stated_with_the_head(start: Start) -> None:
    async with start() as running:
        await running.approved_with_channel()
        made, document = running.orchestrator.make_offer(visit_key())
        running.gpu.install(document, visit_key())
        running.orchestrator.send_offer(made)
        await running.until(lambda: running.attempt_phase(1) == "REPORTED")
        true, false = (
            running.orchestrator.make_receipt(document, running.orchestrator.reports[0], **changes)
            for changes in ({}, {"records": 19})
        )
        running.orchestrator.close_visit(true)
        running.orchestrator.close_visit(false)  # kept and shown as false, and never stated
        await running.until(lambda: running.attempt_phase(1) is None)
    async with start() as again:
        again.orchestrator.ask_head(asked(1))
        assert await stated(again, 1) == RememberedHead(0, EMPTY_ROOT)
        assert again.orchestrator.head_statements[-1].receipt == leaf_hash(true)


async def test_each_start_is_answered_over_its_own_challenge_also_after_a_restart(start: Start) -> None:
    async with start() as running:
        await running.approved_with_channel()
        running.orchestrator.leaves = [b"one", b"two"]
        shown = await visit(running)
        await running.until(lambda: running.orchestrator.reports)
        running.orchestrator.ask_head(asked(1))
        assert await stated(running, 1) == shown
    async with start() as again:
        again.orchestrator.ask_head(asked(2))
        assert await stated(again, 2) == shown
        assert again.holder.runner._heads.unanswered == {}


async def test_an_orchestrator_that_does_not_answer_is_told_until_it_has_heard(running: Running) -> None:
    await running.approved_with_channel()
    running.orchestrator.lost_answers = 1
    running.orchestrator.ask_head(asked(1))
    await running.until(lambda: running.orchestrator.head_statements)
    await running.until(lambda: not running.holder.runner._heads.unanswered)


async def test_an_orchestrator_that_went_away_is_told_when_it_is_back(running: Running) -> None:
    await running.approved_with_channel()
    running.orchestrator.down = True
    running.orchestrator.challenge = asked(1)
    running.holder.runner._heads.unanswered[SESSION] = asked(1)
    await asyncio.sleep(0.1)
    assert running.orchestrator.head_statements == []
    running.orchestrator.down = False
    assert await stated(running, 1) == RememberedHead(0, EMPTY_ROOT)


async def test_a_newer_question_is_not_lost_behind_an_older_answer(running: Running) -> None:
    """The orchestrator was started again while the answer to its earlier start was still on the way."""
    await running.approved_with_channel()
    slow, heads, link = asyncio.Event(), running.holder.runner._heads, running.holder.orchestrator
    send = link.send

    async def late(*arguments: Any, **named: Any) -> Any:
        await slow.wait()
        return await send(*arguments, **named)

    link.send = late  # type: ignore[method-assign]  # only for this answer
    first = asyncio.create_task(heads.asked(SESSION, asked(1)))
    await asyncio.sleep(0)
    link.send = send  # type: ignore[method-assign]
    running.orchestrator.ask_head(asked(2))
    await running.until(lambda: heads.unanswered == {SESSION: asked(2)})
    assert running.orchestrator.head_statements == []
    slow.set()
    with pytest.raises(GputError):  # its challenge is nobody's any more
        await first
    await running.until(lambda: running.orchestrator.head_statements)
    await running.until(lambda: heads.unanswered == {})


async def test_a_refused_statement_is_not_repeated(running: Running) -> None:
    """An answer to a start that is over: the next start asks by itself."""
    await running.approved_with_channel()
    running.orchestrator.refuse_heads = "head-challenge"
    running.orchestrator.ask_head(asked(1))
    await running.until(lambda: running.orchestrator.heads_refused)
    await asyncio.sleep(TEND_S * 1.5)  # the outbox has come by once more
    assert running.orchestrator.heads_refused == 1
    running.orchestrator.refuse_heads = ""
    running.orchestrator.ask_head(asked(2))
    await stated(running, 1)


async def test_a_veto_is_said_again_to_whoever_asks_as_if_it_had_not_been(running: Running) -> None:
    await running.approved_with_channel()
    manifest = running.orchestrator.manifest.digest().hex()  # type: ignore[union-attr]  # set by ask_approval
    await running.client.post(f"/v1/requests/{SESSION}/veto", json={"manifest": manifest, "reason": "consent"})
    decisions, words = len(running.orchestrator.approvals), running.orchestrator.approval_bytes[-1]
    running.orchestrator.ask_head(asked(1))
    await stated(running, 1)
    assert len(running.orchestrator.approvals) == decisions + 1
    assert running.orchestrator.approval_bytes[-1] == words
    assert running.orchestrator.approvals[-1].decision == "veto"


async def test_an_approval_is_not_said_again(running: Running) -> None:
    await running.approved_with_channel()
    running.orchestrator.ask_head(asked(1))
    await stated(running, 1)
    assert [word.decision for word in running.orchestrator.approvals] == ["approve"]


async def test_the_last_head_of_an_ended_session_is_remembered_and_stated(running: Running) -> None:
    await running.approved_with_channel()
    await visit(running)
    await running.until(lambda: running.orchestrator.reports)
    running.orchestrator.leaves = [b"one", b"two", b"three"]
    running.orchestrator.post("ended", phase="COMPLETED")
    await running.until(lambda: running.holder.ledger.state(SESSION).ended)
    last = running.orchestrator.head()
    assert await on_disk(running) == RememberedHead(3, last.root)
    running.orchestrator.ask_head(asked(1))
    assert await stated(running, 1) == RememberedHead(3, last.root)


async def test_a_session_that_was_never_offered_here_gets_no_statement(running: Running) -> None:
    await running.approved_with_channel()
    running.orchestrator.ask_head(asked(1), session="s_bbbbbbbbbbbbbbbb")
    running.orchestrator.ask_head(asked(2))
    await stated(running, 1)
    assert len(running.orchestrator.head_statements) == 1
    assert running.holder.runner._heads.unanswered == {}
