"""The region table: the life of one dataset region inside the GPU. Pure; knows no memory, no key, no command.

The machine is the table at the foot. A region may be granted only from CLEAN, and CLEAN is reached only by a scrub (law L2).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpu_agent.hardware.hbm import ScrubProof
from shared.errors import NotFound, ProtocolViolation
from shared.names import RegionKind, RegionPhase, Role
from shared.protocol.machine import Machine, Move


class RegionFact(StrEnum):
    """What can happen to a dataset region."""

    GRANTED = "granted"
    CHUNK = "chunk"
    CLOSED = "closed"
    FAULT = "fault"
    FENCED = "fenced"
    TRAIN = "train"
    TRAINED = "trained"
    EVALUATE = "evaluate"
    EVALUATED = "evaluated"
    SCRUBBED = "scrubbed"


@dataclass
class Region:
    """One region of HBM by its handle. `proof` is the scrub proof of its last use: absent as soon as anything may be written.

    Regions that belong to the orchestrator (code, model, optimiser, committed, gradients, validation) never move: they are IN_USE
    from allocation to wipe, and no grant can name them.
    """

    handle: int
    kind: RegionKind
    address: int
    length: int
    phase: RegionPhase
    proof: ScrubProof | None = None


class RegionTable:
    """All regions by handle; moves the dataset ones along the table."""

    def __init__(self) -> None:
        self._regions: dict[int, Region] = {}

    def add(self, kind: RegionKind, address: int, length: int, proof: ScrubProof | None = None) -> Region:
        """Enter an allocated region under the next handle (from 1)."""
        dataset = kind is RegionKind.DATASET
        phase = REGION.initial if dataset else RegionPhase.IN_USE
        region = Region(len(self._regions) + 1, kind, address, length, phase, proof if dataset else None)
        self._regions[region.handle] = region
        return region

    def get(self, handle: int) -> Region:
        """Raises: NotFound."""
        region = self._regions.get(handle)
        if region is None:
            raise NotFound(f"the GPU has no region {handle}", code="unknown-region")
        return region

    def only(self, kind: RegionKind) -> Region | None:
        """The one region of a kind, if it exists."""
        return next((r for r in self._regions.values() if r.kind is kind), None)

    def all(self, kind: RegionKind | None = None) -> list[Region]:
        """Regions by handle."""
        return [r for r in self._regions.values() if kind is None or r.kind is kind]

    def require(self, handle: int, fact: RegionFact, actor: Role) -> RegionPhase:
        """The phase that `fact` would lead to; nothing moves.

        Raises:
            NotFound, ProtocolViolation: unknown, not a dataset region, or out of order.
        """
        return _after(self.get(handle), fact, actor)

    def move(self, handle: int, fact: RegionFact, actor: Role, proof: ScrubProof | None = None) -> Region:
        """State a fact of a region. SCRUBBED needs the proof that covers exactly it; every other move drops the old proof.

        Raises:
            NotFound, ProtocolViolation: as `require`, or a scrub without its proof. Nothing changed.
        """
        region = self.get(handle)
        phase = _after(region, fact, actor)
        if fact is RegionFact.SCRUBBED and not _covers(region, proof):
            raise ProtocolViolation(f"region {handle} is CLEAN only by a scrub proof of its own", code="no-scrub-proof")
        region.phase, region.proof = phase, proof if fact is RegionFact.SCRUBBED else None
        return region

    def require_grantable(self, handle: int) -> Region:
        """A dataset region that is CLEAN and whose scrub proof is at hand (law L2).

        Raises:
            NotFound, ProtocolViolation.
        """
        self.require(handle, RegionFact.GRANTED, Role.ORCHESTRATOR)
        region = self.get(handle)
        if not _covers(region, region.proof):
            raise ProtocolViolation(f"region {handle} has no scrub proof of its last use", code="no-scrub-proof")
        return region

    def clear(self) -> None:
        """Forget all regions (after a wipe)."""
        self._regions.clear()


def _after(region: Region, fact: RegionFact, actor: Role) -> RegionPhase:
    if region.kind is not RegionKind.DATASET:
        raise ProtocolViolation(
            f"region {region.handle} is no dataset region", code="wrong-region-kind", got=region.kind.value
        )
    return REGION.after(region.phase, fact, actor)


def _covers(region: Region, proof: ScrubProof | None) -> bool:
    return proof is not None and (proof.address, proof.length) == (region.address, region.length)


_P, _F = RegionPhase, RegionFact
_O, _H, _G = Role.ORCHESTRATOR, Role.HOLDER, Role.GPU

TRANSITIONS = {
    (_P.CLEAN, _F.GRANTED): Move(_O, _P.GRANTED),
    (_P.GRANTED, _F.CHUNK): Move(_H, _P.FILLING),
    (_P.FILLING, _F.CHUNK): Move(_H, _P.FILLING),
    (_P.FILLING, _F.CLOSED): Move(_H, _P.PUBLISHED),
    # A copy fault kills the grant: what was written is scrubbed at once, but only a scrub command makes the region CLEAN.
    (_P.GRANTED, _F.FAULT): Move(_G, _P.DIRTY),
    (_P.FILLING, _F.FAULT): Move(_G, _P.DIRTY),
    # A fence ends every write; what was not published by then is never looked at.
    (_P.GRANTED, _F.FENCED): Move(_O, _P.DIRTY),
    (_P.FILLING, _F.FENCED): Move(_O, _P.DIRTY),
    (_P.PUBLISHED, _F.FENCED): Move(_O, _P.FENCED),
    (_P.DIRTY, _F.FENCED): Move(_O, _P.DIRTY),
    (_P.FENCED, _F.TRAIN): Move(_O, _P.IN_USE),
    (_P.IN_USE, _F.TRAINED): Move(_G, _P.DIRTY),
    (_P.FENCED, _F.EVALUATE): Move(_O, _P.IN_USE),
    (_P.IN_USE, _F.EVALUATED): Move(_G, _P.FENCED),
    (_P.FENCED, _F.SCRUBBED): Move(_O, _P.CLEAN),
    (_P.DIRTY, _F.SCRUBBED): Move(_O, _P.CLEAN),
    # A repeated scrub command destroys nothing and proves the same again.
    (_P.CLEAN, _F.SCRUBBED): Move(_O, _P.CLEAN),
}
REGION = Machine("region", _P.CLEAN, TRANSITIONS)
