"""The region and model tables cell by cell, HBM, and the laws L1, L2, L4, L5 over any order of acts. No compute, no SPDM."""

from __future__ import annotations

import itertools
import os
import random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpu_agent.hardware.copy_engine import CopyEngine
from gpu_agent.hardware.epochs import Epochs
from gpu_agent.hardware.grants import GrantScope, check_grant
from gpu_agent.hardware.hbm import HBM, PAGE, ScrubProof
from gpu_agent.hardware.model_memory import MODEL, ModelFact, ModelPhase
from gpu_agent.hardware.regions import REGION, RegionFact, RegionTable
from shared.canonical import blake3_256
from shared.canonical.zeros import zeros_digest
from shared.claims.visit import CursorRange, Grant
from shared.crypto import schedule
from shared.crypto.aead import SealingChannel
from shared.crypto.secret import Secret
from shared.errors import GputError, OutOfMemory, ProtocolViolation, VerificationFailed
from shared.names import RegionKind, RegionPhase, Role, holder_port
from shared.wire.codec import encode
from shared.wire.copy import CLOSING, DATA, Closing, CopyHeader, copy_context, pack_header
from tests import dataset_tree
from tests.adversary.rows import attack
from tests.gpu.gpu_world import NOW, SESSION


@pytest.mark.parametrize(
    ("machine", "phases", "facts"), [(REGION, RegionPhase, RegionFact), (MODEL, ModelPhase, ModelFact)]
)
def test_every_cell(machine: Any, phases: Any, facts: Any) -> None:
    legal = 0
    for phase, fact, actor in itertools.product(phases, facts, Role):
        move = machine.moves.get((phase, fact))
        if move is not None and move.actor is actor:
            assert machine.after(phase, fact, actor) is move.to
            legal += 1
        else:
            with pytest.raises(ProtocolViolation):
                machine.after(phase, fact, actor)
    assert legal == len(machine.moves)
    assert machine.phases() == set(phases)


def test_clean_is_reached_by_a_scrub_alone_and_only_clean_is_granted() -> None:
    assert {fact for (_, fact), move in REGION.moves.items() if move.to is RegionPhase.CLEAN} == {RegionFact.SCRUBBED}
    assert {phase for (phase, fact) in REGION.moves if fact is RegionFact.GRANTED} == {RegionPhase.CLEAN}
    # Law L3: nothing trains but what was fenced.
    assert {phase for (phase, fact) in REGION.moves if fact is RegionFact.TRAIN} == {RegionPhase.FENCED}


@attack("V11", any="stopped: a region is clean by its own scrub proof only")
def test_a_region_is_clean_only_with_its_own_proof() -> None:
    table = RegionTable()
    region = table.add(RegionKind.DATASET, PAGE, PAGE)
    with pytest.raises(ProtocolViolation) as caught:
        table.require_grantable(region.handle)
    assert caught.value.code == "no-scrub-proof"
    with pytest.raises(ProtocolViolation):
        table.move(region.handle, RegionFact.SCRUBBED, Role.ORCHESTRATOR, ScrubProof(PAGE, PAGE - 1, bytes(32)))
    table.move(region.handle, RegionFact.SCRUBBED, Role.ORCHESTRATOR, ScrubProof(PAGE, PAGE, bytes(32)))
    assert table.require_grantable(region.handle) is region
    table.move(region.handle, RegionFact.GRANTED, Role.ORCHESTRATOR)
    assert region.proof is None
    model = table.add(RegionKind.MODEL, 8 * PAGE, PAGE)
    with pytest.raises(ProtocolViolation) as caught:
        table.require_grantable(model.handle)
    assert caught.value.code == "wrong-region-kind"


def test_allocations_are_random_zeroed_pages_that_never_overlap() -> None:
    hbm = HBM(80 << 30, random.Random(5).randbytes, backing=64 << 20)
    places = [hbm.allocate(length) for length in (1, PAGE, PAGE + 1, 1 << 20, 3 << 20)]
    assert places != sorted(places)  # drawn, not counted up
    assert all(address % PAGE == 0 for address in places)
    ends = [(start, start + length) for start, length in hbm.allocated()]
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))
    assert hbm.digest(places[3], 1 << 20) == zeros_digest(1 << 20) == blake3_256(bytes(1 << 20))
    with pytest.raises(OutOfMemory):
        hbm.allocate(64 << 20)
    with pytest.raises(OutOfMemory):
        hbm.view(places[1], PAGE + 1)
    hbm.close()


def test_a_nearly_full_memory_still_finds_its_gaps() -> None:
    hbm = HBM(16 * PAGE, random.Random(6).randbytes)
    assert len({hbm.allocate(PAGE) for _ in range(16)}) == 16
    with pytest.raises(OutOfMemory):
        hbm.allocate(1)
    hbm.close()


