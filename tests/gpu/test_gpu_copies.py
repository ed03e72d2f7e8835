"""Copy records on a real device: everything out of grant, order, epoch or time is refused and leaves zeros (attacks H07-H09, V02-V05)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shared.claims.visit import CursorRange
from shared.crypto.chains import OpeningChains
from shared.errors import GputError
from shared.names import RegionKind, holder_port
from shared.wire import gpu
from shared.wire.copy import CLOSING, DATA, HEADER_BYTES
from shared.wire.gpu_answers import GrantInstalled
from tests.adversary.rows import attack
from tests.gpu.gpu_world import NOW, RECORD_BYTES, Holder, World, records

DATA_BYTES = records(32)


def refused(holder: Holder, record: bytes) -> str:
    with pytest.raises(GputError) as caught:
        holder.copy(record)
    return caught.value.code


def region_bytes(world: World, holder: Holder) -> bytes:
    info = next(r for r in world.regions if r.handle == holder.grant.region)
    return bytes(world.hbm.view(info.address, info.length))


def flipped(record: bytes, at: int) -> bytes:
    return record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :]


def test_a_key_handed_out_ahead_opens_nothing_before_its_grant_is_installed(world: World) -> None:
    """Its slot is known with its epoch, so that its holder may seal; the region of the visit before it stays shut (laws L1, L2)."""
    world.set_up()
    first = world.visit(DATA_BYTES)
    epoch, opened, secret = world.open_epoch()
    grant = world.grant(epoch)
    foretold = GrantInstalled(engine=opened.engine, channel_counter=opened.channel_counter, iv_mask=bytes(12))
    ahead = Holder(world.device, grant, secret, foretold, DATA_BYTES)
    sealed = ahead.seal(DATA_BYTES)
    assert refused(ahead, sealed[0]) == "no-grant"
    assert world.refused(gpu.InstallGrant(grant=grant)) == "out-of-order"  # L2: another's records lie there
    world.train(first)
    assert refused(ahead, sealed[0]) == "no-grant"
    assert world.refused(gpu.InstallGrant(grant=grant)) == "out-of-order"
    *_, installed = world.run(gpu.Commit(work="w1"), gpu.Scrub(region=grant.region), gpu.InstallGrant(grant=grant))
    assert (installed.engine, installed.channel_counter) == (opened.engine, opened.channel_counter)
    for record in sealed:
        ahead.copy(record)
    assert world.phase(grant.region) == "PUBLISHED"


def test_a_key_handed_out_ahead_and_recalled_is_installed_no_more(world: World) -> None:
    world.set_up()
    slots = set()
    for _ in range(3):
        epoch, opened, _ = world.open_epoch()
        slots.add((opened.engine, opened.channel_counter))
        fence, fenced, _ = world.open_epoch(epoch)
        assert (fenced.engine, fenced.channel_counter, fenced.fenced) == (0, 0, [])
        for dead in (epoch, fence):
            assert world.refused(gpu.InstallGrant(grant=world.grant(dead))) == "epoch-dead"
    holder = world.install()
    assert (holder.installed.engine, holder.installed.channel_counter) not in slots
    assert len(slots) == 3


FAULTS: dict[str, Callable[[list[bytes], Holder], bytes]] = {
    "ciphertext flipped": lambda r, h: flipped(r[1], HEADER_BYTES + 5),
    "tag flipped": lambda r, h: flipped(r[1], len(r[1]) - 1),
    "index flipped": lambda r, h: flipped(r[1], 16),
    "total flipped": lambda r, h: flipped(r[1], 20),
    "skipped": lambda r, h: r[2],
    "closing too early": lambda r, h: r[-1],
    "other bytes at a used counter": lambda r, h: flipped(r[0], HEADER_BYTES),
    "kind exchanged": lambda r, h: h.record(CLOSING, 1, 3, bytes(1000), h.fresh_channel()),
    "wrong key": lambda r, h: h.record(DATA, 1, 3, bytes(1000), h.fresh_channel()),
    "short chunk": lambda r, h: h.record(DATA, 1, 3, bytes(999), h.fresh_channel()),
    "long chunk": lambda r, h: h.record(DATA, 1, 3, bytes(1001), h.fresh_channel()),
}


@attack("V02", scoped="stopped: the tag, over header and context too; the buffer is erased")
@attack("V04", scoped="stopped: index and total under the tag, and the record that is due")
@attack("H07", scoped="stopped: the GPU alone computes where a chunk lies, and how long it may be")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_kills_the_grant_and_erases_what_it_wrote(world: World, fault: str) -> None:
    world.set_up()
    holder = world.install()
    sealed = holder.seal(DATA_BYTES)
    assert holder.copy(sealed[0]).received == 1000
    assert any(region_bytes(world, holder))
    assert refused(holder, FAULTS[fault](sealed, holder)) == "copy-refused"
    assert not any(region_bytes(world, holder))
    assert refused(holder, sealed[1]) == "copy-refused"  # also what would have been right
    assert refused(holder, sealed[0]) == "copy-refused"
    assert world.phase(holder.grant.region) == "DIRTY"
    _, opened, _ = world.open_epoch(holder.grant.epoch)
    assert not opened.fenced[0].published
    assert world.refused(world.train_command(holder)) == "out-of-order"
    world.run(gpu.Scrub(region=holder.grant.region))
    assert world.phase(holder.grant.region) == "CLEAN"


def test_a_fault_of_the_gpus_own_ends_the_grant_as_well(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no refusal but a defect must not leave bytes behind that nobody authenticated, or a key that goes on."""
    world.set_up()
    holder = world.install()
    sealed = holder.seal(DATA_BYTES)
    holder.copy(sealed[0])

    def defect(self: OpeningChains, sealed: bytes, aad: bytes, out: memoryview) -> None:
        out[:] = b"!" * len(out)
        raise ValueError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(OpeningChains, "open_into", defect)
        with pytest.raises(ValueError, match="a defect"):
            holder.copy(sealed[1])
    assert not any(region_bytes(world, holder))
    assert refused(holder, sealed[1]) == "copy-refused"
    assert world.phase(holder.grant.region) == "DIRTY"


