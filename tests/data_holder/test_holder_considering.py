"""Requests before anybody decided: what a policy may refuse for good, what waits for the operator, and what neither may hold up."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx2
import numpy as np
import pytest

from data_holder import commitments, considering, pauses, runner
from data_holder.datasets import Dataset, RecordTree
from data_holder.succession import Predecessors
from shared.errors import Unavailable
from tests.data_holder.conftest import POLICY, Running, Start
from tests.data_holder.holder_requests import request_waits
from tests.data_holder.holder_world import SESSION, make_archive, make_manifest, write_dataset

OTHER = "s_fedcba9876543210"
OPERATOR = "this holder's operator ("


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "TEND_S", 0.01)
    monkeypatch.setattr(considering, "FIRST_PAUSE_S", 0.01)


class Scans:
    """Counts what is read of datasets before an approval; with `hold` each waits until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from data_holder import catalogue

        self.count, self.free = 0, threading.Event()
        self.free.set()
        self._inspect = catalogue.inspect_dataset
        monkeypatch.setattr(catalogue, "inspect_dataset", self)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.count += 1
        assert self.free.wait(60)
        return self._inspect(*arguments, **options)


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> Scans:
    return Scans(monkeypatch)


def decisions(running: Running) -> set[tuple[str, str]]:
    """What was said of which session; a decision may be delivered twice, by who made it and by who tends to what is undelivered."""
    return {(said.session, said.decision) for said in running.orchestrator.approvals}


def ask(running: Running, **changes: Any) -> None:
    running.orchestrator.ask_approval(make_manifest(running.orchestrator_key(), **changes))


async def test_data_that_are_away_for_a_moment_are_no_reason_to_refuse_for_good(
    running: Running, tmp_path: Path
) -> None:
    (tmp_path / "ehr.npz").rename(tmp_path / "away")
    ask(running)
    assert (await request_waits(running, OPERATOR + "data-not-found"))["state"] == "waiting"
    assert running.orchestrator.approvals == []
    (tmp_path / "away").rename(tmp_path / "ehr.npz")
    await running.until(lambda: running.orchestrator.approvals)
    assert decisions(running) == {(SESSION, "approve")}


async def test_a_policy_that_misspells_its_dataset_refuses_nothing_and_says_so_at_the_start(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.replace('"ehr"', '"erh"'))
    log = Mock()
    monkeypatch.setattr(considering, "_log", log)
    async with start() as running:
        ask(running)
        assert (await request_waits(running, OPERATOR + "not-found: no dataset 'erh'"))["state"] == "waiting"
        assert running.orchestrator.approvals == []
        [warned] = log.warning.call_args_list
        assert (warned.args, warned.kwargs["dataset"]) == (("approvals name a dataset that is not known",), "erh")
        body = {"name": "erh", "path": str(tmp_path / "ehr.npz")}
        assert (await running.client.post("/v1/datasets", json=body)).status_code == 201
        await running.until(lambda: running.orchestrator.approvals)
        assert running.orchestrator.approvals[0].decision == "approve"


async def test_what_does_not_fit_is_refused_without_a_name_of_what_is_private(running: Running, tmp_path: Path) -> None:
    values = np.load(tmp_path / "ehr.npz")["x"]
    values[17, 3] = np.nan
    np.savez(tmp_path / "ehr.npz", x=values)
    ask(running)
    await running.until(lambda: running.orchestrator.approvals)
    refusal = running.orchestrator.approvals[0]
    assert refusal.decision == "refuse"
    assert refusal.reason.startswith("data-out-of-range: ")
    document = base64.b64decode(json.loads(running.orchestrator.approval_bytes[0])["document"])
    assert not [word for word in (b"ehr", b"npy", b"row 17", b"element 3") if word in document]
    own = (await running.get(f"/v1/requests/{SESSION}"))["findings"][-1]
    assert (own["rule"], own["ok"]) == ("dataset", False)
    assert "'ehr'" in own["got"]
    assert "row 17" in own["got"]


