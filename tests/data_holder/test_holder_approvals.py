"""Approvals by hand and by policy, the operator's API, and what hostile storage or a lying orchestrator run into."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from shared.claims.manifest import OutputPolicy
from shared.claims.privacy import Privacy
from shared.crypto.signing import PartyKey
from shared.service.signatures import SignedAuth
from tests.data_holder.conftest import Running, Start
from tests.data_holder.holder_world import ARCHIVE, FEATURES, PROGRAM, SESSION, FakeClock, make_archive, make_manifest


async def asked(running: Running, **changes: Any) -> dict[str, Any]:
    """Ask for approval and wait until the request shows its program."""
    running.orchestrator.ask_approval(make_manifest(running.orchestrator_key(), **changes))
    for _ in range(400):
        answer = await running.client.get(f"/v1/requests/{SESSION}")
        if answer.status_code == 200 and "program archive" not in str(answer.json()["waiting_for"]):
            return dict(answer.json())
        await asyncio.sleep(0.01)
    raise AssertionError("the request never showed its program")


async def test_by_hand(start: Start) -> None:
    async with start(approve="manual") as running:
        shown = await asked(running)
        assert (shown["state"], shown["waiting_for"]) == ("waiting", "this holder's operator")
        assert shown["program"]["operators"] == ["aten.mul.Tensor", "aten.sum.dim_IntList"]
        assert shown["program"]["digest"] == PROGRAM
        assert (shown["program"]["parameters"], shown["program"]["parameter_tensors"]) == (FEATURES, 1)
        assert shown["document"]["privacy_floor"] == 8
        assert [finding["ok"] for finding in shown["findings"]]
        assert running.orchestrator.approvals == []
        wrong = await running.client.post(f"/v1/requests/{SESSION}/approve", json={"manifest": "00" * 32})
        assert (wrong.status_code, wrong.json()["code"]) == (409, "manifest-changed")
        body = {"manifest": shown["manifest"], "dataset": "ehr", "reason": "board agreed"}
        done = (await running.client.post(f"/v1/requests/{SESSION}/approve", json=body)).json()
        assert (done["state"], done["delivered"], done["decided_by"]) == ("approved", True, "operator")
        [approval] = running.orchestrator.approvals
        assert (approval.decision, approval.manifest, approval.records) == ("approve", shown["manifest"], 50)
        again = await running.client.post(f"/v1/requests/{SESSION}/approve", json=body)
        assert again.json()["code"] == "already-decided"


async def test_policy_approves_and_refuses(start: Start) -> None:
    async with start() as running:
        await asked(running)
        await running.until(lambda: running.orchestrator.approvals)
        assert running.orchestrator.approvals[0].decision == "approve"
        check = await running.client.post("/v1/policy/check", json={"session": SESSION})
        assert check.json()["allowed"] is True


async def test_policy_refuses_with_reasons(start: Start) -> None:
    async with start() as running:
        running.orchestrator.ask_approval(
            make_manifest(running.orchestrator_key(), output=OutputPolicy(release_to=("holders",)), rounds=99)
        )
        await running.until(lambda: running.orchestrator.approvals)
        [approval] = running.orchestrator.approvals
        assert approval.decision == "refuse"
        assert "limits.max_rounds" in approval.reason
        assert "output.release_to" in approval.reason


async def test_data_that_does_not_fit_is_refused_with_file_and_reason(start: Start, tmp_path: Path) -> None:
    import numpy as np

    np.savez(tmp_path / "narrow.npz", x=np.zeros((50, 3), "<f4"))
    async with start(approve="manual", policy=None) as running:
        shown = await asked(running)
        added = {"name": "narrow", "path": str(tmp_path / "narrow.npz")}
        assert (await running.client.post("/v1/datasets", json=added)).status_code == 201
        assert (await running.client.post("/v1/datasets", json=added)).json()["code"] == "dataset-exists"
        report = (await running.client.post("/v1/datasets/narrow/inspect", json={"session": SESSION})).json()
        assert report["fits"] is False
        body = {"manifest": shown["manifest"], "dataset": "narrow"}
        answer = await running.client.post(f"/v1/requests/{SESSION}/approve", json=body)
        assert answer.status_code == 422
        assert answer.json()["code"] == "data-wrong-shape"
        assert "narrow.npz" in answer.json()["detail"]
        assert running.orchestrator.approvals == []
        body.pop("dataset")
        assert (await running.client.post(f"/v1/requests/{SESSION}/approve", json=body)).json()[
            "code"
        ] == "dataset-not-named"


async def test_too_few_records_for_the_privacy_are_refused_with_both_numbers(start: Start) -> None:
    """Only here is it known how many records there are: 50, of which the plan draws 20 a round."""
    asks = Privacy(max_grad_norm=1.0, noise_multiplier=2.0, delta=1e-5, max_epsilon=2.5)
    async with start() as running:
        await asked(running, privacy=asks, rounds=3)
        await running.until(lambda: running.orchestrator.approvals)
        [refusal] = running.orchestrator.approvals
        assert (refusal.decision, refusal.reason.partition(":")[0]) == ("refuse", "privacy-budget")
        finding = (await running.get(f"/v1/requests/{SESSION}"))["findings"][-1]
        assert (finding["rule"], finding["ok"]) == ("dataset", False)
        assert "the plan spends epsilon 2.94" in finding["got"]
        assert "max_epsilon is 2.5" in finding["got"]


async def test_what_would_be_spent_is_shown_before_and_after_the_approval(start: Start) -> None:
    asks = Privacy(max_grad_norm=1.0, noise_multiplier=2.0, delta=1e-5)
    async with start(approve="manual") as running:
        shown = await asked(running, privacy=asks, rounds=3)
        once, twice = 1.99, 2.94
        assert shown["privacy"]["delta"] == 1e-5
        assert once < shown["privacy"]["epsilon"] < once + 0.1, "no dataset is named yet: at least this"
        body = {"manifest": shown["manifest"], "dataset": "ehr"}
        done = (await running.client.post(f"/v1/requests/{SESSION}/approve", json=body)).json()
        assert done["privacy"]["epsilon"] > twice, "some of 50 records take part twice"


async def test_a_decision_survives_an_orchestrator_that_is_away(start: Start) -> None:
    async with start(approve="manual") as running:
        shown = await asked(running)
        running.orchestrator.down = True
        body = {"manifest": shown["manifest"], "reason": "no \u202econsent"}
        unseen = await running.client.post(f"/v1/requests/{SESSION}/refuse", json=body)
        assert (unseen.status_code, unseen.json()["code"]) == (400, "unseen-text")
        body = {"manifest": shown["manifest"], "reason": "no consent"}
        answer = (await running.client.post(f"/v1/requests/{SESSION}/refuse", json=body)).json()
        assert (answer["state"], answer["delivered"]) == ("refused", False)
    async with start(approve="manual") as again:
        assert again.orchestrator.approvals == []
        again.orchestrator.down = False
        await again.until(lambda: again.orchestrator.approvals)
        assert again.orchestrator.approvals[0].decision == "refuse"


async def test_the_archive_is_hashed_again(start: Start) -> None:
    async with start() as running:
        running.orchestrator.archive = make_archive(features=8)
        running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
        await asyncio.sleep(0.2)
        assert running.orchestrator.approvals == []
        assert (await running.get(f"/v1/requests/{SESSION}"))["program"] is None
        running.orchestrator.archive = ARCHIVE  # and is fetched again until it is the right one
        await running.until(lambda: running.orchestrator.approvals)


@pytest.mark.parametrize("fault", ["not in the roster", "another key", "another manifest later", "not canonical"])
async def test_requests_not_meant_for_this_holder(running: Running, fault: str) -> None:
    manifest = make_manifest(running.orchestrator_key())
    if fault == "not in the roster":
        manifest = manifest.model_copy(update={"roster": manifest.roster[1:]})
    if fault == "another key":
        manifest = make_manifest("ee" * 32)
    if fault == "another manifest later":
        running.orchestrator.ask_approval(manifest)
        await running.until(lambda: running.orchestrator.approvals)
        manifest = make_manifest(running.orchestrator_key(), rounds=2)
    if fault == "not canonical":
        import base64

        data = base64.b64encode(manifest.canonical() + b" ").decode()
        running.orchestrator.post("approval_wanted", manifest=data)
    else:
        running.orchestrator.ask_approval(manifest)
    await asyncio.sleep(0.1)
    assert len(running.orchestrator.approvals) == (1 if fault == "another manifest later" else 0)


async def test_an_untrusted_orchestrator_gets_no_channel(start: Start) -> None:
    async with start() as running:
        running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
        await running.until(lambda: running.orchestrator.approvals)
        running.orchestrator.cvm = "holder-south"  # genuine hardware, other code
        running.orchestrator.post("channel_wanted")
        await running.until(lambda: running.orchestrator.channels)
        async with asyncio.timeout(60):
            while (said := (await running.get(f"/v1/requests/{SESSION}"))["waiting_for"]) is None:
                pass
        assert "not trusted" in said
        assert running.orchestrator.proven is None


async def test_an_orchestrator_that_changes_its_identity_gets_no_channel(running: Running) -> None:
    await running.approved_with_channel()
    running.orchestrator.proven, running.orchestrator.enrolled = None, PartyKey.generate()
    running.orchestrator.post("channel_wanted")
    await running.until(lambda: len(running.orchestrator.channels) == 2)
    await asyncio.sleep(0.1)
    assert running.orchestrator.proven is None


async def test_a_changed_journal_is_found_before_anything_is_decided(start: Start, tmp_path: Path) -> None:
    async with start() as running:
        await running.approved_with_channel()
    file = next((tmp_path / "state").glob("*.sqlite*"), tmp_path / "state" / "state.db")
    with closing(sqlite3.connect(file)) as database, database:
        tables = [row[0] for row in database.execute("select name from sqlite_master where name like '%journal%'")]
        changed = database.execute(
            f"update {tables[0]} set body = replace(body, 'policy', 'operator') where kind like 'decision/%'"
        ).rowcount
        assert changed == 1
    async with start() as again:
        opened = len(again.orchestrator.channels)
        assert list(again.holder.ledger.states()) == []
        body = {"manifest": again.orchestrator.manifest.digest().hex()}  # type: ignore[union-attr]
        veto = await again.client.post(f"/v1/requests/{SESSION}/veto", json=body)
        assert (veto.status_code, veto.json()["code"]) == (403, "journal-tampered")
        await again.until(lambda: again.holder.runner.listening.connected)
        await again.until(lambda: not again.holder.runner._workers)
        assert len(again.orchestrator.channels) == opened, "no channel is opened for it"


async def test_who_may_do_what(start: Start, tmp_path: Path) -> None:
    operator = PartyKey.generate()
    (tmp_path / "operators").mkdir()
    (tmp_path / "operators" / "ada.pub").write_bytes(operator.public_pem)
    async with start(approve="manual", operator_keys=tmp_path / "operators") as running:
        shown = await asked(running)
        body = {"manifest": shown["manifest"], "dataset": "ehr"}
        transport = httpx2.ASGITransport(app=running.app)
        auditor = (tmp_path / "state" / "auditor.token").read_text().strip()
        async with httpx2.AsyncClient(transport=transport, base_url="http://holder.test") as client:
            assert (await client.get("/v1/requests")).status_code == 401
            assert (await client.get("/v1/requests", headers={"authorization": "Bearer wrong"})).status_code == 401
            reads = {"authorization": f"Bearer {auditor}"}
            assert (await client.get("/v1/identity", headers=reads)).status_code == 200
            denied = await client.post(f"/v1/requests/{SESSION}/approve", json=body, headers=reads)
            assert (denied.status_code, denied.json()["code"]) == (403, "role-missing")
            signed = SignedAuth(operator, running.clock, lambda n: b"\x05" * n)
            done = await client.post(f"/v1/requests/{SESSION}/approve", json=body, auth=signed)
            assert done.json()["state"] == "approved"
            (tmp_path / "operators" / "ada.pub").unlink()
            assert (await client.get("/v1/identity", auth=signed)).status_code == 401
            stranger = SignedAuth(PartyKey.generate(), FakeClock(), lambda n: b"\x06" * n)
            assert (await client.get("/v1/identity", auth=stranger)).status_code == 401


async def test_lists_go_by_pages_and_errors_have_codes(running: Running, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        body = {"name": name, "path": str(tmp_path / "ehr.npz")}
        assert (await running.client.post("/v1/datasets", json=body)).status_code == 201
    names, cursor = [], ""
    while True:
        page = await running.get(f"/v1/datasets?limit=2{cursor}")
        names += [item["name"] for item in page["items"]]
        if not page["next"]:
            break
        cursor = f"&after={page['next']}"
    assert names == ["a", "b", "c", "ehr"]
    for method, path, json, status, code in (
        ("GET", "/v1/datasets/none", None, 404, "not-found"),
        ("GET", f"/v1/requests/{SESSION}", None, 404, "not-found"),
        ("GET", "/v1/datasets?after=AAAA", None, 400, "invalid-cursor"),
        ("POST", "/v1/datasets", {"name": "d", "path": "/nowhere/at/all"}, 404, "data-not-found"),
        ("POST", "/v1/datasets", {"name": "d", "path": "x" * 4096}, 404, "data-not-found"),
        (
            "POST",
            "/v1/datasets",
            {"name": "d", "path": str(tmp_path), "options": {"colour": 1}},
            422,
            "invalid-request",
        ),
        (
            "POST",
            "/v1/datasets",
            {"name": "d", "path": str(tmp_path), "options": {"format": 7}},
            422,
            "invalid-request",
        ),
        ("POST", "/v1/datasets", {"name": "D!", "path": str(tmp_path)}, 422, "invalid-request"),
        ("POST", f"/v1/requests/{SESSION}/veto", {"manifest": "00" * 32}, 404, "session-unknown"),
    ):
        answer = await running.client.request(method, path, json=json)
        assert (answer.status_code, answer.json()["code"]) == (status, code), (path, answer.text)
    assert (await running.client.delete("/v1/datasets/a")).status_code == 204
    assert (await running.client.get("/readyz")).status_code == 200
    assert "gput_holder_dataset_bytes" in (await running.client.get("/metrics")).text
    document = await running.get("/v1/openapi.json")
    assert "/v1/requests/{session}/approve" in document["paths"]