@attack("H13", scoped="stopped: count, length and commitment must be those of memory")
@pytest.mark.parametrize(
    "changes",
    [
        {"records": 31},
        {"chunks": 2},
        {"length": 1},
        {"visit": "v_" + "z" * 16},
        {"commitment": "00" * 32},
        {"salt": bytes(32)},
        {"dataset_salt": bytes(32)},
        {"proof": bytes(32)},
    ],
    ids=lambda c: next(iter(c)),
)
def test_a_closing_record_that_states_anything_else_publishes_nothing(world: World, changes: dict[str, Any]) -> None:
    world.set_up()
    holder = world.install()
    *chunks, closing = holder.seal(DATA_BYTES, **changes)
    for record in chunks:
        holder.copy(record)
    assert refused(holder, closing) == (
        "data-not-approved" if "dataset_salt" in changes or "proof" in changes else "copy-refused"
    )
    assert not any(region_bytes(world, holder))
    assert world.phase(holder.grant.region) == "DIRTY"


@attack("V03", scoped="stopped: a repeat is acknowledged without effect")
def test_a_byte_identical_repeat_is_acknowledged_without_effect(world: World) -> None:
    world.set_up()
    holder = world.install()
    sealed = holder.seal(DATA_BYTES)
    for record in sealed:
        first, again = holder.copy(record), holder.copy(record)
        assert first == again
    stored = region_bytes(world, holder)
    assert stored[: len(DATA_BYTES)] == DATA_BYTES
    for record in sealed:
        assert holder.copy(record).published
    assert region_bytes(world, holder) == stored
    # The closing record has consumed the grant: nothing further is written, and nothing is lost.
    extra = holder.record(DATA, len(sealed), len(sealed) - 1, b"more", holder.channel)
    assert refused(holder, extra) == "copy-refused"
    assert world.phase(holder.grant.region) == "PUBLISHED"
    assert region_bytes(world, holder) == stored


@attack("H08", scoped="stopped: the fence kills the key before anything is looked at")
def test_a_fence_kills_the_key_before_anything_is_looked_at(world: World) -> None:
    world.set_up()
    holder = world.install()
    sealed = holder.seal(DATA_BYTES)
    holder.copy(sealed[0])
    _, opened, _ = world.open_epoch(holder.grant.epoch)
    assert [(c.published, c.records, c.commitment) for c in opened.fenced] == [(False, 0, None)]
    for record in sealed:
        assert refused(holder, record) == "no-grant"
    assert world.phase(holder.grant.region) == "DIRTY"


@attack("C03", scoped="stopped: each epoch's grant has a key of its own")
def test_the_ports_and_epochs_of_others_open_nothing(world: World) -> None:
    world.set_up()
    holder, other = world.install(), world.install(region=1, holder="south", port=holder_port("south"))
    record = holder.seal(DATA_BYTES)[0]
    with pytest.raises(GputError) as caught:
        world.device.copy(other.grant.port, record)
    assert caught.value.code == "no-grant"
    mine, theirs = holder.grant, other.grant
    moved = record[:8] + theirs.epoch.to_bytes(4, "little") + theirs.region.to_bytes(4, "little") + record[16:]
    assert refused(Holder(world.device, theirs, other.secret, other.installed), moved) == "copy-refused"
    assert holder.copy(record).received == mine.chunk_bytes  # no fault of anybody else kills this one
    assert refused(holder, b"GPTR" + bytes(60)) == "malformed-copy-record"
    assert refused(holder, record[:40]) == "malformed-copy-record"
    assert holder.copy(holder.seal(DATA_BYTES, holder.fresh_channel())[0]).received == mine.chunk_bytes


@attack("H12", scoped="stopped: a grant expires in the GPU")
def test_a_grant_expires(world: World) -> None:
    world.set_up()
    holder = world.install()
    sealed = holder.seal(DATA_BYTES)
    holder.copy(sealed[0])
    world.now[0] = NOW + 600
    assert refused(holder, sealed[1]) == "copy-refused"
    assert not any(region_bytes(world, holder))


