"""Travel mode `direct` on a real device: no command path for the holder, a key that both agree, and staging that nobody has to believe."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from shared.attestation.shares import verify_granted_share
from shared.claims.visit import Shares
from shared.crypto.shares import Share
from shared.errors import GputError
from shared.names import RegionKind, TravelMode, holder_port
from shared.wire import gpu
from shared.wire.copy import HEADER_BYTES
from tests.adversary.rows import attack
from tests.gpu.gpu_world import NOW, SESSION, Holder, World, records

DATA = records(32)
DIRECT: dict[str, Any] = {"travel_mode": TravelMode.DIRECT}
LOW_ORDER = bytes(32)


def draw(world: World, holder: str = "north") -> tuple[int, bytes, bytes, bytes]:
    """(epoch, visit secret, the GPU's share, its statement)."""
    epoch, _, secret = world.open_epoch()
    statement = world.run(gpu.DrawShare(epoch=epoch, holder=holder))[0].statement
    from shared.canonical import cbor_value
    from shared.crypto.cose import verify1

    said: Any = cbor_value(verify1(statement, world.device._root.statement_key.public))
    return epoch, secret, bytes.fromhex(said["share"]), statement


def install(world: World, region: int = 0, **changes: Any) -> Holder:
    epoch, secret, theirs, _ = draw(world)
    own = Share(os.urandom)
    shares = Shares(holder=own.public.hex(), gpu=theirs.hex())
    grant = world.grant(epoch, region=region, **({"mode": TravelMode.DIRECT, "shares": shares} | changes))
    installed = world.run(gpu.InstallGrant(grant=grant))[0]
    return Holder(world.device, grant, secret, installed, DATA, own)


@pytest.fixture
def holder(world: World) -> Holder:
    world.set_up(**DIRECT)
    return install(world)


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(GputError) as caught:
        act()
    return caught.value.code


def region_bytes(world: World, holder: Holder) -> bytes:
    info = next(r for r in world.regions if r.handle == holder.grant.region)
    return bytes(world.hbm.view(info.address, info.length))


def staged(world: World, holder: Holder) -> dict[int, bytes]:
    """Staging as the platform sees it, to change as it likes."""
    return world.device._state.copies.staging._epochs[holder.grant.epoch].records


def test_what_was_staged_is_published_by_the_orchestrators_command(world: World, holder: Holder) -> None:
    holder.leave(DATA)
    assert not any(region_bytes(world, holder)), "staging is not GPU memory"
    fetched = world.run(gpu.Fetch(epoch=holder.grant.epoch))[0]
    assert (fetched.published, fetched.refusal) == (True, None)
    assert region_bytes(world, holder)[: len(DATA)] == DATA
    _, opened, _ = world.open_epoch(holder.grant.epoch)
    assert opened.fenced[0].published
    assert world.train(holder).state == "done"


@attack("H03 H04 H07 H22", direct="stopped: the holder's port has no command path")
def test_the_holders_port_has_no_command_path(world: World, holder: Holder) -> None:
    """H03, H07, H08, H22: nothing that a holder sends moves anything; without a grant it cannot even leave records."""
    sealed = holder.seal(DATA)
    assert refused(lambda: holder.copy(sealed[0])) == "no-command-path"
    assert refused(lambda: world.device.stock(holder.grant.port, b"\xa0")) == "wrong-port"
    assert refused(lambda: world.device.stage(holder_port("south"), sealed[0])) == "no-grant"
    assert refused(lambda: world.device.stage(holder.grant.port, b"x")) == "malformed-copy-record"
    assert not any(region_bytes(world, holder))
    world.set_up()
    scoped = world.install()
    assert refused(lambda: world.device.stage(scoped.grant.port, scoped.seal(DATA)[0])) == "no-staging"


Change = Callable[[dict[int, bytes], Holder], Any]


def _flip(record: bytes, at: int) -> bytes:
    return record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :]


