"""Receipts: what a true one proves to this holder, and which check each false one fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from data_holder import receipt_book
from data_holder.receipts import Check, _accumulation, _end, _first_link, _mixture
from shared.canonical.zeros import zeros_digest
from shared.claims.manifest import Contributor, Predecessor, Validation
from shared.claims.receipt import Accumulated, DeviceStatement, Mixed, Receipt
from shared.crypto.signing import PartyKey
from shared.protocol.mixture import mixture_seed
from tests.data_holder.conftest import Running, Start
from tests.data_holder.holder_receipts import told, visited
from tests.data_holder.holder_world import BUFFER_BYTES, SESSION, b64, make_manifest


async def stored(running: Running) -> dict[str, Any]:
    for _ in range(400):
        items = (await running.get("/v1/receipts"))["items"]
        if items:
            return dict(items[0])
        await asyncio.sleep(0.01)
    raise AssertionError("no receipt was stored")


async def test_a_true_receipt_ends_the_visit(running: Running) -> None:
    document, report = await visited(running)
    cose = running.orchestrator.make_receipt(document, report)
    index = running.orchestrator.close_visit(cose)
    shown = await stored(running)
    assert shown["verified"], [check for check in shown["checks"] if not check["ok"]]
    assert shown["backend"] == "EMULATED"
    assert (await running.get(f"/v1/visits/{document.grant.visit}"))["phase"] == "DONE"
    full = await running.get(f"/v1/receipts/{SESSION}/{index}")
    assert full["receipt"] == b64(cose)
    assert full["statement"]["commitment"] == report.commitment
    raw = await running.client.get(f"/v1/receipts/{SESSION}/{index}/cose")
    assert raw.content == cose
    running.orchestrator.post("receipt", receipt=b64(cose), receipt_index=index)  # again: nothing happens
    await asyncio.sleep(0.05)
    assert len((await running.get("/v1/receipts"))["items"]) == 1


FALSE: dict[str, tuple[dict[str, Any], str]] = {
    "device's signature": ({"device_key": PartyKey.generate(lambda n: b"\x09" * n)}, "device signature"),
    "commitment": ({"commitment": "00" * 32}, "own data: commitment"),
    "records": ({"records": 19}, "own data: records"),
    "program": ({"program": "00" * 48}, "statement: program"),
    "device": ({"device": "cd" * 8}, "statement: device"),
    "no scrub": ({"scrubbed_bytes": 0}, "scrubbed"),
    "a part of the buffer scrubbed": ({"scrubbed_bytes": BUFFER_BYTES // 2}, "statement: scrubbed bytes"),
    "something else read back than zeros": ({"scrub_digest": "33" * 32}, "statement: scrub digest"),
    "a model that learnt from what was rejected": ({"outcome": "rejected"}, "statement: model after a rejected visit"),
    "more steps than a visit has": ({"steps": 1000}, "statement: records trained on"),
    "fewer steps, and closed": ({"steps": 4}, "statement: records trained on"),
    "more steps than a visit has, and rejected": (
        {"steps": 6, "outcome": "rejected", "model_after": "11" * 32}, "statement: records trained on",
    ),
    "travel mode": ({"travel_mode": "paper"}, "statement: travel_mode"),
    "no fence": ({"fence_epoch": 1}, "fence after visit"),
    "manifest": ({"manifest": "00" * 32}, "receipt: manifest"),
    "holder": ({"holder": "south"}, "statement: holder"),
    "gpu evidence": ({"gpu_evidence": "00" * 32}, "channel: gpu_evidence"),
    "holder's runtime": ({"holder_runtime_data": "00" * 32}, "channel: holder_runtime_data"),
    "round": ({"round": 2}, "own visit: round"),
    "privacy that nobody agreed": ({"privacy_spent": {"epsilon": 0.1, "delta": 1e-5}}, "receipt: privacy_spent"),
}  # fmt: skip


async def test_a_false_receipt_is_kept_and_shown_as_false(running: Running) -> None:
    document, report = await visited(running)
    for name, (changes, check) in FALSE.items():
        index = running.orchestrator.close_visit(running.orchestrator.make_receipt(document, report, **changes))
        shown = await told(running, index)
        assert (name, shown["verified"]) == (name, False)
        assert check in [c["check"] for c in shown["checks"] if not c["ok"]], name
    # None of them settles the visit; the true one still does.
    assert (await running.get(f"/v1/visits/{document.grant.visit}"))["phase"] == "REPORTED"
    running.orchestrator.close_visit(running.orchestrator.make_receipt(document, report))
    await running.until(lambda: running.attempt_phase(1) is None)


async def test_a_visit_that_was_rejected_leaves_the_model_as_it_was(running: Running) -> None:
    """It may have ended before its last step."""
    document, report = await visited(running)
    changes = {"outcome": "rejected", "model_after": "11" * 32, "steps": 3}
    index = running.orchestrator.close_visit(running.orchestrator.make_receipt(document, report, **changes))
    shown = await told(running, index)
    assert shown["verified"], [check for check in shown["checks"] if not check["ok"]]


ADDED = Accumulated(before="44" * 32, after="55" * 32, batches=5)


@pytest.mark.parametrize(
    ("agreed", "accumulated", "model_after", "false"),
    [
        (None, None, "22" * 32, []),
        ("tour", ADDED, "11" * 32, []),
        (None, ADDED, "11" * 32, ["statement: accumulated"]),
        ("tour", None, "11" * 32, ["statement: accumulated"]),
        ("tour", ADDED, "22" * 32, ["statement: model_after"]),
    ],
)
def test_a_visit_of_a_tour_adds_to_the_gradients_and_changes_no_model(
    agreed: str | None, accumulated: Accumulated | None, model_after: str, false: list[str]
) -> None:
    said = DeviceStatement.model_construct(model_before="11" * 32, model_after=model_after, accumulated=accumulated)
    checks: list[Check] = []
    _accumulation(checks, said, make_manifest("ab" * 32, accumulate=agreed))
    assert [check.check for check in checks if not check.ok] == false


@pytest.mark.parametrize(
    ("outcome", "after", "sound"),
    [("closed", 1.25, True), ("closed", 1.5, False), ("rejected", 1.5, True), ("closed", None, True)],
)
def test_a_visit_was_accepted_by_the_manifests_rule(outcome: str, after: float | None, sound: bool) -> None:
    rule = Validation(dataset="ab" * 32, records=8, max_loss_increase=0.25)
    agreed = make_manifest("ab" * 32).model_copy(update={"validation": rule})
    holder = agreed.roster[0].holder
    steps = agreed.steps_for(holder)
    said = DeviceStatement.model_construct(
        model_before="11" * 32, model_after="11" * 32, steps=steps, records=steps * agreed.training.batch_size,
        scrubbed_bytes=agreed.buffer_bytes, scrub_digest=zeros_digest(agreed.buffer_bytes).hex(),
    )  # fmt: skip
    receipt = Receipt.model_construct(
        outcome=outcome, holder=holder, validation_before=1.0, validation_after=after, losses_released=False
    )
    checks: list[Check] = []
    _end(checks, receipt, said, agreed, holder)
    failed = [check.check for check in checks if not check.ok]
    assert failed == ([] if sound else ["receipt: held-out loss of an accepted visit"])


START = Predecessor(
    session="s_aaaaaaaaaaaaaaaa", manifest="0" * 64, model="11" * 32, optimiser="0" * 64, step=20, log_size=1, log_root="0" * 64,
    contributors=(Contributor(holder="south", key="0" * 64, records=1),),
)  # fmt: skip


@pytest.mark.parametrize(
    ("step", "model", "false"),
    [
        (20, "11" * 32, []),
        (25, "22" * 32, []),
        (20, "22" * 32, ["predecessor: model_before"]),
        (15, "11" * 32, ["statement: after its predecessor"]),
    ],
)
def test_a_session_begins_where_its_predecessor_came_to_rest(step: int, model: str, false: list[str]) -> None:
    said = DeviceStatement.model_construct(model_before=model, first_step=step)
    checks: list[Check] = []
    _first_link(checks, said, make_manifest("ab" * 32, predecessor=START))
    assert [check.check for check in checks if not check.ok] == false
    none: list[Check] = []
    _first_link(none, said, make_manifest("ab" * 32))
    assert none == []


SEED = mixture_seed(make_manifest("ab" * 32).training.seed, 2)
MIXED = Mixed(round=2, seed=SEED, visits=3, records=48, first=16)


@pytest.mark.parametrize(
    ("agreed", "mixed", "false"),
    [
        ("visit", None, []),
        ("tour", MIXED, []),
        ("visit", MIXED, ["statement: mixed"]),
        ("tour", None, ["statement: mixed"]),
        ("tour", MIXED.model_copy(update={"round": 1}), ["statement: mixed: round"]),
        ("tour", MIXED.model_copy(update={"seed": SEED + 1}), ["statement: mixed: seed"]),
        ("tour", MIXED.model_copy(update={"first": 40}), ["statement: mixed: place"]),
    ],
)
def test_a_visit_of_a_collected_tour_was_mixed_in_the_agreed_order(
    agreed: str, mixed: Mixed | None, false: list[str]
) -> None:
    rules = make_manifest("ab" * 32, collect=agreed)
    said = DeviceStatement.model_construct(mixed=mixed, records=16)
    checks: list[Check] = []
    _mixture(checks, Receipt.model_construct(round=2), said, rules)
    assert [check.check for check in checks if not check.ok] == false


async def test_nobodys_receipt_is_not_stored(running: Running) -> None:
    document, report = await visited(running)
    for changes in ({"signer": PartyKey.generate()}, {"orchestrator_runtime_data": "00" * 32}):
        running.orchestrator.close_visit(running.orchestrator.make_receipt(document, report, **changes))
    running.orchestrator.close_visit(b"\xd2\x84nonsense")
    await asyncio.sleep(0.2)
    assert (await running.get("/v1/receipts"))["items"] == []


async def test_a_second_receipt_under_one_index_is_refused(running: Running) -> None:
    document, report = await visited(running)
    cose = running.orchestrator.make_receipt(document, report)
    index = running.orchestrator.close_visit(cose)
    await stored(running)
    other = running.orchestrator.make_receipt(document, report, validation_after=1.0)
    running.orchestrator.post("receipt", receipt=b64(other), receipt_index=index)
    await asyncio.sleep(0.05)
    assert (await running.get(f"/v1/receipts/{SESSION}/{index}"))["receipt"] == b64(cose)


async def test_missed_receipts_are_fetched_at_the_end_and_verify_after_a_restart(start: Start) -> None:
    async with start() as running:
        document, report = await visited(running)
        cose = running.orchestrator.make_receipt(document, report)
    running.orchestrator.leaves.append(cose)
    running.orchestrator.receipts = [
        {"index": 0, "holder": "north", "cose": b64(cose)},
        {"index": 1, "holder": "south", "cose": b64(b"not ours")},
    ]
    running.orchestrator.items.clear()
    async with start() as again:
        again.orchestrator.post("ended", phase="COMPLETED")
        await again.until(lambda: again.holder.ledger.state(SESSION).ended)
        shown = await stored(again)
        assert shown["verified"], shown["checks"]
        assert shown["checks"][-1] == {"check": "log inclusion", "ok": True, "detail": ""}
        assert (await again.get(f"/v1/requests/{SESSION}"))["phase"] == "COMPLETED"


async def test_receipts_of_several_pages_are_all_looked_up_in_the_log(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipt_book, "PAGE", 1)
    document, report = await visited(running)
    indexes = [
        running.orchestrator.close_visit(running.orchestrator.make_receipt(document, report, **changes))
        for changes in ({"records": 19}, {"commitment": "00" * 32}, {})
    ]
    await running.until(lambda: running.attempt_phase(1) is None)
    running.orchestrator.post("ended", phase="COMPLETED")
    await running.until(lambda: running.holder.ledger.state(SESSION).ended)
    for index in indexes:
        shown = await running.get(f"/v1/receipts/{SESSION}/{index}")
        assert shown["checks"][-1] == {"check": "log inclusion", "ok": True, "detail": ""}, index


async def test_a_receipt_that_is_not_in_the_log_loses_its_standing(running: Running) -> None:
    document, report = await visited(running)
    cose = running.orchestrator.make_receipt(document, report)
    running.orchestrator.close_visit(cose)
    assert (await stored(running))["verified"]
    running.orchestrator.leaves = [b"another leaf in its place", b"more"]
    running.orchestrator.post("ended", phase="COMPLETED")
    await running.until(lambda: running.holder.ledger.state(SESSION).ended)
    shown = await stored(running)
    assert not shown["verified"]
    assert shown["checks"][-1]["check"] == "log inclusion"
    assert not shown["checks"][-1]["ok"]


async def test_a_receipt_newer_than_the_signed_head_keeps_its_standing(running: Running) -> None:
    document, report = await visited(running)
    running.orchestrator.signed_head = running.orchestrator.head()
    running.orchestrator.close_visit(running.orchestrator.make_receipt(document, report))
    assert (await stored(running))["verified"]
    running.orchestrator.post("ended", phase="COMPLETED")
    await running.until(lambda: running.holder.ledger.state(SESSION).ended)
    assert (await stored(running))["verified"]


async def test_the_next_life_may_sign_an_earlier_visits_receipt(running: Running) -> None:
    document, report = await visited(running)
    proven, cose = running.orchestrator.proven, None
    runtime = dict(running.orchestrator.channels)
    running.orchestrator.signing = PartyKey.generate()  # the orchestrator restarted, and says so by a new channel
    running.orchestrator.post("channel_wanted")
    await running.until(lambda: running.orchestrator.proven is not proven)
    await running.until(lambda: len(running.holder.ledger.state(SESSION).channels) == 2)
    renewed, running.orchestrator.proven = running.orchestrator.proven, proven
    running.orchestrator.channels.update(runtime)
    cose = running.orchestrator.make_receipt(document, report)
    running.orchestrator.proven = renewed
    running.orchestrator.close_visit(cose)
    shown = await stored(running)
    assert shown["verified"], shown["checks"]


async def test_a_list_of_leaves_without_end_is_not_read_for_ever(running: Running) -> None:
    document, report = await visited(running)
    running.orchestrator.close_visit(running.orchestrator.make_receipt(document, report))
    running.orchestrator.more_leaves = "again"
    running.orchestrator.post("ended", phase="COMPLETED")
    await running.until(lambda: running.holder.ledger.state(SESSION).ended)
