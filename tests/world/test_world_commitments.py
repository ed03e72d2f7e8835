"""Data changed after the approval, or other records than the planned ones: refused, with the holder named, and the session goes on."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

from data_holder import visits as holder_visits
from data_holder.ahead import ReadAhead, Ready
from data_holder.assembly import Holder
from data_holder.commitments import Committed
from data_holder.sealing import Membership, RecordSealer
from shared.canonical import sha256
from shared.claims.visit import CursorRange, Grant
from shared.crypto.schedule import dataset_salt
from tests import dataset_tree
from tests.adversary.rows import attack
from tests.world.world import PATIENCE_S, World
from tests.world.world_material import RECORD_BYTES, RECORDS, record, rows
from tests.world.world_recording import Recording
from tests.world.world_wire import Call, Deliver, cut


def dataset(world: World) -> Path:
    return world.folder / "holder-city" / "ehr.npz"


def swap(world: World) -> bytes:
    """Other records, as many; what was there before."""
    before = dataset(world).read_bytes()
    features, label = rows(RECORDS, 77)
    np.savez(dataset(world), features=features, label=label)
    return before


def holder_of(world: World, name: str = "city") -> Holder:
    app = world[f"holder-{name}"].app
    assert app is not None
    return app.state.holder  # type: ignore[no-any-return]  # Starlette's state is untyped


async def reason(world: World, session: str, *parts: str, seconds: float = PATIENCE_S) -> str:
    """Why a visit was recalled, once it was for a reason that says all of this."""
    for _ in range(int(seconds / 0.02)):
        for visit in await world.visits(session):
            if visit["outcome"] == "recalled" and all(part in (visit["reason"] or "") for part in parts):
                assert visit["holder"] == "city"
                return str(visit["reason"])
        await asyncio.sleep(0.02)
    raise AssertionError([(v["holder"], v["outcome"], v["reason"]) for v in await world.visits(session)])


def before_second_visit(world: World, act: Callable[[], None]) -> None:
    """Do something while the GPU is on its way to north for the first time: city's second visit is next, and has no key yet."""
    done = False

    async def watch(call: Call, deliver: Deliver) -> httpx2.Response:
        nonlocal done
        if call.link == ("orchestrator", "platform") and b'"holder-north"' in call.body and not done:
            done = True
            act()
        return await deliver(call)

    world.wire.hooks.append(watch)


@attack("H14", scoped="stopped: the approved dataset root")
async def test_data_swapped_between_visits_is_refused_until_it_is_put_back(world: World, recorded: Recording) -> None:
    honest: list[bytes] = []
    before_second_visit(world, lambda: honest.append(swap(world)))
    session = await world.submit()
    said = await reason(world, session, "city refused: dataset-changed", "not the one that this holder approved")
    assert "GPU" not in said  # an honest holder does not even seal
    view = await world.owner.session(session)
    assert view["phase"] == "RUNNING"
    dataset(world).write_bytes(honest[0])
    view = await world.completed(session)
    assert view["model"]["digest"] == recorded.view["model"]["digest"]
    assert any("dataset-changed" in event for event in await world.events(session))


def shifted(cursor: CursorRange) -> CursorRange:
    return cursor.model_copy(update={"start": cursor.start + 1})


