"""Copy records of several MAC chains on a real device: all of a visit's tags verify, or nothing is published and the buffer is zeros."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from shared.crypto.chains import SealingChains, cut
from shared.errors import GputError
from shared.names import TravelMode
from shared.wire import gpu
from shared.wire.copy import DATA, HEADER_BYTES, TAG_BYTES, CopyHeader, copy_context, pack_header, parse_record
from tests.adversary.rows import attack
from tests.gpu.gpu_world import Holder, World, records
from tests.gpu.test_gpu_direct import DIRECT
from tests.gpu.test_gpu_direct import install as install_direct

CHAINS, BYTES = 3, records(32)


def parts(record: bytes, chains: int = CHAINS) -> tuple[bytes, list[bytes]]:
    """The header, and each chain's ciphertext and tag."""
    body = record[HEADER_BYTES:]
    places = cut(len(body) - chains * TAG_BYTES, chains)
    return record[:HEADER_BYTES], [body[s + n * TAG_BYTES : e + (n + 1) * TAG_BYTES] for n, (s, e) in enumerate(places)]


def chained(header: bytes, chains: Sequence[bytes]) -> bytes:
    return header + b"".join(chains)


def with_header(record: bytes, **changes: int) -> bytes:
    """The same ciphertext and tags under a header that says something else."""
    header, _, sealed = parse_record(record)
    fields = {name: getattr(header, name) for name in CopyHeader.__slots__} | changes
    return pack_header(CopyHeader(**fields)) + bytes(sealed)


def swap(records_: list[bytes], holder: Holder) -> bytes:
    header, (first, second, *rest) = parts(records_[1])
    return chained(header, [second, first, *rest])


def repeat(records_: list[bytes], holder: Holder) -> bytes:
    header, (first, _, *rest) = parts(records_[1])
    return chained(header, [first, first, *rest])


def move(records_: list[bytes], holder: Holder) -> bytes:
    header, (_, *rest) = parts(records_[1])
    return chained(header, [parts(records_[0])[1][0], *rest])


def drop(records_: list[bytes], holder: Holder) -> bytes:
    """Two of three chains, and a header that says that there are two."""
    header, _, _ = parse_record(records_[1])
    first, second, third = parts(records_[1])[1]
    shorter = header.length - (len(third) - TAG_BYTES)
    raw = pack_header(CopyHeader(DATA, header.epoch, header.region, 1, header.total, shorter, CHAINS - 2))
    return chained(raw, [first, second])


def one_chain(records_: list[bytes], holder: Holder) -> bytes:
    """Sealed by the holder itself, in one chain under the visit's own key."""
    plain = BYTES[1000:2000]
    raw = pack_header(CopyHeader(DATA, holder.grant.epoch, holder.grant.region, 1, 3, len(plain)))
    channel = SealingChains(holder.key, 1, label="v", iv_mask=holder.mask, channel_counter=1)
    channel.seal(b"", b"")
    return raw + channel.seal(plain, raw + copy_context(holder.grant))


def flip(at: int) -> Callable[[list[bytes], Holder], bytes]:
    def flipped(records_: list[bytes], holder: Holder) -> bytes:
        header, chains = parts(records_[1])
        chain = bytearray(chains[at])
        chain[-1] ^= 1
        return chained(header, [*chains[:at], bytes(chain), *chains[at + 1 :]])

    return flipped


FAULTS: dict[str, Callable[[list[bytes], Holder], bytes]] = {
    "two chains exchanged": swap,
    "a chain repeated": repeat,
    "a chain of another record": move,
    "a chain left out": drop,
    "one chain instead": one_chain,
    "first tag": flip(0),
    "last tag": flip(CHAINS - 1),
    "another total": lambda r, h: with_header(r[1], total=4),
    "another index": lambda r, h: with_header(r[1], index=2),
    "a whole record later": lambda r, h: r[2],
}


def region_bytes(world: World, holder: Holder) -> bytes:
    info = next(r for r in world.regions if r.handle == holder.grant.region)
    return bytes(world.hbm.view(info.address, info.length))


