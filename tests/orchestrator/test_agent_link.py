"""What a GPU agent says in clear is kept only in the form that a GPU agent gives it; anybody on the line may say anything."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from orchestrator.gpu_session.link import MAX_CERTIFICATE_DIGITS, MAX_NUMBER, AgentLink
from shared.errors import Unavailable
from shared.service.http import Peers

FACTS: dict[str, Any] = {
    "port": "holder-city",
    "boot_counter": 3,
    "memory_bytes": 1 << 30,
    "statement_certificate": "d284",
}


def said(**changes: str) -> bytes:
    """The facts as JSON, some of them replaced by other JSON."""
    written = {name: json.dumps(value) for name, value in FACTS.items()} | changes
    return ("{" + ",".join(f'"{name}":{value}' for name, value in written.items()) + "}").encode()


async def ask(body: bytes, what: str) -> Any:
    peers = Peers(transports={"http://agent": httpx2.MockTransport(lambda _: httpx2.Response(200, content=body))})
    async with peers:
        return await getattr(AgentLink(peers.peer("http://agent", "agent"), "gpu-0"), what)()


async def test_facts_of_a_gpu_agent_are_read() -> None:
    facts = await ask(said(), "facts")
    assert (facts.port, facts.boot_counter, facts.certificate) == ("holder-city", 3, b"\xd2\x84")
    facts = await ask(said(port="null", boot_counter="0", statement_certificate='""', more="[]"), "facts")
    assert (facts.port, facts.boot_counter, facts.certificate) == (None, 0, b"")
    assert (await ask(said(boot_counter=str(MAX_NUMBER - 1)), "facts")).boot_counter + 1 == 2**53 - 1


@pytest.mark.parametrize(
    "changes",
    [
        *({"boot_counter": number} for number in ("1e999", "NaN", "3.0", "true", '"3"', "-1", str(MAX_NUMBER), "9" * 4000)),
        *({"port": port} for port in ("5", '"x"', '"holder-"', '"\\ud800"', '"orchestrator\\n"', f'"holder-{"a" * 64}"')),
        *({"statement_certificate": text} for text in ("null", "5", '"d2 84"', '"d28"', f'"{"0" * (MAX_CERTIFICATE_DIGITS + 2)}"')),
    ],
)  # fmt: skip
async def test_facts_that_no_gpu_agent_gives_are_no_answer(changes: dict[str, str]) -> None:
    with pytest.raises(Unavailable) as refused:
        await ask(said(**changes), "facts")
    no_json = changes.get("boot_counter") in ("1e999", "NaN")
    assert refused.value.code == ("peer-unintelligible" if no_json else "peer-malformed")
    assert all(value.strip('"') not in str(refused.value) for value in changes.values() if len(value) > 9)


@pytest.mark.parametrize("body", [b"[]", b"5", b'{"port":null}'])
async def test_an_answer_that_has_no_facts_is_none(body: bytes) -> None:
    with pytest.raises(Unavailable, match="makes no sense"):
        await ask(body, "facts")


@pytest.mark.parametrize(
    ("number", "hint"),
    [(str(1 << 30), 1 << 30), *((no, None) for no in ("1e999", "NaN", "true", "1.5", '"7"', "null", "-1", "9" * 4000))],
)
async def test_memory_is_a_number_or_no_hint(number: str, hint: int | None) -> None:
    assert await ask(said(memory_bytes=number), "memory_bytes") == hint
    assert await ask(b"[]", "memory_bytes") is None
