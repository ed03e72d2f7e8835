"""What a copy of model and optimiser holds, read from memory: digests for the world, tags for the device itself. Knows no phase, no holder.

BLAKE3 is for what is published, and is worked out where bytes are new: the model's always, the optimiser's where somebody needs it. Bytes
that should be what they were are read back by GMAC, at the speed of memory; only where a tag differs are they hashed, to say what is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from gpu_agent.hardware.hbm import HBM, Extent
from shared.claims.layout import TOUR_BATCHES, MemoryPlan, RegionPlan, region_parts
from shared.crypto.secret import Secret
from shared.names import RegionKind
from shared.wire.gpu_answers import Committed

KEY_BYTES: Final = 32
_TAGS: Final = 2
"""Of a copy: the model's and the optimiser's."""


@dataclass(frozen=True)
class Digests:
    """Region digests (BLAKE3, hex) of model and optimiser, and the global step they stand at; `batches`: that the accumulator holds.

    `optimiser`: None where it was not hashed. `version`: number of the seal that the bytes read back as; 0: of none.
    """

    model: str
    optimiser: str | None
    step: int
    batches: int = 0
    version: int = 0

    def told(self) -> Committed:
        """As an answer."""
        return Committed(
            model=self.model, optimiser=self.optimiser, step=self.step, batches=self.batches, version=self.version
        )


@dataclass(frozen=True)
class Copy:
    """Where a copy of the model region and of the optimiser's begins."""

    model: int
    optimiser: int


@dataclass(frozen=True)
class Seal:
    """Digests of a copy, and how its bytes read under a key that never leaves the device."""

    digests: Digests
    tags: tuple[bytes, ...]

    @property
    def number(self) -> int:
        """Which of the device's seals it is, from 1."""
        return self.digests.version


class ReadBack:
    """Reads copies of what `plan` lays out; every answer is of the bytes as they lie in memory at the time of asking.

    Args:
        key: 32 bytes, the device's own. It lies in no memory that a holder can reach, and no tag under it is ever told.
    """

    def __init__(self, hbm: HBM, plan: MemoryPlan, key: Secret) -> None:
        self._hbm, self._plan, self._key = hbm, plan, key
        self._parts = {kind: list(region_parts(region)) for kind, region in _regions(plan).items()}
        self._gaps = {kind: list(_gaps(region)) for kind, region in _regions(plan).items()}
        self._seals = 0

    def digests(self, copy: Copy, step: int, *, optimiser: bool = True) -> Digests:
        """Digests by hashing; of the optimiser's state only if asked."""
        model = self._digest(RegionKind.MODEL, copy.model)
        named = self.optimiser(copy) if optimiser else None
        return Digests(model, named, step, self._batches(copy.optimiser))

    def optimiser(self, copy: Copy) -> str:
        """Digest of the optimiser's state by hashing it."""
        return self._digest(RegionKind.OPTIMISER, copy.optimiser)

    def seal(self, copy: Copy, digests: Digests) -> Seal:
        """How it reads while it has these digests."""
        self._seals += 1
        return Seal(replace(digests, version=self._seals), self._tags(self._seals, copy))

    def duplicate(self, source: Copy, copy: Copy, step: int, *, optimiser: bool) -> Seal:
        """Make `copy` one of `source`; how it reads then, with its digests: of the optimiser's state only if asked."""
        self._seals += 1
        number, parts = self._seals, self._extents(RegionKind.MODEL, copy.model)
        tags, model = self._hbm.duplicate(self._key.reveal(), _TAGS * number, self.moves(source, copy), parts)
        named = self.optimiser(copy) if optimiser else None
        digests = Digests(model.hex(), named, step, self._batches(copy.optimiser), number)
        return Seal(digests, (*tags, *(b"" for _ in range(_TAGS - len(tags)))))

    def moves(self, source: Copy, copy: Copy) -> list[tuple[int, int, int]]:
        """Target, source and bytes, of model and optimiser without padding, that make `copy` one of `source`."""
        model, optimiser = self._plan.model.length, self._plan.optimiser.length
        first = (copy.model, source.model, model)
        return [first, (copy.optimiser, source.optimiser, optimiser)] if optimiser else [first]

    def gaps(self, copy: Copy) -> list[Extent]:
        """Its bytes that belong to no tensor. No digest is of them, and every tag is."""
        bases = ((RegionKind.MODEL, copy.model), (RegionKind.OPTIMISER, copy.optimiser))
        return [Extent(base + gap.address, gap.length) for kind, base in bases for gap in self._gaps[kind]]

    def reads_as(self, seal: Seal | None, copy: Copy) -> bool:
        """Whether every byte of it is as it was sealed."""
        return seal is not None and self._tags(seal.number, copy) == seal.tags

    def against(self, seal: Seal | None, copy: Copy, step: int) -> Digests:
        """Digests of what should be as it was sealed; with its number if it is."""
        if seal is not None and self.reads_as(seal, copy):
            return replace(seal.digests, step=step)
        return self.digests(copy, step)

    def _tags(self, number: int, copy: Copy) -> tuple[bytes, ...]:
        key, plan = self._key.reveal(), self._plan
        model, optimiser = Extent(copy.model, plan.model.length), Extent(copy.optimiser, plan.optimiser.length)
        return tuple(self._hbm.tags(key, [(_TAGS * number, model), (_TAGS * number + 1, optimiser)]))

    def _batches(self, optimiser: int) -> int:
        """The accumulator's count, as it lies in memory; 0 where there is none."""
        counter = next((placed for placed in self._plan.optimiser.tensors if placed.spec.name == TOUR_BATCHES), None)
        if counter is None:
            return 0
        return int.from_bytes(self._hbm.view(optimiser + counter.offset, counter.size_bytes), "little")

    def _digest(self, kind: RegionKind, base: int) -> str:
        return self._hbm.digest_of(self._extents(kind, base)).hex()

    def _extents(self, kind: RegionKind, base: int) -> list[tuple[bytes, Extent]]:
        """What a region's digest is of, in the copy that begins there."""
        return [(head, Extent(base + one.offset, one.size_bytes)) for head, one in self._parts[kind]]


def _regions(plan: MemoryPlan) -> dict[RegionKind, RegionPlan]:
    """Those of a copy."""
    return {RegionKind.MODEL: plan.model, RegionKind.OPTIMISER: plan.optimiser}


def _gaps(plan: RegionPlan) -> Iterator[Extent]:
    """What lies in a region behind each of its tensors, up to the cache line where the next one begins; from the region's start on."""
    starts = [*(placed.offset for placed in plan.tensors), plan.length]
    for placed, following in zip(plan.tensors, starts[1:], strict=True):
        end = placed.offset + placed.size_bytes
        if end < following:
            yield Extent(end, following - end)
