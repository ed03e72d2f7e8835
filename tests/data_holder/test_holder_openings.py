"""Channels that did not open at once: what is tried again, how it is told, and when it is let be."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import httpx2
import pytest

from data_holder import opening, pauses, runner
from data_holder.pauses import Due
from shared.attestation.cpu_trust import CpuTrust
from shared.attestation.snp_trust import SnpTrust
from tests.attestation.snp_world import crl
from tests.attestation.test_snp_policy import folder
from tests.data_holder.conftest import Running, Start
from tests.data_holder.holder_world import SESSION, make_manifest, problem

ASKED = f"POST /v1/sessions/{SESSION}/channels"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "TEND_S", 0.01)
    monkeypatch.setattr(opening, "FIRST_PAUSE_S", 0.01)


class Refusing:
    """Answers the first `times` of the requests that it is told of with a problem; `asked`: what came for channels."""

    def __init__(
        self, running: Running, monkeypatch: pytest.MonkeyPatch, *, method: str, code: str, times: int
    ) -> None:
        self.asked, self.left = list[str](), times
        self._answer, self._method, self._code = running.orchestrator._answer, method, code
        monkeypatch.setattr(running.orchestrator, "_answer", self.answer)

    async def answer(self, request: httpx2.Request, path: str, body: bytes) -> httpx2.Response:
        if "/channels" not in path:
            return await self._answer(request, path, body)
        self.asked.append(f"{request.method} {path}")
        if request.method == self._method and self.left:
            self.left -= 1
            return problem(409 if self._code == "channel-expired" else 503, "not now", self._code)
        return await self._answer(request, path, body)


async def approved(running: Running) -> None:
    running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
    await running.until(lambda: running.orchestrator.approvals)


async def test_what_was_offered_and_is_gone_by_the_time_that_it_is_proven_is_asked_for_anew(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU's life ended in between. The orchestrator asks again after a lease only, which may be minutes."""
    log = Mock()
    monkeypatch.setattr(runner, "_log", log)
    await approved(running)
    refusing = Refusing(running, monkeypatch, method="PUT", code="channel-expired", times=3)
    running.orchestrator.post("channel_wanted")
    await running.until(running.open_channel)
    assert refusing.asked == [
        line for n in range(1, 5) for line in (ASKED, f"PUT /v1/sessions/{SESSION}/channels/c_{n}")
    ]
    await running.until(lambda: not running.holder.runner._openings.wanted)
    assert len(running.holder.ledger.state(SESSION).channels) == 1, "of those that were not accepted nothing is kept"
    told = [call.args[0] for call in (*log.warning.call_args_list, *log.info.call_args_list)]
    assert [event for event in told if "channel" in event] == ["channel not open yet", "over: channel not open yet"], (
        "once for all three"
    )


async def test_a_revocation_list_that_is_just_being_written_is_waited_for(
    running: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It stood for the orchestrator's fault: nobody was trusted, and nothing tried again until somebody asked."""
    place = folder(tmp_path)
    (place / "snp-crls").mkdir()
    (listed := place / "snp-crls" / "a.crl").write_bytes(crl())
    trust = SnpTrust.load(place)
    assert trust is not None
    verifier: Any = running.holder.foundation.verifier
    machine, tries = verifier.machine.trust(), list[int]()

    def judged_by_the_folder() -> CpuTrust:
        tries.append(len(tries))
        trust.lists()  # as for evidence of SEV-SNP; the machine here is of TDX
        return machine

    monkeypatch.setattr(verifier, "machine", SimpleNamespace(trust=judged_by_the_folder))
    await approved(running)
    listed.write_bytes(crl()[:200])
    running.orchestrator.post("channel_wanted")
    await running.until(lambda: len(tries) > 2)
    assert not running.holder.runner._openings.distrust.by_code
    listed.write_bytes(crl())
    await running.until(running.open_channel)


async def test_nothing_is_tried_again_for_a_session_that_has_ended(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had asked once a second until it was restarted. Who asks for a channel all the same gets it: the end was said over a database that
    was put back, and the newest one is there again."""
    await approved(running)
    refusing = Refusing(running, monkeypatch, method="POST", code="session-not-running", times=10**6)
    running.orchestrator.post("channel_wanted")
    await running.until(lambda: len(refusing.asked) > 2)
    running.orchestrator.post("ended", phase="CANCELLED")
    await running.until(lambda: not running.holder.runner._openings.wanted)
    asked = len(refusing.asked)
    await asyncio.sleep(0.1)
    assert len(refusing.asked) == asked
    refusing.left = 0
    running.orchestrator.post("channel_wanted")
    await running.until(running.open_channel)


async def test_a_session_that_goes_on_after_its_end_is_shown_so_and_can_be_vetoed(running: Running) -> None:
    """The end was said over an old copy of the database. It had been shown as ended, with its visits served and every veto refused."""
    await running.approved_with_channel()
    running.orchestrator.post("ended", phase="FAILED")
    await running.until(lambda: running.holder.ledger.state(SESSION).ended)
    shown = await running.get(f"/v1/requests/{SESSION}")
    assert (shown["state"], shown["phase"]) == ("ended", "FAILED")
    running.orchestrator.post("channel_wanted")
    await running.until(lambda: running.holder.ledger.state(SESSION).ended is None)
    shown = await running.get(f"/v1/requests/{SESSION}")
    assert (shown["state"], shown["phase"], shown["waiting_for"]) == ("approved", None, None)
    said = {"manifest": shown["manifest"], "reason": "consent"}
    answer = await running.client.post(f"/v1/requests/{SESSION}/veto", json=said)
    assert answer.json()["state"] == "vetoed"


async def test_what_was_removed_is_not_tried_again(running: Running) -> None:
    openings = running.holder.runner._openings
    openings.wanted["s_removed"] = Due(0.0, 1.0)
    assert openings.due() == []
    assert not openings.wanted


async def test_a_channel_that_is_refused_again_and_again_is_tried_ever_more_rarely(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try has the orchestrator attest the GPU, and whoever's CVM was taken from it is refused until somebody restarts it."""
    now = 0.0
    monkeypatch.setattr(opening, "FIRST_PAUSE_S", 1.0)
    monkeypatch.setattr(pauses, "monotonic", lambda: now)
    await approved(running)
    refusing = Refusing(running, monkeypatch, method="POST", code="cvm-taken", times=10**6)
    openings, tried = running.holder.runner._openings, list[float]()
    running.orchestrator.post("channel_wanted")
    await running.until(lambda: refusing.asked)
    for second in range(1, 65):
        now = float(second)
        if openings.due():
            tried.append(now)
            await running.until(lambda: len(refusing.asked) == len(tried) + 1 and not openings.due())
    assert tried == [1, 3, 7, 15, 31, 47, 63]
    before = len(refusing.asked)
    running.orchestrator.post("channel_wanted")  # and whoever asks is answered at once
    await running.until(lambda: len(refusing.asked) > before)


async def test_without_an_approval_nothing_is_tried_again(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start() as running:
        await approved(running)
        refusing = Refusing(running, monkeypatch, method="POST", code="session-not-running", times=10**6)
        running.orchestrator.post("channel_wanted")
        await running.until(lambda: refusing.asked)
        manifest = running.orchestrator.manifest.digest().hex()  # type: ignore[union-attr]
        said = {"manifest": manifest, "reason": "consent"}
        answer = await running.client.post(f"/v1/requests/{SESSION}/veto", json=said)
        assert answer.json()["state"] == "vetoed"
        await running.until(lambda: not running.holder.runner._openings.wanted)