def _swap(records: dict[int, bytes], one: int, other: int) -> None:
    records[one], records[other] = records[other], records[one]


CHANGES: dict[str, Change] = {
    "ciphertext flipped": lambda r, h: r.update({1: _flip(r[1], HEADER_BYTES + 9)}),
    "tag flipped": lambda r, h: r.update({2: _flip(r[2], len(r[2]) - 1)}),
    "reordered": lambda r, h: _swap(r, 0, 1),
    "duplicated": lambda r, h: r.update({1: r[0]}),
    "dropped": lambda r, h: r.pop(1),
    "cut short": lambda r, h: r.update({0: r[0][:-7]}),
    "not a record": lambda r, h: r.update({0: b"junk"}),
    "total changed": lambda r, h: r.update({0: _flip(r[0], 20)}),
    "last chunk missing": lambda r, h: r.pop(2),
}


@attack("V02 V04", direct="stopped: tag, index and total; all of a visit or nothing")
@pytest.mark.parametrize("change", CHANGES)
def test_staging_that_was_changed_publishes_nothing(world: World, holder: Holder, change: str) -> None:
    """V02, V04: all or nothing, and nothing is left of what opened before the fault."""
    holder.leave(DATA)
    CHANGES[change](staged(world, holder), holder)
    fetched = world.run(gpu.Fetch(epoch=holder.grant.epoch))[0]
    assert not fetched.published
    assert fetched.refusal
    assert not any(region_bytes(world, holder))
    _, opened, _ = world.open_epoch(holder.grant.epoch)
    assert (opened.fenced[0].published, opened.fenced[0].refusal) == (False, fetched.refusal)
    assert world.refused(world.train_command(holder)) == "out-of-order"
    world.run(gpu.Scrub(region=holder.grant.region))
    assert world.phase(holder.grant.region) == "CLEAN"


def test_staging_without_its_end_publishes_nothing(world: World, holder: Holder) -> None:
    holder.leave(DATA)
    records_ = staged(world, holder)
    del records_[max(records_)]
    fetched = world.run(gpu.Fetch(epoch=holder.grant.epoch))[0]
    assert (fetched.published, fetched.refusal) == (False, "staging does not hold the whole visit")
    _, opened, _ = world.open_epoch(holder.grant.epoch)
    assert not opened.fenced[0].published
    world.run(gpu.Scrub(region=holder.grant.region))
    assert not any(region_bytes(world, holder))


def test_what_lies_behind_the_end_is_nobodys(world: World, holder: Holder) -> None:
    holder.leave(DATA)
    records_ = staged(world, holder)
    records_[max(records_) + 1] = b"somebody's junk"
    assert world.run(gpu.Fetch(epoch=holder.grant.epoch))[0].published


@attack("H09", direct="stopped: each visit agrees a key of its own")
def test_a_ciphertext_of_another_visit_opens_nothing(world: World, holder: Holder) -> None:
    """H09: the records of an earlier visit, as recorded, under the new visit's epoch."""
    holder.leave(DATA)
    second = install(world, region=1)
    for record in holder.sent:
        moved = (
            record[:8]
            + second.grant.epoch.to_bytes(4, "little")
            + second.grant.region.to_bytes(4, "little")
            + record[16:]
        )
        world.device.stage(second.grant.port, moved)
    assert not world.run(gpu.Fetch(epoch=second.grant.epoch))[0].published
    assert world.run(gpu.Fetch(epoch=holder.grant.epoch))[0].published, "the other visit is untouched"


