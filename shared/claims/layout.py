"""Where each tensor lies inside the model, gradient and optimiser regions; and the model digest. Knows no tensor library.

Both ends compute the same plan from manifest and optimiser: the GPU to place tensors over HBM bytes, the orchestrator to
name the bytes it reads back. Offsets are 64-byte aligned (one cache line); regions are page aligned by the allocator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from shared.canonical import cbor_bytes
from shared.canonical.block_hasher import BlockHasher
from shared.claims.program import ProgramManifest, TensorSpec
from shared.claims.records import ITEM_BYTES
from shared.claims.training import SGD, TrainingOptions
from shared.errors import VerificationFailed
from shared.names import RegionKind

ALIGN = 64
ACCUMULATED = "accumulated"
"""Slot of the accumulator's tensors: `accumulated/<parameter>` is the sum of the gradients of a tour so far."""
TOUR_BATCHES, TOUR_STEPS = "tour_batches", "tour_steps"
"""Counters of the accumulator: batches whose gradients it holds, and steps that were taken with one before."""


@dataclass(frozen=True)
class Placed:
    """One tensor inside a region: `offset` and `size_bytes` in bytes from the region's start."""

    spec: TensorSpec
    offset: int
    size_bytes: int


@dataclass(frozen=True)
class RegionPlan:
    """All tensors of one region, in order, and the region's length in bytes."""

    tensors: tuple[Placed, ...]
    length: int


@dataclass(frozen=True)
class MemoryPlan:
    """Model (parameters then state), gradients (as parameters), optimiser (moments by slot name, e.g. `exp_avg/wte`; the accumulator)."""

    model: RegionPlan
    gradients: RegionPlan
    optimiser: RegionPlan


def moment_slots(options: TrainingOptions) -> tuple[str, ...]:
    """The optimiser's per-parameter tensors, by PyTorch's own names."""
    if isinstance(options.optimizer, SGD):
        return ("momentum_buffer",) if options.optimizer.momentum else ()
    return ("exp_avg", "exp_avg_sq")


def plan_memory(manifest: ProgramManifest, options: TrainingOptions, accumulate: bool = False) -> MemoryPlan:
    """Place every tensor that outlives a training step.

    `accumulate`: gradients outlive it too, until their tour ends. They lie among the optimiser's tensors, as the accumulator, and so are
    measured, committed, rolled back and sealed with them; there is no gradient region then.
    """
    slots = (*moment_slots(options), *([ACCUMULATED] if accumulate else []))
    kept = [spec.model_copy(update={"name": f"{slot}/{spec.name}"}) for slot in slots for spec in manifest.parameters]
    counters = [TensorSpec(name=name, dtype="int64", shape=()) for name in (TOUR_BATCHES, TOUR_STEPS) if accumulate]
    return MemoryPlan(
        model=_place([*manifest.parameters, *manifest.state]),
        gradients=_place([] if accumulate else manifest.parameters),
        optimiser=_place([*kept, *counters]),
    )


def region_lengths(
    plan: MemoryPlan, *, buffer_bytes: int, buffers: int = 1, validation_bytes: int = 0
) -> list[tuple[RegionKind, int]]:
    """What is allocated for a session beside its code, in order: kind and length in bytes, 0 for a region that is not needed."""
    return [
        (RegionKind.MODEL, plan.model.length),
        (RegionKind.OPTIMISER, plan.optimiser.length),
        (RegionKind.COMMITTED, plan.model.length + plan.optimiser.length),
        (RegionKind.GRADIENTS, plan.gradients.length),
        (RegionKind.VALIDATION, validation_bytes),
        *[(RegionKind.DATASET, buffer_bytes)] * buffers,
    ]


def tensor_bytes(spec: TensorSpec) -> int:
    """Bytes of one tensor, C-contiguous."""
    return math.prod(spec.shape) * ITEM_BYTES[spec.dtype]


def _place(specs: Iterable[TensorSpec]) -> RegionPlan:
    placed, offset = [], 0
    for spec in specs:
        size = tensor_bytes(spec)
        placed.append(Placed(spec, offset, size))
        offset += -(-size // ALIGN) * ALIGN
    return RegionPlan(tuple(placed), offset)


def region_digest(plan: RegionPlan, read: Callable[[int, int], bytes | memoryview]) -> bytes:
    """BLAKE3 (32 bytes) over canonical name, dtype, shape and bytes of every tensor, in order of name.

    Args:
        read: (offset, length) -> the region's bytes.
    """
    hasher = BlockHasher()
    for head, placed in region_parts(plan):
        hasher.update(head)
        hasher.update(read(placed.offset, placed.size_bytes))
    return hasher.digest()


def region_parts(plan: RegionPlan) -> Iterator[tuple[bytes, Placed]]:
    """What `region_digest` is of: what is said of each tensor, followed by its bytes, in order of name."""
    for placed in sorted(plan.tensors, key=lambda p: p.spec.name):
        spec = placed.spec
        yield cbor_bytes([spec.name, spec.dtype, list(spec.shape), placed.size_bytes]), placed


def require_named(optimiser: str | None) -> str:
    """The digest of an optimiser's state, where something is said of it. Raises: VerificationFailed: the GPU did not tell it."""
    if optimiser is None:
        raise VerificationFailed("The GPU did not tell the digest of the optimiser's state", code="answer-mismatch")
    return optimiser
