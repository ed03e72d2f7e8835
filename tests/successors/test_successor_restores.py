"""A visit that was accepted and then taken back by a restore is in no model: its holder need not be named, and takes part all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from data_holder.log_reader import LogReader
from data_holder.protocol.state import SessionState
from data_holder.succession import _contradicted, _taken_back
from gput.receipt_known import SignedFor
from gput.receipt_leaves import HeldReceipt
from gput.receipt_successor import check_succession
from gput.receipts import save, verify
from orchestrator.ledger.tree import MerkleTree
from shared.claims.manifest import Contributor, Predecessor
from shared.errors import VerificationFailed
from shared.protocol.log_events import event_bytes
from shared.protocol.merkle import leaf_hash
from tests.orchestrator.orchestrator_samples import manifest
from tests.successors.successor_world import FIRST, LEFT, NewWorld

OFTEN = {"orchestrator": {"checkpoint_interval_s": 1e-6, "checkpoint_share": 1e6}}
"""A checkpoint after each visit."""
SESSION = "s_aaaaaaaaaaaaaaaa"
LAST = FIRST[-1]


async def test_who_was_taken_back_goes_on_with_the_others(new_world: NewWorld, tmp_path: Path) -> None:
    """The GPU loses its power after the round; its newest checkpoint is gone, and the session is given up before the last visit is
    repeated. That holder has an accepted receipt, and the model that is gone on with has none of its records."""
    async with new_world(own_gpu=True, settings=OFTEN) as world:
        before = await world.left()
        await world[f"holder-{LAST}"].kill()
        await world["agent"].kill()
        kept = (world.folder / "orchestrator" / "sessions" / before / "checkpoints").glob("*.sealed")
        max(kept, key=lambda path: path.stat().st_mtime_ns).unlink()
        await world["agent"].start()
        await world.until(before, lambda view: view["visits_closed"] == len(FIRST) and view["step"] < 9)
        await world.owner.act(before, "cancel")
        assert (await world.finish(before))["phase"] == "CANCELLED"
        assert {one.holder for one in (await world.rest(before)).contributors} == set(FIRST) - {LAST}
        for name in (LEFT, LAST):
            await world[f"holder-{name}"].start()
        after = await world.succeed(before, replace={}, rounds=1)
        await world.completed(after)
        folders = {name: tmp_path / name for name in (before, after)}
        for name, folder in folders.items():
            await save(world.owner, name, folder, world.folder / "trust")
    found = verify(folders[after], predecessor=folders[before])
    assert found.holders == dict.fromkeys(FIRST, 1)
    assert verify(folders[before]).holders == dict.fromkeys(FIRST, 1)


def visit(stop: int, holder: str, before: str, after: str) -> HeldReceipt:
    models = before * 64, after * 64
    return HeldReceipt(
        f"v_{stop}", stop, 1, holder, "closed", "EMULATED", 16, 3 * stop - 3, 3, *models, None, None, None, 2 * stop
    )


RECEIPTS = {0: visit(1, "city", "a", "b"), 1: visit(2, "north", "b", "c"), 2: visit(3, "harbour", "c", "d")}


def said(*contributors: str, **changes: Any) -> Predecessor:
    named = tuple(Contributor(holder=name, key="0" * 64, records=1) for name in contributors)
    usual = {
        "session": SESSION,
        "manifest": manifest().digest().hex(),
        "model": "c" * 64,
        "optimiser": "0" * 64,
        "step": 6,
    }
    return Predecessor.model_validate(usual | {"contributors": named} | changes)


def restored(position: int) -> tuple[str, dict[str, Any]]:
    return "restored", {"position": position}


def tree_of(leaves: list[bytes]) -> MerkleTree:
    tree = MerkleTree()
    for leaf in leaves:
        tree.append(leaf_hash(leaf))
    return tree


@pytest.mark.parametrize(
    ("position", "named", "sound"),
    [
        (2, ("city", "north"), True), (2, ("city", "north", "harbour"), True), (2, ("city",), False),
        (2, ("city", "north", "valley"), False), (1, ("city",), False), (3, ("city", "north"), False),
    ],
)  # fmt: skip
def test_named_is_who_counts_and_perhaps_who_was_taken_back(position: int, named: tuple[str, ...], sound: bool) -> None:
    """Where it went back to one stop, north came again."""
    hashes = [bytes([n]) * 32 for n in range(5)]
    tree = MerkleTree()
    for one in hashes:
        tree.append(one)
    receipts = RECEIPTS | ({4: visit(2, "north", "b", "c")} if position == 1 else {})
    kind, details = restored(position)
    rules = manifest()
    book = SignedFor(SESSION, rules, rules.digest().hex())
    rest = said(*named, log_size=5, log_root=tree.root().hex())
    events = {3: ["x", SESSION, kind, details]}
    if sound:
        check_succession(rest, book, receipts, events, hashes)
        return
    with pytest.raises(VerificationFailed, match="whose records are in it") as caught:
        check_succession(rest, book, receipts, events, hashes)
    assert caught.value.code == "predecessor-mismatch"


class Link:
    """An orchestrator that shows these leaves of this tree, two at a time."""

    def __init__(self, leaves: list[bytes], tree: MerkleTree) -> None:
        self._leaves, self._tree = leaves, tree

    async def get_json(self, path: str, params: dict[str, Any]) -> Any:
        size = int(params["size"])
        if path.endswith("/inclusion"):
            return {"path": [node.hex() for node in self._tree.inclusion(params["index"], size)]}
        from base64 import b64encode

        first = int(params.get("after", 0))
        items = [
            {"index": at, "leaf": b64encode(self._leaves[at]).decode(),
             "path": [node.hex() for node in self._tree.inclusion(at, size)]}
            for at in range(first, min(first + 2, size))
        ]  # fmt: skip
        return {"items": items, "next": str(first + 2) if first + 2 < size else None}


COSE = b"\xd2 a receipt"


async def taken_back(leaves: list[bytes], *, stop: int = 3, shown: list[bytes] | None = None) -> bool:
    """Whether the log takes back the visit at `stop`, whose receipt is leaf 1."""
    tree = tree_of(leaves)
    rest = said("city", log_size=len(leaves), log_root=tree.root().hex())
    link: Any = Link(shown or leaves, tree)
    return await _taken_back(LogReader(link, SessionState(SESSION)), rest, COSE, 1, stop)


def event(position: int) -> bytes:
    return event_bytes(SESSION, *restored(position))


OTHER = event_bytes(SESSION, "recalled", {})


async def test_a_holder_reads_in_the_log_that_its_visit_was_taken_back() -> None:
    assert await taken_back([OTHER, COSE, OTHER, event(2)])
    assert not await taken_back([OTHER, COSE, OTHER, event(3)]), "it lies behind the restored model"
    assert not await taken_back([event(0), COSE, OTHER, OTHER]), "it was made after the restore"
    assert not await taken_back([OTHER, COSE])


async def test_a_restore_that_the_log_does_not_hold_takes_nothing_back() -> None:
    sound = [OTHER, COSE, OTHER, OTHER, OTHER]
    with pytest.raises(VerificationFailed) as caught:
        await taken_back(sound, shown=[*sound[:3], event(0), OTHER])
    assert caught.value.code == "bad-inclusion-proof"
    with pytest.raises(VerificationFailed):
        await taken_back([OTHER, OTHER, event(0)])  # nor from behind a place where the receipt is not


def test_what_a_receipt_contradicts() -> None:
    statement = {"first_step": 3, "steps": 3, "model_before": "b" * 64, "model_after": "c" * 64}

    def found(name: str, *contributors: str, **changes: Any) -> str:
        fault = _contradicted(name, statement, said(*contributors, log_size=1, log_root="0" * 64, **changes))
        return "" if fault is None else fault.detail

    assert found("north", "city", "north") == found("north", "city", step=5) == ""
    assert "contributors" in found("north", "city")
    assert "model at step 6" in found("north", "city", "north", model="e" * 64)
    assert "model at step 3" in found("north", "city", "north", model="e" * 64, step=3)