@attack("H08 V03", direct="stopped: a visit is fetched once, and nothing after the fence")
def test_a_fetch_needs_its_grant_and_comes_once(world: World, holder: Holder) -> None:
    epoch, _, _ = world.open_epoch()
    assert world.refused(gpu.Fetch(epoch=epoch)) == "no-grant"
    assert world.refused(gpu.Fetch(epoch=epoch + 1)) == "epoch-dead"
    holder.leave(DATA)
    assert world.run(gpu.Fetch(epoch=holder.grant.epoch))[0].published
    assert world.refused(gpu.Fetch(epoch=holder.grant.epoch)) == "already-fetched"
    assert refused(lambda: holder.device.stage(holder.grant.port, holder.sent[0])) == "staging-full"
    world.open_epoch(holder.grant.epoch)
    assert world.refused(gpu.Fetch(epoch=holder.grant.epoch)) == "epoch-dead"
    assert refused(lambda: holder.device.stage(holder.grant.port, holder.sent[0])) == "no-grant"


def test_a_scoped_grant_is_not_fetched(world: World) -> None:
    world.set_up()
    scoped = world.install()
    assert world.refused(gpu.Fetch(epoch=scoped.grant.epoch)) == "no-grant"


def test_staging_is_bounded_and_ends_with_the_lease(world: World, holder: Holder) -> None:
    sealed = holder.seal(DATA)
    for _ in range(3):  # a repeat takes the place of the first
        assert world.device.stage(holder.grant.port, sealed[0]).received == len(sealed[0])
    far = holder.record(0, 4000, 4001, bytes(1000), holder.channel)
    assert refused(lambda: world.device.stage(holder.grant.port, far)) == "staging-full"
    large = holder.record(0, 1, 3, bytes(2 * 1024 * 1024), holder.channel)
    assert refused(lambda: world.device.stage(holder.grant.port, large)) == "staging-full"
    world.now[0] = NOW + 600
    assert refused(lambda: world.device.stage(holder.grant.port, sealed[1])) == "grant-expired"


def test_what_was_staged_in_time_may_be_fetched_later(world: World, holder: Holder) -> None:
    holder.leave(DATA)
    world.now[0] = NOW + 6000
    assert world.run(gpu.Fetch(epoch=holder.grant.epoch))[0].published


def test_a_visit_key_alone_opens_nothing(world: World) -> None:
    """Whoever has K(e, h2d) without the holder's share, as the orchestrator has, can neither seal for the GPU nor read what is staged."""
    world.set_up(**DIRECT)
    holder = install(world)
    without = Holder(world.device, holder.grant, holder.secret, holder.installed, DATA, None)
    assert without.key != holder.key
    without.leave(DATA)
    assert not world.run(gpu.Fetch(epoch=holder.grant.epoch))[0].published


@attack("V25", direct="stopped: the grant must name the share that the GPU drew")
def test_shares_that_were_swapped_are_refused(world: World) -> None:
    """V25, the GPU's side: the grant must name the share that this GPU drew for this epoch and this holder."""
    world.set_up(**DIRECT)
    epoch, _, theirs, _ = draw(world)
    other_epoch, _, others, _ = draw(world, "south")
    own = Share(os.urandom).public.hex()
    cases = {
        "another's share": ("share-swapped", {"shares": Shares(holder=own, gpu=Share(os.urandom).public.hex())}),
        "another epoch's share": ("share-swapped", {"shares": Shares(holder=own, gpu=others.hex())}),
        "another holder's": (
            "share-swapped",
            {"shares": Shares(holder=own, gpu=theirs.hex()), "holder": "south", "port": holder_port("south")},
        ),
        "a point of small order": ("bad-share", {"shares": Shares(holder=LOW_ORDER.hex(), gpu=theirs.hex())}),
        "no shares": ("wrong-shares", {"shares": None}),
    }
    for name, (code, changes) in cases.items():
        grant = world.grant(epoch, mode=TravelMode.DIRECT, **changes)
        assert world.refused(gpu.InstallGrant(grant=grant)) == code, name
    shares = Shares(holder=own, gpu=theirs.hex())
    world.run(gpu.InstallGrant(grant=world.grant(epoch, mode=TravelMode.DIRECT, shares=shares)))  # nothing was spoilt
    assert world.refused(gpu.DrawShare(epoch=epoch, holder="north")) == "share-drawn"
    world.open_epoch(other_epoch)
    late = world.grant(other_epoch, region=1, mode=TravelMode.DIRECT, shares=Shares(holder=own, gpu=others.hex()))
    assert world.refused(gpu.InstallGrant(grant=late)) == "epoch-dead"