GRANTS: list[tuple[str, dict[str, Any]]] = [
    ("wrong-session", {"session": "s_" + "z" * 16}),
    ("wrong-life", {"life": 2}),
    ("wrong-port", {"port": "orchestrator"}),
    ("wrong-port", {"port": "holder-south"}),
    ("wrong-record-size", {"record_bytes": RECORD_BYTES - 8}),
    ("grant-too-large", {"cursor": CursorRange(start=0, count=64 * 1024 // RECORD_BYTES + 1), "byte_budget": 2**30}),
    ("over-budget", {"byte_budget": 32 * RECORD_BYTES - 1}),
    (
        "proof-too-large",
        {"byte_budget": 32 * RECORD_BYTES + 5 * 2 * 32},
    ),  # of five levels the highest lacks at most one
    ("grant-expired", {"expires_at": int(NOW)}),
]


@pytest.mark.parametrize(("code", "changes"), GRANTS, ids=lambda value: str(value)[:40])
def test_a_grant_must_fit_what_the_gpu_knows(world: World, code: str, changes: dict[str, Any]) -> None:
    world.set_up()
    epoch, _, _ = world.open_epoch()
    assert world.refused(gpu.InstallGrant(grant=world.grant(epoch, **changes))) == code
    world.run(gpu.InstallGrant(grant=world.grant(epoch)))  # nothing was spoilt


@attack("O03", scoped="stopped: the GPU grants a region by its own scrub proof only")
def test_no_grant_without_epoch_scrub_or_over_the_model(world: World) -> None:
    world.set_up()
    epoch, _, _ = world.open_epoch()
    assert world.refused(gpu.InstallGrant(grant=world.grant(epoch + 1))) == "epoch-dead"
    for region in world.regions:
        if region.kind is not RegionKind.DATASET:
            grant = world.grant(epoch).model_copy(update={"region": region.handle})
            assert world.refused(gpu.InstallGrant(grant=grant)) == "wrong-region-kind"
    unknown = world.grant(epoch).model_copy(update={"region": 99})
    assert world.refused(gpu.InstallGrant(grant=unknown)) == "unknown-region"
    holder = world.visit(DATA_BYTES)
    next_epoch, _, _ = world.open_epoch()
    assert world.refused(gpu.InstallGrant(grant=world.grant(next_epoch))) == "out-of-order"  # L2: not scrubbed
    world.train(holder)
    assert world.refused(gpu.InstallGrant(grant=world.grant(next_epoch))) == "out-of-order"
    world.run(gpu.Scrub(region=holder.grant.region))
    world.run(gpu.InstallGrant(grant=world.grant(next_epoch)))
    assert world.refused(gpu.InstallGrant(grant=world.grant(next_epoch, region=1))) == "epoch-used"
    again, _, _ = world.open_epoch()
    reused = world.grant(again, region=1, visit=holder.grant.visit)
    assert world.refused(gpu.InstallGrant(grant=reused)) == "visit-reused"


def test_epochs_increase_and_unknown_ones_are_not_killed(world: World) -> None:
    world.set_up()
    world.open_epoch(epoch=5)
    for epoch in (5, 4, 1):
        assert world.refused(gpu.OpenEpoch(epoch=epoch, entropy=bytes(32))) == "epoch-not-next"
    assert world.refused(gpu.OpenEpoch(epoch=6, entropy=bytes(32), kills=[6])) == "unknown-epoch"
    _, opened, _ = world.open_epoch(5, 3, epoch=7)  # 3 was never opened, but is below: dead for good
    assert opened.fenced == []


def test_a_fence_that_is_refused_has_killed_every_key_all_the_same(world: World) -> None:
    """A region that was scrubbed before its fence is out of order then: the other grants of that fence are dead all the same."""
    world.set_up()
    first, second = world.install(), world.install(region=1)
    assert refused(first, flipped(first.seal(DATA_BYTES)[0], HEADER_BYTES)) == "copy-refused"
    world.run(gpu.Scrub(region=first.grant.region))
    fence = gpu.OpenEpoch(epoch=90, entropy=bytes(32), kills=[first.grant.epoch, second.grant.epoch])
    assert world.refused(fence) == "out-of-order"
    assert refused(second, second.seal(DATA_BYTES)[0]) == "no-grant"


def test_a_fence_leaves_no_secret_behind(world: World) -> None:
    """Over ten thousand visits they would be ten thousand, alive until the life ends, and growth of memory."""
    world.set_up()
    first, _, _ = world.open_epoch()
    second, _, _ = world.open_epoch()
    fence, _, _ = world.open_epoch(first)
    assert world.run(gpu.Status())[0].epochs == [second]
    assert world.refused(gpu.InstallGrant(grant=world.grant(fence))) == "epoch-dead"
    following, _, _ = world.open_epoch()  # the root key moved on all the same: both sides still draw alike
    world.run(gpu.InstallGrant(grant=world.grant(following)))
    assert world.run(gpu.Status())[0].epochs == [second, following]