@pytest.mark.parametrize("more", [1, 2, 3, 31])
def test_a_visit_of_several_chains_brings_the_same_bytes(world: World, more: int) -> None:
    world.set_up()
    holder = world.install(more_chains=more)
    sealed = holder.seal(BYTES)
    assert all(
        len(record) == HEADER_BYTES + parse_record(record)[0].length + (1 + more) * TAG_BYTES for record in sealed
    )
    for record in sealed:
        assert holder.copy(record) == holder.copy(record)  # a repeat is acknowledged without effect, as ever
    assert region_bytes(world, holder)[: len(BYTES)] == BYTES
    _, opened, _ = world.open_epoch(holder.grant.epoch)
    assert opened.fenced[0].published
    assert world.train(holder).state == "done"


@attack("V02", scoped="stopped: every chain's tag; the buffer is erased")
@attack("V04", scoped="stopped: a chain's number and theirs in all, the record's index and total under every tag")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_chain_out_of_place_kills_the_grant_and_publishes_nothing(world: World, fault: str) -> None:
    world.set_up()
    holder = world.install(more_chains=CHAINS - 1)
    sealed = holder.seal(BYTES)
    holder.copy(sealed[0])
    assert any(region_bytes(world, holder))
    with pytest.raises(GputError) as caught:
        holder.copy(FAULTS[fault](sealed, holder))
    assert caught.value.code == "copy-refused"
    assert not any(region_bytes(world, holder))
    for record in sealed:  # also what would have been right
        with pytest.raises(GputError):
            holder.copy(record)
    _, opened, _ = world.open_epoch(holder.grant.epoch)
    assert not opened.fenced[0].published
    assert world.refused(world.train_command(holder)) == "out-of-order"


@pytest.mark.parametrize("more", [0, 1, 3])
def test_a_header_of_other_chains_under_the_right_key_is_refused_before_any_key_is_used(
    world: World, more: int
) -> None:
    """By the holder itself: a header that counts other tags would have the GPU count other bytes than it wrote."""
    world.set_up()
    holder = world.install(more_chains=CHAINS - 1)
    plain = BYTES[:1000]
    length = len(plain) + (CHAINS - 1 - more) * TAG_BYTES
    raw = pack_header(CopyHeader(DATA, holder.grant.epoch, holder.grant.region, 0, 3, length, more))
    with pytest.raises(GputError) as caught:
        holder.copy(raw + holder.channel.seal(plain, raw + copy_context(holder.grant)))
    assert caught.value.code == "copy-refused"
    assert "other chains than the grant's 3" in caught.value.detail
    assert not any(region_bytes(world, holder))


@attack("V04", direct="stopped: a chain's number and theirs in all, the record's index and total under every tag")
@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "one chain instead"])
def test_a_chain_out_of_place_in_staging_publishes_nothing(world: World, fault: str) -> None:
    world.set_up(**DIRECT)
    holder = install_direct(world, more_chains=CHAINS - 1)
    holder.leave(BYTES)
    lying = world.device._state.copies.staging._epochs[holder.grant.epoch].records
    lying[1] = FAULTS[fault](holder.sent, holder)
    fetched = world.run(gpu.Fetch(epoch=holder.grant.epoch))[0]
    assert not fetched.published
    assert fetched.refusal
    assert not any(region_bytes(world, holder))


def test_staging_has_room_for_every_tag_and_no_more(world: World) -> None:
    world.set_up(**DIRECT)
    holder = install_direct(world, more_chains=31)
    holder.leave(BYTES)
    assert world.run(gpu.Fetch(epoch=holder.grant.epoch))[0].published
    assert holder.grant.mode is TravelMode.DIRECT


@pytest.mark.parametrize("more", [32, 0xFFFF])
def test_a_record_of_too_many_chains_is_none(world: World, more: int) -> None:
    world.set_up()
    holder = world.install()
    first, *_ = holder.seal(BYTES)
    plain = parse_record(first)[0]
    raw = pack_header(CopyHeader(DATA, plain.epoch, plain.region, 0, plain.total, 0, more))
    with pytest.raises(GputError) as caught:
        holder.copy(raw + bytes((1 + more) * TAG_BYTES))
    assert caught.value.code == "malformed-copy-record"
    assert holder.copy(first).received == 1000  # before any key is touched: nothing was spoilt


def test_a_grant_of_one_chain_is_written_as_before(world: World) -> None:
    """An older holder or GPU reads it."""
    world.set_up()
    grant = world.grant(world.open_epoch()[0])
    assert (grant.chains, "more_chains" in grant.model_dump(mode="json")) == (1, False)
    several = grant.model_copy(update={"more_chains": 3})
    assert (several.chains, several.model_dump(mode="json")["more_chains"]) == (4, 3)