class Lies:
    """Ways in which a holder's changed code may lie; each ends with `honest()`."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self._world, self._patch, self._back = world, monkeypatch, b""

    def swapped(self) -> None:
        """Swap the data and send it all the same, with an honest proof of the new."""
        real = holder_visits.Visits._committed
        self._back = swap(self._world)

        async def careless(this: Any, session: str, admitted: Any) -> Committed:
            if admitted.document.grant.holder != "city":
                return await real(this, session, admitted)
            _, program = await this._approvals.show(session)
            return await this._commitments.open(session, "ehr", program)  # type: ignore[no-any-return]  # as above

        self._patch.setattr(holder_visits.Visits, "_committed", careless)

    def others(self) -> None:
        """Send other records of the approved dataset, with the proof of the planned ones."""

        def sealer(grant: Grant, *rest: Any) -> RecordSealer:
            if grant.holder == "city":
                grant = grant.model_copy(update={"cursor": shifted(grant.cursor)})
            return RecordSealer(grant, *rest)

        async def take(ahead: ReadAhead, session: str, committed: Committed, grant: Any) -> Ready:
            await ahead.drop(session)  # what it had read before is the truth
            return Ready(await committed.membership(grant.cursor))

        self._patch.setattr(holder_visits, "RecordSealer", sealer)
        self._patch.setattr(ReadAhead, "take", take)

    def others_proven(self) -> None:
        """The same, with a proof of those it sends."""
        self.others()
        real = Committed.membership

        async def membership(this: Committed, cursor: CursorRange) -> Membership:
            of_city = any(this is known for known in holder_of(self._world).visits._open.values())
            return await real(this, shifted(cursor) if of_city else cursor)

        self._patch.setattr(Committed, "membership", membership)

    def honest(self) -> None:
        self._patch.undo()
        if self._back:
            dataset(self._world).write_bytes(self._back)


QUICK = {("swapped", False), ("others_proven", True)}


@attack("H14", scoped="stopped: records are proven within the approved root")
@pytest.mark.parametrize(
    ("lie", "silent"),
    [
        pytest.param(lie, silent, marks=() if (lie, silent) in QUICK else pytest.mark.slow)
        for lie in ("swapped", "others", "others_proven")
        for silent in (False, True)
    ],
)
async def test_what_the_holder_lies_about_the_gpu_refuses(
    lie: str, silent: bool, world: World, recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The buffer is not published, the holder is named by the GPU's own word, and the same visit succeeds with the true records."""
    lies = Lies(world, monkeypatch)
    before_second_visit(world, getattr(lies, lie))

    async def mute(call: Call, deliver: Deliver) -> httpx2.Response:
        return cut(call) if silent and call.path.endswith("/refusal") else await deliver(call)

    world.wire.hooks.append(mute)
    session = await world.submit(lease_s=1 if silent else 60)
    said = await reason(world, session, "the GPU refused city's data: the records are not those that the cursor names")
    assert ("the lease expired" if silent else "city refused: data-not-approved") in said
    lies.honest()
    world.wire.hooks.remove(mute)
    view = await world.completed(session)
    assert view["model"]["digest"] == recorded.view["model"]["digest"]
    visits = await world.visits(session)
    # On a slow machine a short lease ends others' visits as well, and who had a key behind city's visit gets another; nothing else may.
    others = {v["reason"] for v in visits if v["holder"] != "city" and v["outcome"] != "closed"}
    assert others <= {"the lease expired", "the visit before it was recalled"}
    assert any("the GPU refused city" in event for event in await world.events(session))


async def test_every_receipt_names_the_approved_root(recorded: Recording) -> None:
    approvals = {a["holder"]: a for a in recorded.approvals}
    for holder, items in recorded.holder_receipts.items():
        for item in items:
            checks = {check["check"]: check["ok"] for check in item["checks"]}
            assert checks["receipt: dataset_root"]
            assert checks["statement: dataset_root"]
        assert (approvals[holder]["records"], approvals[holder]["record_bytes"]) == (RECORDS, RECORD_BYTES)
    assert len({a["dataset_root"] for a in approvals.values()}) == len(approvals)


@attack("H25", any="stopped: salted roots; the salt is for the GPU alone")
async def test_salt_and_leaves_are_for_the_gpu_alone(world: World) -> None:
    """Who knew the salt could try out guesses of a record against root and leaves; without it even the right guess shows nothing."""
    session = await world.submit()
    await world.until(session, lambda view: view["visits_closed"] >= 1)
    folder = world.folder / "holder-city" / "trees"
    leaves = next(iter(folder.glob("*.tree"))).read_bytes()[32:]
    salt = holder_of(world).approvals._commitments._salt(session, "ehr").reveal()
    roots = {
        a["dataset_root"] for a in await world.owner.items(f"sessions/{session}/approvals") if a["holder"] == "city"
    }
    await world.completed(session)
    for _ in range(1000):  # until the holder has heard of the end
        if not list(folder.glob("*.tree")):
            break
        await asyncio.sleep(0.01)
    assert not list(folder.glob("*.tree")), "the tree outlived its session"
    features, label = rows(RECORDS, 0)
    guess = [record(features, label, at) for at in range(RECORDS)]
    assert {dataset_tree.root(salt, guess).hex()} == roots, "the guess is right"
    names = ("city", session, "ehr", *sorted(roots))
    public = [bytes(32), *(sha256(name.encode()) for name in names), dataset_salt(bytes(32), "city", session, "ehr")]
    assert not any(dataset_tree.root(known, guess).hex() in roots for known in public)
    bodies = b"".join(world.wire.bodies())
    kept = b"".join(world.files())
    for secret in (salt, *(leaves[at : at + 32] for at in range(0, RECORDS * 32, 32))):
        for form in (secret, secret.hex().encode(), base64.b64encode(secret)[:40]):
            assert form not in bodies
            assert form not in kept  # the tree itself is gone with the session