def test_nobody_cuts_the_memory_short() -> None:
    """Not who holds its descriptor, as compute does, and not who opens it by another way: a touch of a missing page ends a process."""
    hbm = HBM(1 << 20, random.Random(8).randbytes)
    for size in (0, PAGE, 1 << 21):
        with pytest.raises(PermissionError):
            os.truncate(f"/proc/self/fd/{hbm.fd}", size)
        with pytest.raises(PermissionError):
            os.ftruncate(hbm.fd, size)
    assert os.fstat(hbm.fd).st_size == 1 << 20
    hbm.close()


@attack("V11", any="stopped: a scrub is proven by reading back")
def test_a_scrub_is_proven_by_reading_back(monkeypatch: pytest.MonkeyPatch) -> None:
    hbm = HBM(1 << 20, random.Random(7).randbytes)
    address = hbm.allocate(3 * PAGE)
    hbm.view(address, 3 * PAGE)[:] = b"x" * (3 * PAGE)
    assert hbm.scrub(address, 3 * PAGE).digest == blake3_256(bytes(3 * PAGE))
    monkeypatch.setattr(HBM, "_clear", lambda *_: None)  # a scrubber that lies (attack V11)
    for at in (0, 2 * PAGE, 3 * PAGE - 1):
        hbm.view(address + at, 1)[:] = b"x"
        with pytest.raises(VerificationFailed):
            hbm.scrub(address, 3 * PAGE)
        hbm.view(address + at, 1)[:] = b"\0"
    assert hbm.scrub(address, 3 * PAGE - 7).digest == blake3_256(bytes(3 * PAGE - 7))
    monkeypatch.undo()
    hbm.close()


