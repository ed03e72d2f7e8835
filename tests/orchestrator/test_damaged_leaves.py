"""A stored leaf that is not the log's is shown to nobody as a receipt, and whoever asked for it is not at fault. Checkpoints: the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import cbor2
import pytest
from sqlalchemy import insert, text

from orchestrator.api.deps import parts_of
from orchestrator.gpu_session.checkpoints import MAGIC, _read_parts
from orchestrator.ledger.log import event_leaf, receipt_leaf
from orchestrator.tables import LEAVES
from shared.canonical import cbor_bytes
from shared.errors import VerificationFailed
from shared.service.app import service_state
from shared.service.refusals import COUNTED
from tests.orchestrator.orchestrator_world import World, prepared, submit


def cose(number: int) -> bytes:
    return cbor_bytes(cbor2.CBORTag(18, [b"", {}, cbor_bytes({"number": number}), b"signature"]))


class Ledger:
    """A session's log of three receipts with an event among them."""

    def __init__(self, world: World, owner: Any, session: str) -> None:
        self.world, self.owner, self.path = world, owner, f"/v1/sessions/{session}"
        self.session = session

    async def write(self, act: Any) -> None:
        store = service_state(self.world.app).store
        assert store is not None
        await store.write(act)

    async def fill(self) -> None:
        tree = (await parts_of(self.world.app).catalogue.open(self.session)).durable.tree
        for number in range(4):
            if number == 2:
                leaf = event_leaf(tree, self.session, "recalled", {"visit": None})
            else:
                row = {"visit": f"v_{number}", "holder": "h0", "outcome": "closed"}
                leaf = receipt_leaf(tree, self.session, cose(number), **row)
            await self.write(leaf.row)
            tree.append(bytes.fromhex(leaf.fact["hash"]))


@pytest.fixture
async def ledger(world: World) -> Ledger:
    owner = await prepared(world)
    made = Ledger(world, owner, (await submit(owner)).json()["id"])
    await made.fill()
    return made


async def test_receipts_are_shown_as_the_log_holds_them(ledger: Ledger) -> None:
    found = (await ledger.owner.get(f"{ledger.path}/receipts")).json()["items"]
    assert [(one["index"], one["receipt"]) for one in found] == [(n, {"number": n}) for n in (0, 1, 3)]
    assert (await ledger.owner.get(f"{ledger.path}/receipts/1")).json() == found[1]
    assert (await ledger.owner.get(f"{ledger.path}/receipts/1/cose")).content == cose(1)
    assert (await ledger.owner.get(f"{ledger.path}/receipts/2")).json()["code"] == "unknown-receipt"


