"""What a session gets of GPU memory: all regions that its plan needs, or none. Knows lengths and addresses; no content, no command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpu_agent.hardware.hbm import HBM, Extent
from shared.claims.layout import MemoryPlan, region_lengths
from shared.errors import OutOfMemory
from shared.names import RegionKind
from shared.protocol.travel import TRAVEL
from shared.wire.gpu import Configure

SPARE_SHARE: Final = 8
"""A second place for committed copies is taken only where it is at most this part of what is left."""


@dataclass(frozen=True)
class Allotment:
    """Extents by kind, in the order of `region_lengths`; of length 0: not needed. `spare`: a second place for committed copies."""

    regions: Sequence[tuple[RegionKind, Extent]]
    spare: Extent | None

    def extent(self, kind: RegionKind) -> Extent:
        """The first of a kind."""
        return next(extent for found, extent in self.regions if found is kind)

    def all(self) -> list[tuple[RegionKind, Extent]]:
        """What there is, the spare place last."""
        spare = [] if self.spare is None else [(RegionKind.COMMITTED, self.spare)]
        return [(kind, extent) for kind, extent in self.regions if extent.length] + spare


def allot(hbm: HBM, plan: MemoryPlan, command: Configure) -> Allotment:
    """Allocate every region, each at a random address.

    Raises:
        OutOfMemory: nothing stays allocated.
    """
    wanted = region_lengths(
        plan, buffer_bytes=command.buffer_bytes, buffers=command.buffers, validation_bytes=command.validation_bytes
    )
    extents = _allocated(hbm, [length for _, length in wanted])
    regions = [(kind, extent) for (kind, _), extent in zip(wanted, extents, strict=True)]
    return Allotment(regions, _spare(hbm, plan.model.length + plan.optimiser.length, command))


def _spare(hbm: HBM, length: int, command: Configure) -> Extent | None:
    """None where nothing is copied ahead, because somebody else may write or the memory copies in no time; or where memory is dear."""
    if not hbm.copies_ahead or TRAVEL[command.travel_mode].whole_gpu or length * SPARE_SHARE > hbm.backing - hbm.used:
        return None
    try:
        return Extent(hbm.allocate(length), length)
    except OutOfMemory:  # what is left lies in pieces: one place will do
        return None


def _allocated(hbm: HBM, lengths: Sequence[int]) -> list[Extent]:
    done: list[Extent] = []
    try:
        for length in lengths:
            done.append(Extent(hbm.allocate(length) if length else 0, length))
    except Exception:
        for extent in done:
            if extent.length:
                hbm.free(extent.address)
        raise
    return done
