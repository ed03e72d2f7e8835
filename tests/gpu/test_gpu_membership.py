"""The GPU takes a visit's records only if they are those that its cursor names in the dataset the holder approved; else nothing stays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gpu_agent.crew import Crew
from gpu_agent.leaf_crew import LeafCrew
from shared.claims.receipt import DeviceStatement
from shared.claims.visit import CursorRange
from shared.crypto import cose
from shared.errors import GputError
from shared.protocol.record_order import records_of
from shared.wire import gpu
from shared.wire.codec import decode
from shared.wire.copy import CLOSING, DATA, PROOF
from tests import dataset_tree
from tests.adversary.rows import attack
from tests.gpu.gpu_holder import DATASET_SALT, Holder, root_of
from tests.gpu.gpu_world import RECORD_BYTES, World, records

N = 100
LONG = "shared.protocol.membership", "tests.dataset_tree"
DATASET = records(N, seed=9)
OWN = dataset_tree.split(DATASET, RECORD_BYTES)
SHUFFLED = CursorRange(start=30, count=24, order="shuffled", seed=4)


@pytest.fixture(autouse=True, params=["short", "long"])
def records_are(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, world: World) -> Iterator[None]:
    """Everything here holds of short records, and of long ones, which stand in their entry by a digest."""
    if request.param == "short":
        yield
        return
    for module in LONG:
        monkeypatch.setattr(f"{module}.DIGESTED_BYTES", RECORD_BYTES)
    crew = Crew(threads=2)
    monkeypatch.setattr(world.device._state.copies, "hash_leaves", LeafCrew(crew))
    yield
    crew.close()


def named(cursor: CursorRange) -> list[bytes]:
    """The records that a cursor names, in its order."""
    return [OWN[index] for index in records_of(cursor, N).tolist()]


def proof_of(cursor: CursorRange) -> bytes:
    return dataset_tree.proof(DATASET_SALT, OWN, records_of(cursor, N).tolist())


def install(world: World, cursor: CursorRange, **changes: Any) -> Holder:
    return world.install(dataset=DATASET, cursor=cursor, **changes)


def give_up(world: World, holder: Holder) -> Any:
    """Fence and scrub; what the fence found."""
    _, opened, _ = world.open_epoch(holder.grant.epoch)
    world.run(gpu.Scrub(region=holder.grant.region))
    return opened.fenced[0]


def refusal(world: World, holder: Holder, sealed: list[bytes]) -> GputError:
    """All but the last record are taken, the last one is not, and nothing stays in the region."""
    for record in sealed[:-1]:
        assert not holder.copy(record).published
    with pytest.raises(GputError) as caught:
        holder.copy(sealed[-1])
    info = next(r for r in world.regions if r.handle == holder.grant.region)
    assert not any(world.hbm.view(info.address, info.length))
    return caught.value


@pytest.mark.parametrize(
    "cursor",
    [
        CursorRange(start=0, count=1),
        CursorRange(start=0, count=N),
        CursorRange(start=90, count=20),  # wraps
        CursorRange(start=7, count=3 * N),  # every record three times
        SHUFFLED,
        CursorRange(start=N - 5, count=N, order="shuffled", seed=1),  # of two epochs
    ],
    ids=str,
)
def test_the_named_records_are_taken(world: World, cursor: CursorRange) -> None:
    world.set_up()
    holder = install(world, cursor)
    assert holder.send(b"".join(named(cursor))).published
    content = give_up(world, holder)
    assert (content.records, content.proof, content.refusal) == (cursor.count, len(holder.proof()), None)


CHANGES = st.sampled_from(
    [
        "other record",
        "foreign record",
        "missing",
        "reordered",
        "salt",
        "proof cut",
        "proof longer",
        "proof flipped",
        "cursor",
    ]
)


def spoiled(data: st.DataObject, change: str, cursor: CursorRange) -> tuple[list[bytes], bytes, dict[str, bytes]]:
    """Records, proof and closing fields of a holder that does one thing wrong."""
    mine, proof = named(cursor), proof_of(cursor)
    at, shift = data.draw(st.integers(0, cursor.count - 1)), data.draw(st.integers(1, N - 1))
    offset = data.draw(st.integers(0, max(0, len(proof) - 1)))
    if change == "other record":
        mine[at] = data.draw(st.sampled_from([record for record in OWN if record != mine[at]]))
    elif change == "foreign record":
        mine[at] = bytes(byte ^ 1 for byte in mine[at])
    elif change == "missing":
        mine[at] = mine[at - 1]  # one twice, one not at all
    elif change == "reordered":
        mine = data.draw(st.permutations(mine).filter(lambda order: order != named(cursor)))
    elif change == "salt":
        return mine, proof, {"dataset_salt": bytes(32)}
    elif change == "proof cut":
        proof = proof[:-32] if proof else bytes(32)
    elif change == "proof longer":
        proof += bytes(32)
    elif change == "proof flipped":
        proof = proof[:offset] + bytes([proof[offset] ^ 0x80]) + proof[offset + 1 :] if proof else bytes(32)
    else:  # an honest proof of other records of the same dataset
        other = cursor.model_copy(update={"start": cursor.start + shift})
        mine, proof = named(other), proof_of(other)
    assume((mine, proof) != (named(cursor), proof_of(cursor)))  # a shuffled visit may name one record twice
    return mine, proof, {}


@attack("H14", scoped="stopped: records are proven within the approved root")
@given(data=st.data(), change=CHANGES, start=st.integers(0, 2 * N), count=st.integers(2, 40), shuffled=st.booleans())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_nothing_else_is(
    world: World, data: st.DataObject, change: str, start: int, count: int, shuffled: bool
) -> None:
    cursor = CursorRange(start=start, count=count, order="shuffled" if shuffled else "sequential", seed=4)
    mine, proof, closing = spoiled(data, change, cursor)
    if not world.regions:
        world.set_up()
    holder = install(world, cursor)
    error = refusal(world, holder, holder.seal(b"".join(mine), proof=proof, **closing))
    assert error.code in ("data-not-approved", "copy-refused")  # the latter where the proof is longer than any may be
    content = give_up(world, holder)
    assert (content.published, content.commitment, content.proof) == (False, None, 0)
    assert content.refusal in error.detail


@pytest.mark.parametrize("size", [1000, 100, 33])
def test_a_long_proof_comes_in_records_of_its_own(world: World, size: int) -> None:
    world.set_up()
    holder = install(world, SHUFFLED, chunk_bytes=size)
    proof = holder.proof()
    pieces = [proof[at : at + size] for at in range(0, len(proof), size)]
    sealed = holder.seal(b"".join(named(SHUFFLED)), pieces=pieces)
    for record in sealed:
        ack = holder.copy(record)
        assert holder.copy(record) == ack  # a repeat has no effect, of a proof record either
    assert ack.published
    assert give_up(world, holder).proof == len(proof)


@pytest.mark.parametrize(
    "fault", ["short piece", "long piece", "no piece", "empty piece", "both ways", "data again", "too many"]
)
def test_a_proof_that_comes_otherwise_kills_the_grant(world: World, fault: str) -> None:
    world.set_up()
    holder = install(world, SHUFFLED, chunk_bytes=500)
    proof, data = holder.proof(), b"".join(named(SHUFFLED))
    good = [proof[at : at + 500] for at in range(0, len(proof), 500)]
    assert len(good) >= 3
    wrong: dict[str, list[bytes]] = {
        "short piece": [good[0][:-32], good[0][-32:] + good[1][:-32], *good[2:]],
        "long piece": [proof[:532], *[proof[at : at + 500] for at in range(532, len(proof), 500)]],
        "no piece": good[:-1],
        "empty piece": [*good, b""],
        "both ways": good,
        "data again": good,
        "too many": [bytes(500)] * (holder.grant.proof_budget // 500 + 2),
    }
    closing = {"proof": proof} if fault == "both ways" else {}
    sealed = holder.seal(data, pieces=wrong[fault], **closing)
    if fault == "data again":
        chunks = holder.grant.chunks
        sealed[chunks] = holder.record(DATA, chunks, chunks + len(good), data[:500], holder.fresh_channel())
    codes = set()
    for record in sealed:
        try:
            holder.copy(record)
        except GputError as error:
            codes.add(error.code)
    assert codes
    assert codes <= {"copy-refused", "data-not-approved"}
    info = next(r for r in world.regions if r.handle == holder.grant.region)
    assert not any(world.hbm.view(info.address, info.length))
    assert not give_up(world, holder).published


def test_every_copy_record_states_the_same_total(world: World) -> None:
    world.set_up()
    holder = install(world, SHUFFLED)
    data = b"".join(named(SHUFFLED))
    holder.copy(holder.record(DATA, 0, 3, data[:1000], holder.channel))
    with pytest.raises(GputError, match="total"):
        holder.copy(holder.record(DATA, 1, 2, data[1000:], holder.channel))
    for kind, total in ((PROOF, 3), (CLOSING, 3), (DATA, 1), (DATA, 99)):
        other = install(world, SHUFFLED, region=1)
        with pytest.raises(GputError):
            other.copy(other.record(kind, 0, total, data[:1000], other.channel))
        give_up(world, other)


def test_the_statement_names_root_and_size(world: World) -> None:
    world.set_up()
    holder = install(world, SHUFFLED)
    holder.send(b"".join(named(SHUFFLED)))
    world.open_epoch(holder.grant.epoch)
    assert world.train(holder).state == "done"
    commit, scrub = gpu.Commit(work="w1"), gpu.Scrub(region=holder.grant.region)
    closed = world.run(commit, scrub, gpu.CloseVisit(visit=holder.grant.visit))[2]
    payload = cose.verify1(closed.statement, world.device._root.statement_key.public)
    statement = decode(DeviceStatement, payload)
    assert (statement.dataset_root, statement.dataset_records) == (root_of(DATASET), N)
    assert statement.records == SHUFFLED.count
