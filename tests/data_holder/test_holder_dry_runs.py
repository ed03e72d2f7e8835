"""What a dry run of a decision answers is what the decision then is answered, reason by reason; and it neither reads nor keeps anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import Connection, text

from data_holder import fitting
from data_holder.commitments import Commitments
from shared.claims.manifest import Contributor, Predecessor
from shared.claims.privacy import Privacy
from shared.protocol.membership import RULE
from tests.data_holder.conftest import Running, Start
from tests.data_holder.holder_world import PROGRAM, SESSION, make_manifest, write_dataset
from tests.data_holder.test_holder_approvals import asked
from tests.data_holder.test_holder_catalogue import tamper

UNKEPT = ("replay_nonces", "alembic_version")
KEY = {"idempotency-key": "again"}
SAID = ("type", "title", "status", "code", "detail", "remedy", "expected", "got", "errors")


@pytest.fixture
async def waiting(start: Start) -> AsyncIterator[Running]:
    """A request that waits for its operator, whom no policy helps."""
    async with start(approve="manual", policy=None) as running:
        await asked(running)
        yield running


async def kept(running: Running) -> dict[str, Any]:
    """Rows, files, what the orchestrator was sent, and what is remembered of the session."""

    def tables(connection: Connection) -> dict[str, Any]:
        names = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'table'")).scalars().all()
        return {name: sorted(map(tuple, connection.execute(text(f'SELECT * FROM "{name}"'))), key=repr) for name in names
                if name not in UNKEPT}  # fmt: skip

    folder, approvals = running.holder.foundation.settings.data_dir, running.holder.approvals
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and ".db" not in path.name}
    remembered = [approvals._predecessors._checked, [*approvals.programs._at_hand], approvals._commitments._building]
    sent = [str(running.orchestrator.approvals), str(running.holder.ledger.state(SESSION))]
    return {**await running.holder.store.read(tables), "files": files, "memory": str(remembered), "sent": sent}


async def both(
    running: Running, verb: str, manifest: str | None = None, *, headers: dict[str, str] | None = None,
    session: str = SESSION, **body: Any,
) -> tuple[int, str]:  # fmt: skip
    """The status of both, and the code of a refusal, the same in every word; of what is taken, whether the dry run said that it changes
    anything, as it then does."""
    if manifest is None:
        manifest = (await running.get(f"/v1/requests/{SESSION}"))["manifest"]
    said = {"manifest": manifest, **body}
    before = await kept(running)
    dry = await running.client.post(f"/v1/dry-run/requests/{session}/{verb}", json=said, headers=headers)
    assert await kept(running) == before, "a dry run changes nothing"
    real = await running.client.post(f"/v1/requests/{session}/{verb}", json=said, headers=headers)
    if dry.status_code == 200:
        assert real.status_code == 200, real.text
        assert dry.json()["changes"] is ((await kept(running))["sent"][1] != before["sent"][1])
        return 200, "changes" if dry.json()["changes"] else "said before"
    assert told(dry) == told(real)
    return dry.status_code, str(dry.json()["code"])


def told(answer: httpx2.Response) -> dict[str, Any]:
    return {name: answer.json().get(name) for name in SAID}


async def test_before_anything_is_decided(waiting: Running, tmp_path: Path) -> None:
    write_dataset(tmp_path / "gone.npz")
    added = {"name": "gone", "path": str(tmp_path / "gone.npz")}
    assert (await waiting.client.post("/v1/datasets", json=added)).status_code == 201
    (tmp_path / "gone.npz").unlink()
    (tmp_path / "gone.csv").mkdir()
    assert await both(waiting, "veto") == (409, "not-approved")
    assert await both(waiting, "approve", dataset="ehr", anew=True) == (409, "not-approved")
    assert await both(waiting, "approve") == (422, "dataset-not-named")
    assert await both(waiting, "approve", dataset="other") == (404, "not-found")
    assert await both(waiting, "approve", dataset="gone") == (422, "data-not-found")
    assert await both(waiting, "approve", dataset="No Name") == (422, "invalid-request")
    for verb in ("approve", "refuse", "veto"):
        assert await both(waiting, verb, "00" * 32) == (409, "manifest-changed")
        assert await both(waiting, verb, reason="a\u202eb") == (400, "unseen-text")
        assert await both(waiting, verb, session="s_nothingnothing00") == (404, "session-unknown")
    assert await both(waiting, "refuse", reason="not our field") == (200, "changes")
    assert await both(waiting, "refuse", reason="not our field") == (409, "already-decided")
    assert await both(waiting, "refuse", reason="not our field", headers=KEY) == (200, "said before")


async def test_what_was_approved(waiting: Running) -> None:
    ehr = {"dataset": "ehr"}
    assert await both(waiting, "approve", **ehr, headers=KEY) == (200, "changes")
    assert await both(waiting, "approve", **ehr, headers={"idempotency-key": "another"}) == (200, "said before")
    for verb, more in (("approve", ehr), ("approve", {"reason": "and again"}), ("refuse", {})):
        assert await both(waiting, verb, **more) == (409, "already-decided")
    said = {"units": {"x": ["mg"]}}
    assert (await waiting.client.put("/v1/datasets/ehr/declaration", json=said)).status_code < 300
    assert await both(waiting, "approve", anew=True) == (200, "changes")
    assert await both(waiting, "veto", reason="enough") == (200, "changes")
    assert await both(waiting, "veto", reason="enough", headers={"idempotency-key": "third"}) == (200, "said before")
    assert await both(waiting, "approve", **ehr) == (409, "already-decided")
    assert await both(waiting, "approve", anew=True) == (409, "not-approved")


@pytest.mark.parametrize("decided", [False, True])
async def test_of_a_session_that_has_ended(waiting: Running, decided: bool) -> None:
    if decided:
        assert await both(waiting, "approve", dataset="ehr") == (200, "changes")
    waiting.orchestrator.post("ended", phase="CANCELLED")
    await waiting.until(lambda: waiting.holder.ledger.state(SESSION).ended)
    for _ in range(1000):
        if (await waiting.get(f"/v1/requests/{SESSION}"))["waiting_for"] is None:
            break
        await asyncio.sleep(0.01)  # it fetches what the session still owes it
    assert await both(waiting, "approve", dataset="ehr", reason="late") == (409, "session-ended")
    assert await both(waiting, "refuse") == (409, "session-ended")
    assert await both(waiting, "veto") == ((200, "changes") if decided else (409, "not-approved"))


async def test_a_root_of_an_older_rule(waiting: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await both(waiting, "approve", dataset="ehr") == (200, "changes")
    monkeypatch.setattr("data_holder.deciding.RULE", RULE + 1)
    assert await both(waiting, "approve", anew=True) == (409, "approved-by-older-rule")


async def test_a_dataset_that_was_withdrawn(start: Start, tmp_path: Path) -> None:
    write_dataset(tmp_path / "old.npz")
    datasets = {"ehr": tmp_path / "ehr.npz", "old": tmp_path / "old.npz"}
    async with start(approve="manual", policy=None, datasets=datasets):
        pass
    async with start(approve="manual", policy=None) as running:
        await asked(running)
        assert await both(running, "approve", dataset="old") == (409, "dataset-withdrawn")


async def test_only_who_may_decide_is_told(waiting: Running) -> None:
    token = (waiting.holder.foundation.settings.data_dir / "auditor.token").read_text().strip()
    auditor = {"authorization": f"Bearer {token}"}
    for verb in ("approve", "refuse", "veto"):
        assert await both(waiting, verb, headers=auditor) == (403, "role-missing")
        assert await both(waiting, verb, headers={"authorization": "Bearer x"}) == (401, "token-unknown")


async def test_a_session_that_goes_on_from_another(start: Start) -> None:
    """What the orchestrator shows of its predecessor is judged as well."""
    said = Predecessor(
        session="s_aaaaaaaaaaaaaaaa", manifest="1" * 64, model="2" * 64, optimiser="3" * 64, step=4, log_size=5, log_root="4" * 64,
        contributors=(Contributor(holder="north", key="5" * 64, records=10),),
    )  # fmt: skip
    async with start(approve="manual", policy=None) as running:
        running.orchestrator.ask_approval(make_manifest(running.orchestrator_key(), predecessor=said))
        await running.until(lambda: running.holder.ledger.knows(SESSION))
        await running.until(lambda: running.holder.runner._considering._failed)
        status, code = await both(running, "approve", dataset="ehr")
        assert (status, code) == (404, "not-found")
        assert await both(running, "refuse") == (200, "changes")


async def test_nothing_is_read_and_what_would_be_is_said(waiting: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(*_: object, **__: object) -> None:
        raise AssertionError("a dry run reads no dataset")

    monkeypatch.setattr(waiting.holder.catalogue, "inspect", read)
    monkeypatch.setattr(Commitments, "open", read)
    size = waiting.holder.foundation.settings.datasets["ehr"].stat().st_size
    body = {"manifest": (await waiting.get(f"/v1/requests/{SESSION}"))["manifest"], "dataset": "ehr"}
    path = f"/v1/dry-run/requests/{SESSION}/approve"
    verdict = (await waiting.client.post(path, json=body)).json()
    assert verdict == {
        "changes": True,
        "unjudged": [
            f"dataset 'ehr' ({size} bytes), which an approval reads whole, and hashes: that its records fit the program {PROGRAM[:16]}…"
        ],
    }
    for verb in ("refuse", "veto"):
        answer = await waiting.client.post(
            f"/v1/dry-run/requests/{SESSION}/{verb}", json={"manifest": body["manifest"]}
        )
        assert answer.json().get("unjudged", []) == []


async def test_a_program_that_is_not_here_yet_is_not_fetched_for_it(start: Start) -> None:
    asks = Privacy(max_grad_norm=1.0, noise_multiplier=2.0, delta=1e-5)
    async with start(approve="manual", policy=None) as running:
        running.orchestrator.archive = b"none"
        running.orchestrator.ask_approval(make_manifest(running.orchestrator_key(), privacy=asks))
        await running.until(lambda: running.holder.ledger.knows(SESSION))
        await running.until(lambda: running.holder.runner._considering._failed)
        before, manifest = await kept(running), (await running.get(f"/v1/requests/{SESSION}"))["manifest"]
        body = {"manifest": manifest, "dataset": "ehr"}
        verdict = (await running.client.post(f"/v1/dry-run/requests/{SESSION}/approve", json=body)).json()
        program, data = verdict["unjudged"]
        assert program.startswith("the program, which is not fetched from the orchestrator yet")
        assert "enough for the privacy" in data
        assert await kept(running) == before


async def test_a_damaged_program_is_one_that_is_not_here(waiting: Running, tmp_path: Path) -> None:
    """An approval fetches it anew; asked about, it was refused."""
    tamper(tmp_path, "UPDATE holder_requests SET program = x'00' || substr(program, 2)")
    waiting.holder.approvals.programs._at_hand.clear()
    body = {"manifest": (await waiting.get("/v1/requests"))["items"][0]["manifest"], "dataset": "ehr"}
    dry = await waiting.client.post(f"/v1/dry-run/requests/{SESSION}/approve", json=body)
    assert dry.json()["unjudged"][0].startswith("the program, which is not fetched from the orchestrator yet")
    assert await both(waiting, "approve", body["manifest"], dataset="ehr") == (200, "changes")


def test_a_folder_is_as_large_as_its_files(tmp_path: Path) -> None:
    for name, count in (("a.npy", 3), ("b.npy", 4)):
        (tmp_path / name).write_bytes(bytes(count))
    assert fitting.size_of("ehr", tmp_path) == 7
    (tmp_path / "out").symlink_to("/")
    assert fitting.size_of("ehr", tmp_path) is None  # its reader may leave that out, or not