@pytest.mark.parametrize("at", [0, (1 << 20) - 1, 1 << 20, (2 << 20) + 4])
def test_one_byte_anywhere_is_noticed(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also at the edges of the pieces that are compared at once."""
    length = (2 << 20) + 5
    hbm = HBM(1 << 24, random.Random(7).randbytes)
    address = hbm.allocate(length)
    monkeypatch.setattr(HBM, "_clear", lambda *_: None)
    hbm.view(address + at, 1)[:] = b"\1"
    with pytest.raises(VerificationFailed):
        hbm.scrub(address, length)
    hbm.view(address + at, 1)[:] = b"\0"
    assert hbm.scrub(address, length).digest == blake3_256(bytes(length))
    monkeypatch.undo()
    hbm.close()


class Laws(RuleBasedStateMachine):
    """Any order of epochs, grants, copies, fences, scrubs and lives by an orchestrator and holders that keep every key they saw."""

    def __init__(self) -> None:
        super().__init__()
        self.random = random.Random(8)
        self.hbm = HBM(1 << 20, self.random.randbytes)
        self.regions, self.epochs = RegionTable(), Epochs()
        self.copies = CopyEngine(self.hbm, self.regions, self.epochs)
        for _ in range(2):
            address = self.hbm.allocate(PAGE)
            self.regions.add(RegionKind.DATASET, address, PAGE, self.hbm.scrub(address, PAGE))
        self.life, self.next_epoch = 0, 1
        self.secrets: dict[int, bytes] = {}
        self.grants: dict[int, tuple[Grant, SealingChannel]] = {}
        self.records: list[tuple[str, bytes]] = []
        self.used_keys: set[bytes] = set()
        self.scrubbed = {1, 2}
        self.new_life()

    def teardown(self) -> None:
        self.hbm.close()

    @rule()
    def new_life(self) -> None:
        self.life += 1
        self.copies.fence(self.epochs.alive)
        self.root = self.random.randbytes(32)
        self.epochs.new_life(Secret(self.root))

    @rule(kill=st.booleans())
    def open_epoch(self, kill: bool) -> None:
        epoch, self.next_epoch = self.next_epoch, self.next_epoch + 1
        if kill:
            self.copies.fence(self.epochs.alive)
        mine, its = self.random.randbytes(32), self.random.randbytes(32)
        self.epochs.draw(epoch, mine, its)
        self.copies.grants.allot(epoch)
        self.secrets[epoch], self.root = schedule.draw_epoch(self.root, epoch, mine, its)
        with pytest.raises(ProtocolViolation):  # a number is used once
            self.epochs.draw(epoch, mine, its)

    @precondition(lambda self: self.secrets)
    @rule(data=st.data(), region=st.sampled_from([1, 2]), holder=st.sampled_from(["north", "south"]))
    def grant(self, data: st.DataObject, region: int, holder: str) -> None:
        epoch = data.draw(st.sampled_from(sorted(self.secrets)))
        grant = Grant(
            session=SESSION, visit=f"v_{epoch:016d}", life=self.life, epoch=epoch, holder=holder, port=holder_port(holder),
            region=region, byte_budget=96, cursor=CursorRange(start=0, count=3), record_bytes=32, chunk_bytes=50,
            recipient="ab" * 32, expires_at=int(NOW) + 60, dataset_records=3,
            dataset_root=dataset_tree.root(bytes(32), dataset_tree.split(bytes(range(96)), 32)).hex(),
        )  # fmt: skip
        allowed = epoch in self.epochs.alive and epoch not in self.grants and region in self.scrubbed
        try:
            self.epochs.require_alive(epoch)
            check_grant(grant, GrantScope(SESSION, self.life, 32, NOW), self.regions, self.copies.grants)
            installed = self.copies.install(grant)
        except GputError:
            assert not allowed
            return
        assert allowed, "L2: granted without the scrub of the last use, or L5: under a used epoch"
        self.scrubbed.discard(region)
        context = schedule.VisitContext(SESSION, epoch, holder, region, bytes.fromhex(grant.recipient))
        key = schedule.visit_key(self.secrets[epoch], context)
        assert key not in self.used_keys, "L5"
        self.used_keys.add(key)
        mask = schedule.visit_iv_mask(self.secrets[epoch], context)
        channel = SealingChannel(key, label="v", iv_mask=mask, channel_counter=installed.channel_counter)
        self.grants[epoch] = grant, channel

    @precondition(lambda self: any(channel.counter < 3 for _, channel in self.grants.values()))
    @rule(data=st.data())
    def copy(self, data: st.DataObject) -> None:
        """A holder seals its next record, whenever it likes, and sends it."""
        choices = sorted(e for e, (_, channel) in self.grants.items() if channel.counter < 3)
        grant, channel = self.grants[data.draw(st.sampled_from(choices))]
        payload, index = bytes(range(96)), channel.counter
        closing = Closing(
            visit=grant.visit,
            chunks=2,
            records=3,
            length=96,
            salt=bytes(32),
            commitment=dataset_tree.commitment(bytes(32), bytes(32), range(3), dataset_tree.split(payload, 32)),
            dataset_salt=bytes(32),
            proof=b"",
        )
        plain = encode(closing) if index == 2 else payload[index * 50 : (index + 1) * 50]
        kind = CLOSING if index == 2 else DATA
        raw = pack_header(CopyHeader(kind, grant.epoch, grant.region, index, 2, len(plain)))
        self.deliver(grant.port, raw + channel.seal(plain, raw + copy_context(grant)), fresh=True)

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        """The platform sends any recorded record again, at any time."""
        port, record = data.draw(st.sampled_from(self.records))
        self.deliver(port, record, fresh=False)

    def deliver(self, port: str, record: bytes, *, fresh: bool) -> None:
        before = [bytes(self.hbm.view(r.address, r.length)) for r in self.regions.all()]
        try:
            self.copies.copy(port, record, NOW)
            accepted = True
        except GputError:
            accepted = False
        after = [bytes(self.hbm.view(r.address, r.length)) for r in self.regions.all()]
        if fresh:
            self.records.append((port, record))
        epoch = int.from_bytes(record[8:12], "little")
        if accepted:
            assert epoch in self.epochs.alive, "L1: a dead epoch's record was accepted"
        if not fresh:  # L4: no record opens twice, so a replay never writes
            written = [a for b, a in zip(before, after, strict=True) if a != b]
            assert all(not any(a) for a in written), "a replay wrote"

    @rule(region=st.sampled_from([1, 2]))
    def scrub(self, region: int) -> None:
        entry = self.regions.get(region)
        try:
            self.regions.require(region, RegionFact.SCRUBBED, Role.ORCHESTRATOR)
        except ProtocolViolation:
            assert entry.phase in (RegionPhase.GRANTED, RegionPhase.FILLING, RegionPhase.PUBLISHED)
            return
        proof = self.hbm.scrub(entry.address, entry.length)
        self.regions.move(region, RegionFact.SCRUBBED, Role.ORCHESTRATOR, proof)
        self.scrubbed.add(region)

    @invariant()
    def one_writer_per_region(self) -> None:
        """L1: of all living grants, at most one names a region, and its epoch is open."""
        living = [self.copies.grants.of_epoch(epoch) for epoch in self.copies.grants.alive()]
        writers = [live.grant.region for live in living if live is not None and live.dead is None]
        assert len(writers) == len(set(writers))
        assert set(self.copies.grants.alive()) <= set(self.epochs.alive)

    @invariant()
    def clean_is_zero(self) -> None:
        for region in self.regions.all():
            if region.phase is RegionPhase.CLEAN:
                assert not any(self.hbm.view(region.address, region.length))


TestLaws = Laws.TestCase
TestLaws.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