async def test_a_try_that_reads_all_data_is_made_ever_more_rarely_and_says_what_hinders_it(
    running: Running, scans: Scans, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(considering, "FIRST_PAUSE_S", 1.0)
    monkeypatch.setattr(pauses, "monotonic", lambda: now)
    trees = running.holder.foundation.settings.data_dir / "trees"
    trees.write_text("no folder")
    tended = Mock(wraps=running.holder.approvals.unconsidered)
    monkeypatch.setattr(running.holder.approvals, "unconsidered", tended)

    async def some_tends() -> int:
        seen = tended.call_count
        await running.until(lambda: tended.call_count > seen + 3)
        return scans.count

    ask(running)
    assert (await request_waits(running, OPERATOR))["state"] == "waiting"
    assert await some_tends() == 1
    for at, tries in ((0.9, 1), (1.1, 2), (3.0, 2), (3.2, 3), (7.1, 3), (7.3, 4)):
        now = at
        await running.until(lambda tries=tries: scans.count == tries)  # type: ignore[misc]
        assert await some_tends() == tries
    trees.unlink()
    now = 100.0
    await running.until(lambda: running.orchestrator.approvals)
    assert running.orchestrator.approvals[0].decision == "approve"


async def test_hashing_for_one_session_holds_up_no_other_and_is_done_once(
    running: Running, scans: Scans, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(running)
    await running.until(lambda: running.orchestrator.approvals)
    assert scans.count == 1
    log = Mock()
    monkeypatch.setattr(runner, "_log", log)
    scans.free.clear()
    try:
        another = make_manifest(running.orchestrator_key(), name="another")
        running.orchestrator.ask_approval(another, session=OTHER)
        await running.until(lambda: scans.count == 2)
        running.orchestrator.challenge = "33" * 32
        running.holder.runner._heads.unanswered[SESSION] = "33" * 32
        await running.until(lambda: running.orchestrator.head_statements)
        assert scans.count == 2, "its own worker reads the data, and nobody beside it"
    finally:
        scans.free.set()
    await running.until(lambda: (OTHER, "approve") in decisions(running))
    assert scans.count == 2
    assert not log.error.call_args_list


async def test_a_program_that_is_another_is_said_to_be_so_and_fetched_ever_more_rarely(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(considering, "FIRST_PAUSE_S", 1000.0)
    fetched, answer = list[str](), running.orchestrator._answer

    async def counted(request: httpx2.Request, path: str, body: bytes) -> httpx2.Response:
        fetched.extend([path] if path.endswith("/archive") else [])
        return await answer(request, path, body)

    monkeypatch.setattr(running.orchestrator, "_answer", counted)
    running.orchestrator.archive = make_archive(features=8)
    tended = Mock(wraps=running.holder.approvals.unconsidered)
    monkeypatch.setattr(running.holder.approvals, "unconsidered", tended)
    ask(running)
    await request_waits(running, "nobody: it cannot be approved (program-mismatch")
    seen = tended.call_count
    await running.until(lambda: tended.call_count > seen + 3)
    assert len(fetched) == 1


async def test_what_could_not_be_checked_is_checked_again_where_a_person_decides(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program had come by then, and nobody looked at the request any more."""
    checks: list[str] = []

    async def check(self: Predecessors, session: str, manifest: Any) -> None:
        checks.append(session)
        if len(checks) == 1:
            raise Unavailable("not now")

    monkeypatch.setattr(Predecessors, "check", check)
    async with start(approve="manual") as running:
        ask(running)
        request = await request_waits(running, "this holder's operator")
        assert request["findings"]
        assert checks == [SESSION] * 2


async def test_an_operator_who_decides_while_the_policy_reads_has_decided(
    running: Running, scans: Scans, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Mock()
    monkeypatch.setattr(runner, "_log", log)
    scans.free.clear()
    try:
        ask(running)
        await running.until(lambda: scans.count == 1)
        body = {"manifest": running.orchestrator.manifest.digest().hex(), "reason": "not this one"}  # type: ignore[union-attr]
        said = await running.client.post(f"/v1/requests/{SESSION}/refuse", json=body)
        assert said.json()["state"] == "refused"
    finally:
        scans.free.set()
    await running.until(lambda: SESSION not in running.holder.runner._considering._taken)
    assert decisions(running) == {(SESSION, "refuse")}
    assert not log.error.call_args_list
    assert not log.warning.call_args_list


async def test_a_file_that_is_being_written_waits(running: Running, tmp_path: Path) -> None:
    whole = (tmp_path / "ehr.npz").read_bytes()
    (tmp_path / "ehr.npz").write_bytes(whole[: len(whole) // 2])
    ask(running)
    assert (await request_waits(running, OPERATOR + "data-"))["state"] == "waiting"
    write_dataset(tmp_path / "ehr.npz")
    await running.until(lambda: running.orchestrator.approvals)
    assert running.orchestrator.approvals[0].decision == "approve"


async def test_how_far_hashing_is_is_logged_and_shown(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """An approval of large data was answered after hours, and nothing said that anything went on."""
    free, log, leaves = threading.Event(), Mock(), RecordTree._leaves

    def slow(self: RecordTree, indexes: Any) -> list[bytes]:
        assert indexes[0] < 30 or free.wait(60)
        return leaves(self, indexes)

    monkeypatch.setattr(RecordTree, "_leaves", slow)
    monkeypatch.setattr(Dataset, "block_records", 10)
    monkeypatch.setattr(commitments, "TOLD_S", 0.01)
    monkeypatch.setattr(commitments, "_log", log)
    async with start(approve="manual") as running:
        ask(running)
        request = await request_waits(running, "this holder's operator")
        body = {"manifest": request["manifest"], "dataset": "ehr"}
        approving = asyncio.create_task(running.client.post(f"/v1/requests/{SESSION}/approve", json=body))
        try:
            await request_waits(running, "this holder's data (hashing, 60 % of 50 records)")
        finally:
            free.set()
        done = (await approving).json()
        assert (done["state"], done["waiting_for"]) == ("approved", None)
    told = [(call.args[0], call.kwargs.get("percent")) for call in log.info.call_args_list]
    assert ("hashing dataset", 60) in told
    assert told[-1] == ("dataset hashed", None)
