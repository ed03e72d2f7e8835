"""Who believes whom, as the operator is shown it; and answers of the orchestrator that are none, which are its fault and no defect here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import httpx2
import pytest

from data_holder import opening, receipt_book, runner
from data_holder.opening import NOT_BELIEVED, NOT_TRUSTED
from shared.errors import Unavailable, VerificationFailed
from shared.wire.visit import GpuEvidence
from tests.data_holder.conftest import Running
from tests.data_holder.holder_answers import answering
from tests.data_holder.holder_world import SESSION, make_manifest, problem

MALFORMED: dict[str, Any] = {
    "a list": [], "nothing": None, "a part of it": {"state": "open"}, "one more field": {"channel": "c_1", "state": "open", "more": 1},
    "another kind": {"channel": 7, "state": "open"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "TEND_S", 0.01)
    monkeypatch.setattr(opening, "FIRST_PAUSE_S", 0.01)


async def approved(running: Running) -> None:
    running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
    await running.until(lambda: running.orchestrator.approvals)


async def shown(running: Running) -> str:
    return (await running.get(f"/v1/requests/{SESSION}"))["waiting_for"] or ""


async def until_shown(running: Running, condition: Callable[[str], bool]) -> None:
    """The session's worker writes it into the database in its own time."""
    for _ in range(12_000):
        if condition(await shown(running)):
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"shown is {await shown(running)!r}")


def false_report(challenge: str) -> GpuEvidence:
    return GpuEvidence(report="BBBB", chain="PEM", challenge=challenge, th2="22" * 48, epoch=0)


def counted(running: Running) -> dict[str, int]:
    return running.holder.runner.distrust.read()


async def test_distrust_is_shown_until_the_orchestrator_is_believed(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator had read for the rest of the session that nothing could come of it."""
    await approved(running)
    with monkeypatch.context() as patch:
        patch.setattr(running.orchestrator, "_gpu", false_report)
        running.orchestrator.post("channel_wanted")
        await running.until(lambda: counted(running))
        await until_shown(running, lambda text: text.startswith(f"{NOT_TRUSTED} (gpu-report: "))
    assert sum(counted(running).values()) == 1
    running.orchestrator.post("channel_wanted")
    await running.until(running.open_channel)
    await until_shown(running, lambda text: not text)


async def test_what_somebody_else_has_shown_meanwhile_stays(running: Running) -> None:
    await approved(running)
    await until_shown(running, lambda text: not text)  # the decision is delivered
    awaiting = running.holder.runner._approvals.awaiting
    await awaiting.show(SESSION, "x" * 300)
    await awaiting.over(SESSION, (NOT_TRUSTED, NOT_BELIEVED))
    assert await shown(running) == "x" * 200


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_an_orchestrator_that_does_not_believe_this_holder_is_not_shown_as_disbelieved_by_it(
    running: Running, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """The operator looked for the fault at the orchestrator, and it lay in this holder's own evidence."""
    await approved(running)
    part = f"/v1/sessions/{SESSION}/channels" + ("/" if method == "PUT" else "")
    asked = answering(running, monkeypatch, part, lambda number: problem(403, "Verification failed", "tcb-status"))
    running.orchestrator.post("channel_wanted")
    await running.until(lambda: asked)
    await until_shown(running, lambda text: text.startswith(f"{NOT_BELIEVED} (tcb-status: "))
    assert not counted(running)
    assert not running.holder.runner._openings.wanted, "whoever asks again has it tried again"


@pytest.mark.parametrize("answer", MALFORMED)
@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_an_answer_that_is_no_channel_is_refused_by_name_and_not_tried_again(
    running: Running, monkeypatch: pytest.MonkeyPatch, method: str, answer: str
) -> None:
    """It was a fault in this program, with its frames, tried each second without end."""
    await approved(running)
    log = Mock()
    monkeypatch.setattr(runner, "_log", log)
    part = f"/v1/sessions/{SESSION}/channels" + ("/" if method == "PUT" else "")
    asked = answering(
        running, monkeypatch, part, lambda number: httpx2.Response(200, content=json.dumps(MALFORMED[answer]))
    )
    running.orchestrator.post("channel_wanted")
    await running.until(lambda: log.error.called or log.exception.called)
    assert log.error.call_args.kwargs["code"] == "channel-malformed"
    assert not log.exception.called
    assert (len(asked), counted(running)) == (1, {"channel-malformed": 1})
    assert (await shown(running)).startswith(f"{NOT_TRUSTED} (channel-malformed")
    assert not running.holder.runner._again.of(SESSION)
    assert not running.holder.ledger.state(SESSION).channels


async def test_an_answer_that_offers_no_share_is_refused_by_name(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running.approved_with_channel()
    release: Any = running.holder.runner._release
    approval = running.holder.runner._approvals.approved(SESSION)
    monkeypatch.setattr(release, "_may", lambda session: returned((approval, None, b"")))
    answering(running, monkeypatch, "/share-offers", lambda number: httpx2.Response(201, json={"offer": 7}))
    with pytest.raises(VerificationFailed) as refused:
        await release.wanted(SESSION)
    assert refused.value.code == "share-offer-malformed"


async def returned(value: Any) -> Any:
    return value


LISTS: dict[str, tuple[Any, str]] = {
    "no list": ([1], "no page"),
    "no items": ({"next": None}, "no page"),
    "items of another kind": ({"items": ["a"], "next": None}, "no page"),
    "a cursor of another kind": ({"items": [], "next": 7}, "no page"),
    "no bytes": ({"items": [{"holder": "north", "index": 0}], "next": None}, "malformed"),
    "bytes that are none": ({"items": [{"holder": "north", "index": 0, "cose": "?"}], "next": None}, "malformed"),
    **{
        f"{index!r}, no index": (
            {"items": [{"holder": "north", "index": index, "cose": ""}], "next": None},
            "malformed",
        )
        for index in ("0", -1, True, 0.0, 2**53, 2**64)
    },
    "no end": ({"items": [{"holder": "south"}], "next": "again"}, "no end"),
}


@pytest.mark.parametrize("answer", LISTS)
async def test_a_list_of_receipts_that_is_none_is_refused_by_name(
    running: Running, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    await running.approved_with_channel()
    monkeypatch.setattr(receipt_book, "MAX_PAGES", 3)
    said, why = LISTS[answer]
    asked = answering(running, monkeypatch, "/receipts", lambda number: httpx2.Response(200, json=said))
    with pytest.raises(VerificationFailed, match=why) as refused:
        await running.holder.runner._receipts.fetch_missed(SESSION)
    assert refused.value.code == "receipts-malformed"
    assert len(asked) == (3 if answer == "no end" else 1)


async def test_a_list_that_is_not_answered_is_asked_for_again_later(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running.approved_with_channel()
    answering(running, monkeypatch, "/receipts", lambda number: problem(503, "Unavailable", "away"))
    with pytest.raises(Unavailable):
        await running.holder.runner._receipts.fetch_missed(SESSION)


async def test_a_decision_that_is_said_once_more_hides_nothing_that_is_shown_since(running: Running) -> None:
    """Two may say it at once, and whoever comes last is no news: the session waits for something else by then."""
    await approved(running)
    await until_shown(running, lambda text: not text)
    await running.holder.runner._approvals.awaiting.show(SESSION, NOT_TRUSTED)
    await running.holder.runner._approvals.delivery.send(SESSION)
    assert await shown(running) == NOT_TRUSTED