def test_a_swapped_holders_share_agrees_another_key(world: World) -> None:
    """V25, the holder's side: the platform's share in the holder's place; what the holder seals opens nowhere."""
    world.set_up(**DIRECT)
    epoch, secret, theirs, _ = draw(world)
    own, platforms = Share(os.urandom), Share(os.urandom)
    granted = world.grant(epoch, mode=TravelMode.DIRECT, shares=Shares(holder=platforms.public.hex(), gpu=theirs.hex()))
    installed = world.run(gpu.InstallGrant(grant=granted))[0]
    told = granted.model_copy(update={"shares": Shares(holder=own.public.hex(), gpu=theirs.hex())})
    Holder(world.device, told, secret, installed, DATA, own).leave(DATA)
    assert not world.run(gpu.Fetch(epoch=epoch))[0].published


def test_a_share_is_stated_for_one_device_session_epoch_life_and_holder(world: World) -> None:
    world.set_up(**DIRECT)
    epoch, _, theirs, statement = draw(world)
    key, device = world.device._root.statement_key.public, world.device._root.device
    shares = Shares(holder=Share(os.urandom).public.hex(), gpu=theirs.hex())
    grant = world.grant(epoch, mode=TravelMode.DIRECT, shares=shares)
    verify_granted_share(grant, statement, key, device=device)
    changes: list[tuple[dict[str, Any], str]] = [
        ({"epoch": epoch + 1}, "share-mismatch"), ({"life": 2}, "share-mismatch"), ({"holder": "south"}, "share-mismatch"),
        ({"session": SESSION[:-1] + "e"}, "share-mismatch"),
        ({"shares": Shares(holder=shares.holder, gpu="ab" * 32)}, "share-swapped"), ({"shares": None}, "share-swapped"),
    ]  # fmt: skip
    for change, code in changes:
        changed = grant.model_copy(update=change)
        assert refused(lambda changed=changed: verify_granted_share(changed, statement, key, device=device)) == code
    assert refused(lambda: verify_granted_share(grant, statement, key, device="00" * 8)) == "share-mismatch"
    forged = statement[:-1] + bytes([statement[-1] ^ 1])
    assert refused(lambda: verify_granted_share(grant, forged, key, device=device)) != "share-mismatch"


def test_a_new_life_leaves_nothing_staged(world: World, holder: Holder) -> None:
    holder.leave(DATA)
    world.resume()
    assert world.device._state.copies.staging._epochs == {}
    assert refused(lambda: world.device.stage(holder.grant.port, holder.sent[0])) == "no-grant"
    assert world.phase(holder.grant.region) == "CLEAN"


def test_staging_fills_while_the_gpu_trains_on_another_region(world: World) -> None:
    """Loading overlaps training: disjoint regions, a grant and a key of its own, and the same result as one after the other."""
    world.set_up(**DIRECT)
    first = install(world)
    first.leave(DATA)
    world.run(gpu.Fetch(epoch=first.grant.epoch))
    world.open_epoch(first.grant.epoch)
    second = install(world, region=1)
    world.run(world.train_command(first, steps=3))
    second.leave(DATA)
    assert world.finish("w1").state == "done"
    world.run(gpu.Commit(work="w1"), gpu.Scrub(region=first.grant.region), gpu.CloseVisit(visit=first.grant.visit))
    assert world.run(gpu.Fetch(epoch=second.grant.epoch))[0].published
    assert region_bytes(world, second)[: len(DATA)] == DATA
    assert world.region(RegionKind.DATASET, 1).handle == second.grant.region
