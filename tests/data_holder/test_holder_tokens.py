"""A holder's bearer tokens are rotated while it serves: the old one is refused at once, the new one counts, and the session goes on."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from gput.__main__ import main
from shared.service.http import Peers
from shared.service.logging import configure_logging
from tests.data_holder.conftest import Running, Start
from tests.data_holder.holder_world import SESSION, visit_key
from tests.world.world_hand import Across

NEW = "5f" * 32
HOLDER = "http://holder.test"


async def as_bearer(
    running: Running, token: str, method: str = "GET", path: str = "/v1/identity", body: object = None
) -> int:
    headers = {"authorization": f"Bearer {token}"}
    transport = httpx2.ASGITransport(app=running.app)
    async with httpx2.AsyncClient(transport=transport, base_url=HOLDER, headers=headers) as client:
        return (await client.request(method, path, json=body)).status_code


def token(running: Running, whose: str) -> str:
    return (running.holder.foundation.settings.data_dir / f"{whose}.token").read_text().strip()


async def test_the_old_token_is_refused_at_once_and_the_session_goes_on(start: Start) -> None:
    words = io.StringIO()
    configure_logging("debug", "json", words)
    async with start() as running:
        await running.approved_with_channel()
        old, auditor = token(running, "operator"), token(running, "auditor")
        assert (await running.client.put("/v1/tokens/operator", json={"token": NEW})).status_code == 204
        assert [await as_bearer(running, one) for one in (old, NEW, auditor)] == [401, 200, 200]
        assert token(running, "operator") == NEW
        file = running.holder.foundation.settings.data_dir / "operator.token"
        assert file.stat().st_mode & 0o777 == 0o600
        offer, document = running.orchestrator.make_offer(visit_key())
        running.gpu.install(document, visit_key())
        running.orchestrator.send_offer(offer)
        await running.until(lambda: running.orchestrator.reports)
        assert running.orchestrator.reports[0].records == 20
    configure_logging("critical", "json")
    assert "a token was replaced" in words.getvalue()
    assert not [one for one in (old, NEW) if one in words.getvalue()]
    async with start() as again:
        assert [await as_bearer(again, one) for one in (old, NEW)] == [401, 200]
        assert again.holder.ledger.state(SESSION).highest_epoch == 1


async def test_a_long_body_of_nobody_known_is_refused_unread(running: Running) -> None:
    """It was read and taken apart on the event loop before anybody looked at the token: 4 MiB of empty lists, a fifth of a second."""
    pieces: list[int] = []

    async def long() -> AsyncIterator[bytes]:
        for _ in range(16):
            pieces.append(1)
            yield b"[]," * 4096

    async def sent(**headers: str) -> tuple[int, str, int]:
        pieces.clear()
        transport = httpx2.ASGITransport(app=running.app)
        async with httpx2.AsyncClient(transport=transport, base_url=HOLDER, headers=headers) as client:
            named = {"content-type": "application/json"}
            answer = await client.post(f"/v1/requests/{SESSION}/approve", content=long(), headers=named)
        return answer.status_code, answer.json()["code"], len(pieces)

    assert await sent() == (401, "signature-missing", 0)
    assert await sent(authorization="Bearer guessed") == (401, "token-unknown", 0)
    known = await sent(authorization=f"Bearer {token(running, 'operator')}")
    assert known == (422, "invalid-request", 16)


async def test_who_may_rotate_and_with_what(running: Running) -> None:
    auditor, operator = token(running, "auditor"), token(running, "operator")
    put = ("PUT", "/v1/tokens/operator")
    assert await as_bearer(running, auditor, *put, {"token": NEW}) == 403
    for weak in ("short", "x" * 64, "5F" * 32, NEW + "00"):
        assert await as_bearer(running, operator, *put, {"token": weak}) == 422
    same = await running.client.put("/v1/tokens/operator", json={"token": NEW})
    assert same.status_code == 204
    running.client.headers["authorization"] = f"Bearer {NEW}"
    both = await running.client.put("/v1/tokens/auditor", json={"token": NEW})
    assert (both.status_code, both.json()["code"], NEW in both.text) == (409, "token-in-use", False)
    assert await as_bearer(running, auditor) == 200  # nothing changed
    assert await as_bearer(running, NEW, "PUT", "/v1/tokens/nobody", {"token": NEW}) == 422


async def test_by_command_and_again_after_a_lost_answer(
    running: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    loop, lost = asyncio.get_running_loop(), [True]

    class Losing(httpx2.ASGITransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            answer = await super().handle_async_request(request)
            if request.method == "PUT" and lost:
                lost.pop()
                raise httpx2.ReadError("the line broke after it had arrived")
            return answer

    across = Across(Losing(app=running.app), loop)  # type: ignore[arg-type]  # it only passes requests on
    monkeypatch.setattr("gput.commands.token.Peers", lambda **_: Peers(transports={HOLDER: across}))
    copy = tmp_path / "my.token"
    copy.write_text(token(running, "operator"))
    copy.chmod(0o600)
    old, words = copy.read_text(), ("token", "rotate", "--holder-url", HOLDER, "--token", str(copy))
    assert await asyncio.to_thread(main, words) == 6
    told = capsys.readouterr().err
    assert "my.token.next" in told
    assert copy.read_text() == old  # not known yet whether it counts
    assert await asyncio.to_thread(main, words) == 0
    new = copy.read_text().strip()
    assert new == token(running, "operator") != old
    assert [await as_bearer(running, one) for one in (old, new)] == [401, 200]
    assert not (tmp_path / "my.token.next").exists()
    of_auditor = (*words, "--of", "auditor", "-o", str(tmp_path / "auditor.token"))
    assert await asyncio.to_thread(main, of_auditor) == 0
    assert (tmp_path / "auditor.token").read_text().strip() == token(running, "auditor")
    copy.write_text("0" * 64)
    assert await asyncio.to_thread(main, words) == 4
    assert not (tmp_path / "my.token.next").exists()  # what was refused is not kept
    told_all = capsys.readouterr()
    assert new not in told_all.out + told_all.err
