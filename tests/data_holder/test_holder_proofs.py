"""What the holder's API hands to other programs: keys, agreement and log proofs that verify a receipt without this holder's word for it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from shared.canonical import cbor_value, json_value, sha256
from shared.claims.receipt import Receipt
from shared.crypto.cose import load_verifier, parse1, verify1
from shared.crypto.signing import PartyKey, verify
from shared.crypto.tree_head import TreeHead, verify_tree_head
from shared.protocol.merkle import leaf_hash, verify_consistency, verify_inclusion
from tests.data_holder.conftest import Running
from tests.data_holder.holder_world import SESSION
from tests.data_holder.test_holder_receipts import stored, visited

PATH = f"/v1/requests/{SESSION}"


async def closed(running: Running) -> bytes:
    """A visit with its receipt, which this holder keeps."""
    document, report = await visited(running)
    cose = running.orchestrator.make_receipt(document, report)
    running.orchestrator.leaves.append(b"a leaf of somebody else")
    running.orchestrator.close_visit(cose)
    assert (await stored(running))["verified"]
    return cose


async def test_a_receipt_is_verified_with_nothing_but_what_the_api_says(running: Running) -> None:
    cose = await closed(running)
    [key] = (await running.get(f"{PATH}/keys"))["items"]
    log = await running.get(f"{PATH}/log")
    [proven] = (await running.get(f"{PATH}/log/receipts?size={log['size']}"))["items"]
    assert (proven["index"], base64.b64decode(proven["receipt"])) == (1, cose)
    message = parse1(cose)
    signing = bytes.fromhex(key["signing_key"])
    assert message.kid == sha256(signing)
    receipt = Receipt.model_validate(cbor_value(message.verified(signing)))
    verify1(receipt.statement, load_verifier(bytes.fromhex(key["statement_key"])))
    named = ("orchestrator_runtime_data", "holder_runtime_data", "gpu_evidence")
    assert {name: getattr(receipt, name) for name in named} == {name: key[name] for name in named}
    head = TreeHead(SESSION, log["size"], bytes.fromhex(log["root"]), log["time"])
    verify_tree_head(head, bytes.fromhex(log["key"]), base64.b64decode(log["signature"]))
    verify_inclusion(leaf_hash(cose), 1, head.size, [bytes.fromhex(node) for node in proven["path"]], head.root)
    remembered = log["remembered"]
    path = [bytes.fromhex(node) for node in log["consistency"]]
    verify_consistency(remembered["size"], bytes.fromhex(remembered["root"]), head.size, head.root, path)


async def test_the_agreement_is_the_bytes_that_were_signed(running: Running) -> None:
    await running.approved_with_channel()
    agreed = await running.get(f"{PATH}/agreement")
    manifest = base64.b64decode(agreed["manifest"])
    assert sha256(manifest).hex() == agreed["digest"] == (await running.get(PATH))["manifest"]
    document = base64.b64decode(agreed["decision"]["document"])
    signature = base64.b64decode(agreed["decision"]["signature"])
    verify(bytes.fromhex(agreed["public_key"]), "gput/approval", document, signature)
    said = json_value(document)
    assert (said["manifest"], said["decision"]) == (agreed["digest"], "approve")
    assert said["dataset_root"] == agreed["dataset_root"]
    assert sha256(bytes.fromhex(agreed["public_key"])).hex() == running.holder.foundation.key.fingerprint


async def test_receipts_come_without_ways_where_no_tree_is_named_and_while_the_orchestrator_is_away(
    running: Running,
) -> None:
    cose = await closed(running)
    running.orchestrator.down = True
    [proven] = (await running.get(f"{PATH}/log/receipts"))["items"]
    assert proven == {"index": 1, "receipt": base64.b64encode(cose).decode(), "path": None}
    for path in (f"{PATH}/log", f"{PATH}/log/receipts?size=2"):
        assert (await running.client.get(path)).json()["code"] == "peer-unreachable"


async def test_a_receipt_outside_the_tree_that_was_asked_about_is_left_out(running: Running) -> None:
    await closed(running)
    assert (await running.get(f"{PATH}/log/receipts?size=1"))["items"] == []


async def test_keys_and_receipts_come_in_pages(running: Running) -> None:
    document, report = await visited(running)
    for changes in ({"records": 19}, {"records": 18}, {}):
        running.orchestrator.close_visit(running.orchestrator.make_receipt(document, report, **changes))
    await running.until(lambda: running.attempt_phase(1) is None)
    running.orchestrator.signing = PartyKey.generate()  # another life, and so another channel
    running.orchestrator.post("channel_wanted")
    await running.until(lambda: len(running.holder.ledger.state(SESSION).channels) == 2)
    for path, name, wanted in [
        ("keys?", "orchestrator_runtime_data", sorted(running.holder.ledger.state(SESSION).channels)),
        ("log/receipts?size=3&", "index", [0, 1, 2]),
    ]:
        found, after = list[Any](), ""
        for _ in wanted:
            page = await running.get(f"{PATH}/{path}limit=1{after}")
            found += [item[name] for item in page["items"]]
            after = f"&after={page['next']}"
        assert (found, page["next"]) == (wanted, None)


@pytest.mark.parametrize("changed", ["signing", "rolled back"])
async def test_a_head_that_does_not_hold_is_not_handed_on(running: Running, changed: str) -> None:
    await closed(running)
    running.orchestrator.post("ended", phase="COMPLETED")
    await running.until(lambda: running.holder.ledger.state(SESSION).ended)
    if changed == "signing":
        running.orchestrator.signing = PartyKey.generate()
    else:
        running.orchestrator.leaves.pop()
    said = (await running.client.get(f"{PATH}/log")).json()
    assert said["code"] == {"signing": "log-signer-unknown", "rolled back": "log-rolled-back"}[changed]


async def test_what_is_nobodys_session_is_not_found_and_strangers_read_nothing(running: Running) -> None:
    for name in ("agreement", "keys", "log", "log/receipts"):
        answer = await running.client.get(f"/v1/requests/s_ffffffffffffffff/{name}")
        assert (answer.status_code, answer.json()["code"]) == (404, "session-unknown")
        answer = await running.client.get(f"{PATH}/{name}", headers={"authorization": "Bearer nobody"})
        assert answer.status_code == 401
