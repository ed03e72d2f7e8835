"""Lives that opened no channel with this holder: what their introduction makes believed, and what it does not."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from shared.canonical import json_bytes, json_value, sha256
from shared.crypto.signing import PartyKey
from tests.data_holder.conftest import Running, Start
from tests.data_holder.holder_world import SESSION
from tests.data_holder.test_holder_receipts import stored, visited

PATH = f"/v1/requests/{SESSION}"


async def another_life(running: Running) -> bytes:
    """A visit of a first life, whose receipt a second one signs that asks for no channel. The receipt."""
    document, report = await visited(running)
    running.orchestrator.signing = PartyKey.generate()
    return running.orchestrator.make_receipt(document, report)


def recorded(running: Running) -> int:
    return len(running.holder.ledger.state(SESSION).channels)


async def test_a_life_that_opened_no_channel_signs_receipt_and_head(start: Start) -> None:
    async with start() as running:
        cose = await another_life(running)
        running.orchestrator.keys.append({"holder": "somebody", "signing_key": "00" * 32})  # on a page of its own
        running.orchestrator.introduce()
        running.orchestrator.close_visit(cose)
        assert (await stored(running))["verified"]
        running.orchestrator.post("ended", phase="COMPLETED")
        await running.until(lambda: running.holder.ledger.state(SESSION).ended)
        log = await running.get(f"{PATH}/log")
        assert log["key"] == running.orchestrator.signing.public.hex()
        keys = (await running.get(f"{PATH}/keys"))["items"]
        [life] = [key for key in keys if key["holder_runtime_data"] is None]
        assert life["signing_key"] == log["key"]
        assert len(keys) == 2
    async with start() as running:  # it is remembered: nothing is asked again
        asked = running.orchestrator.keys_asked
        assert (await running.get(f"{PATH}/log"))["key"] == life["signing_key"]
        assert running.orchestrator.keys_asked == asked


async def test_what_a_channel_vouches_for_is_not_asked_for(running: Running) -> None:
    document, report = await visited(running)
    running.orchestrator.close_visit(running.orchestrator.make_receipt(document, report))
    assert (await stored(running))["verified"]
    await running.get(f"{PATH}/log")
    assert running.orchestrator.keys_asked == 0


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "another session": ({"session": "s_ffffffffffffffff"}, "channel-session"),
    "another manifest": ({"manifest": "00" * 32}, "channel-manifest"),
    "a channel of this holder": ({"holder": "north"}, "channel-holder"),
    "an answer to a challenge": ({"peer_nonce": "01" * 32}, "channel-nonce"),
    "another enrolled key": ({"enrolled_key": b"\x09" * 32}, "channel-enrolled-key"),
    "another signing key": ({"signing_key": b"\x09" * 32}, "introduction-malformed"),
}


@pytest.mark.parametrize("lie", LIES)
async def test_an_introduction_of_something_else_makes_nobody_known(running: Running, lie: str) -> None:
    changes, code = LIES[lie]
    await another_life(running)
    running.orchestrator.introduce(**changes)
    before = recorded(running)
    said = (await running.client.get(f"{PATH}/log")).json()
    assert said["code"] == code
    assert recorded(running) == before


@pytest.mark.parametrize("broken", ["runtime_data", "evidence", "gpu_evidence", "signing_key", "holder", "not_after"])
async def test_a_malformed_or_unquoted_introduction_makes_nobody_known(running: Running, broken: str) -> None:
    await another_life(running)
    item = running.orchestrator.introduce()
    if broken == "not_after":  # younger than its quote says
        runtime = json_value(base64.b64decode(item["runtime_data"]))
        runtime["not_after"] += 1
        item["runtime_data"] = base64.b64encode(json_bytes(runtime)).decode()
    elif broken == "runtime_data":
        item["runtime_data"] = base64.b64encode(b"{}").decode()
    else:
        del item[broken]
    before = recorded(running)
    said = (await running.client.get(f"{PATH}/log")).json()
    assert said["code"] == ("quote-report-data" if broken == "not_after" else "introduction-malformed")
    assert recorded(running) == before


@pytest.mark.parametrize(("earlier", "believed"), [(0, True), (86_400 + 120, False)])
async def test_expired_evidence_names_no_time_before_its_session(
    running: Running, earlier: int, believed: bool
) -> None:
    """Whoever has the key of a machine that was revoked meanwhile dates its quote to before that."""
    await another_life(running)
    now = int(running.clock())
    running.orchestrator.introduce(not_after=now + 86_400 - earlier)
    running.clock.now += 86_500
    said = (await running.client.get(f"{PATH}/log")).json()
    assert said.get("code") == (None if believed else "introduction-backdated")


async def test_a_machine_with_other_code_introduces_nobody(running: Running) -> None:
    await another_life(running)
    running.orchestrator.cvm = "holder-south"
    running.orchestrator.introduce()
    before = recorded(running)
    assert (await running.client.get(f"{PATH}/log")).status_code == 403
    assert recorded(running) == before


async def test_no_receipt_names_an_introduction_as_the_channel_of_its_visit(running: Running) -> None:
    document, report = await visited(running)
    running.orchestrator.signing = PartyKey.generate()
    item = running.orchestrator.introduce()
    named = sha256(base64.b64decode(item["runtime_data"])).hex()
    cose = running.orchestrator.make_receipt(
        document, report, orchestrator_runtime_data=named, holder_runtime_data="00" * 32
    )
    await running.get(f"{PATH}/log")  # it is known now
    before = recorded(running)
    running.orchestrator.close_visit(cose)
    running.orchestrator.post("ended", phase="COMPLETED")
    await running.until(lambda: running.holder.ledger.state(SESSION).ended)
    assert before == 2
    assert (await running.get("/v1/receipts"))["items"] == []