CHANGES = {
    "a bit": "leaf = x'ff'",
    "another one's bytes": f"leaf = x'{cose(0).hex()}'",
    "text": "leaf = 'abc'",
    "an event that is said to be one": "kind = 'receipt'",
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_changed_leaf_is_named_and_nobody_is_blamed(ledger: Ledger, change: str) -> None:
    """It was answered as a bad request, which counts against the address that it came from; or as a fault of ours."""
    index = 2 if change.startswith("an event") else 1
    await ledger.write(lambda c: c.execute(text(f"UPDATE log_leaves SET {CHANGES[change]} WHERE idx = {index}")))
    paths = ["/receipts", f"/receipts/{index}", *([f"/receipts/{index}/cose"] if index == 1 else [])]
    for path in paths:
        answer = await ledger.owner.get(f"{ledger.path}{path}")
        assert (answer.status_code, answer.json()["code"]) == (500, "log-mismatch"), path
        assert answer.status_code not in COUNTED
    assert (await ledger.owner.get(f"{ledger.path}/receipts/0")).status_code == 200


async def test_a_leaf_beyond_the_log_is_not_there(ledger: Ledger) -> None:
    """On its way into the session's state, or put there by somebody."""
    row = {"session": ledger.session, "idx": 4, "kind": "receipt", "leaf": cose(4), "holder": "h0"}
    await ledger.write(lambda c: c.execute(insert(LEAVES).values(row)))
    found = (await ledger.owner.get(f"{ledger.path}/receipts", params={"limit": 3})).json()
    assert ([one["index"] for one in found["items"]], found["next"]) == ([0, 1, 3], None)
    for path in ("/receipts/4", "/receipts/4/cose"):
        answer = await ledger.owner.get(f"{ledger.path}{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown-receipt")


def part(header: bytes, chunks: bytes = b"") -> bytes:
    return len(header).to_bytes(4, "little") + header + chunks


SOUND = part(cbor_bytes([0, 8, [3, 5]]), b"abcdefgh")
DAMAGED = {
    "no magic": b"GPUT-CHECKPOINT-2\n" + SOUND,
    "a header that is none": MAGIC + part(b"\xff\xff\xff"),
    "a header that is cut": MAGIC + part(b"\x83\x00"),
    "a header that is longer than the file": MAGIC + (1 << 10).to_bytes(4, "little") + b"\x80",
    "a chunk that is cut": MAGIC + SOUND[:-1],
    "a part twice": MAGIC + SOUND + SOUND,
    "a part left out": MAGIC + part(cbor_bytes([8, 2, [2]]), b"ij"),
    "more than there is": MAGIC + part(cbor_bytes([0, 11, [2]]), b"ij"),
    "a number that no command holds": MAGIC + part(cbor_bytes([0, 1 << 63, [2]]), b"ij"),
    "a length that is cut": MAGIC + SOUND + b"\x01\x00",
    "a header in another form": MAGIC + part(b"\x9f\x00\x08\x81\x03\xff", b"abc"),
    "too little in it": MAGIC + part(cbor_bytes([0, 8])),
    "no chunk": MAGIC + part(cbor_bytes([0, 8, []])),
    "nothing covered": MAGIC + part(cbor_bytes([0, 0, [3]]), b"abc"),
    "before its beginning": MAGIC + part(cbor_bytes([-1, 8, [3]]), b"abc"),
    "a chunk longer than the file": MAGIC + part(cbor_bytes([0, 8, [1 << 40]]), b"abc"),
    "a chunk of less than nothing": MAGIC + part(cbor_bytes([0, 8, [-1]]), b"abc"),
    "a chunk of nothing": MAGIC + part(cbor_bytes([0, 8, [3, 0, 5]]), b"abcdefgh"),
    "more chunks than a batch has": MAGIC + part(cbor_bytes([0, 8, [1] * 65]), bytes(65)),
    "a chunk of no length": MAGIC + part(cbor_bytes([0, 8, ["3"]]), b"abc"),
}


@pytest.mark.parametrize("which", DAMAGED)
def test_a_damaged_checkpoint_is_named(tmp_path: Path, which: str) -> None:
    path = tmp_path / "k_1.sealed"
    path.write_bytes(DAMAGED[which])
    with pytest.raises(VerificationFailed) as refusal:
        list(_read_parts(path, 10))
    assert refusal.value.code == "checkpoint-damaged"


@pytest.mark.parametrize("lengths", [[(2 << 20) + 1], [2 << 20] * 17], ids=["a record", "a batch"])
def test_what_is_there_but_longer_than_any_that_was_sealed_is_not_read(tmp_path: Path, lengths: list[int]) -> None:
    """One flipped bit of the header says so: the GPU refused it as a fault of ours, and as many bytes were taken into memory."""
    path, head = tmp_path / "k_1.sealed", MAGIC + part(cbor_bytes([0, 8, lengths]))
    path.write_bytes(head)
    os.truncate(path, len(head) + sum(lengths))
    with pytest.raises(VerificationFailed) as refusal:
        next(_read_parts(path, 10))
    assert refusal.value.code == "checkpoint-damaged"


def test_a_sound_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "k_1.sealed"
    path.write_bytes(MAGIC + SOUND + part(cbor_bytes([8, 2, [2]]), b"ij"))
    assert list(_read_parts(path, 10)) == [(0, 8, [b"abc", b"defgh"]), (8, 2, [b"ij"])]
