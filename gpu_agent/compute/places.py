"""Where HBM's bytes are for a launch: tensors over an extent of them, on whichever device they lie. Knows no program and no step."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, Protocol

import torch
from torch import Tensor

from gpu_agent.compute.arena import Reach, Whole, open_shared
from gpu_agent.compute.own_memory import OwnMemory
from gpu_agent.hardware.hbm import Extent
from gpu_agent.hardware.shared_map import SharedMap
from gpu_agent.workload.executor import DTYPES
from gpu_agent.workload.tensors import tensors_over
from shared.claims.layout import Placed, RegionPlan
from shared.errors import InvalidProgram

HOST: Final = "host"
WARMING_SHARE: Final = 0.05
"""Of a card's memory what a worker may take to warm up, while another one may be training that nobody knows."""
_POPULATE_WRITE: Final = 23  # MADV_POPULATE_WRITE, Linux 5.14; Python does not name it


class Place(Protocol):
    """HBM as one launch reaches it."""

    @property
    def device(self) -> str:
        """PyTorch's name of the device that computes here."""

    @property
    def warm_up_bytes(self) -> int:
        """The largest program that is worth a step on scratch memory before a launch."""

    def tensors(self, extent: Extent, plan: RegionPlan) -> dict[str, Tensor]:
        """Each tensor of a region over its own bytes. Raises: InvalidProgram: they do not fit."""

    def records(self, extent: Extent) -> Tensor:
        """An extent as uint8, one-dimensional."""

    def touch(self, extent: Extent | None) -> None:
        """Prepare an extent for use."""

    def settle(self) -> None:
        """Return when everything that was computed is in memory."""

    def watch(self) -> None:
        """From now on count what is taken beside HBM."""

    @property
    def most_beside(self) -> int | None:
        """Most bytes at once that were, since `watch`; None: they cannot be counted here."""

    @property
    def kept(self) -> bool:
        """Whether this process still holds all that it took since it was warm."""

    def scratch(self, length: int) -> Place:
        """`length` zeroed bytes that are nobody's, as a place of their own."""

    def warming(self, room: int) -> AbstractContextManager[None]:
        """While a waiting worker warms up.

        Args:
            room: bytes that it may take, as far as is known; else as much as one that trains will never miss.
        Raises, inside: torch.OutOfMemoryError: it is more.
        """


class HostPlace:
    """HBM that this process has mapped.

    Args:
        own: what the process has beside it; None: nobody asks.
    """

    device = "cpu"
    warm_up_bytes = 8 * 1024 * 1024

    def __init__(self, hbm: SharedMap, own: OwnMemory | None = None) -> None:
        self._hbm, self._own = hbm, own

    def tensors(self, extent: Extent, plan: RegionPlan) -> dict[str, Tensor]:
        """See `Place.tensors`."""
        if not plan.length:
            return {}
        _require_room(extent, plan)
        return tensors_over(self._hbm.view[extent.address : extent.address + extent.length], plan)

    def records(self, extent: Extent) -> Tensor:
        """See `Place.records`."""
        return torch.frombuffer(self._hbm.view, dtype=torch.uint8, count=extent.length, offset=extent.address)

    def touch(self, extent: Extent | None) -> None:
        """Enter an extent's pages into this process's page table at once; one fault for each would cost more."""
        if extent is not None and extent.length:
            self._hbm.advise(_POPULATE_WRITE, extent.address, -(-extent.length // mmap.PAGESIZE) * mmap.PAGESIZE)

    def settle(self) -> None:
        """The processor has no work of which its program does not know."""

    def watch(self) -> None:
        """See `Place.watch`."""
        if self._own is not None:
            self._own.watch()

    @property
    def most_beside(self) -> int | None:
        """See `Place.most_beside`: beside what the process had when this place was opened."""
        return None if self._own is None else self._own.most

    @property
    def kept(self) -> bool:
        """See `Place.kept`: nobody asks."""
        return False

    def warming(self, room: int) -> AbstractContextManager[None]:
        """See `Place.warming`: its pages are its own and die with it."""
        return nullcontext()

    def scratch(self, length: int) -> HostPlace:
        """See `Place.scratch`."""
        return HostPlace(SharedMap(-1, length))


class DevicePlace:
    """HBM that is memory of a device."""

    warm_up_bytes = (
        4 * 1024**3
    )  # beside a first step's loading of kernels on a device, even a large program's step is short

    def __init__(self, memory: Reach) -> None:
        self._memory, self._before, self._returned = memory, 0, 0
        self._device = memory.device
        self.device = str(memory.device)

    def tensors(self, extent: Extent, plan: RegionPlan) -> dict[str, Tensor]:
        """See `Place.tensors`."""
        if not plan.length:
            return {}
        _require_room(extent, plan)
        part = self._memory.part(extent)
        return {placed.spec.name: self._over(part, placed) for placed in plan.tensors}

    def _over(self, part: Tensor, placed: Placed) -> Tensor:
        dtype, shape, at = DTYPES[placed.spec.dtype], placed.spec.shape, int(part.storage_offset()) + placed.offset
        empty = torch.empty(0, dtype=dtype, device=self._device)
        if not math.prod(shape):
            return empty.view(shape)
        if at % dtype.itemsize:
            raise InvalidProgram("a region does not begin where its tensors may lie", code="region-misaligned")
        # A tensor of its own over the same storage: slices of one tensor would share a version counter and break backward (design 5).
        strides = [math.prod(shape[dimension + 1 :]) for dimension in range(len(shape))]
        return empty.set_(part.untyped_storage(), at // dtype.itemsize, shape, strides)

    def records(self, extent: Extent) -> Tensor:
        """See `Place.records`."""
        return self._memory.part(extent)

    def touch(self, extent: Extent | None) -> None:
        """A device's memory is there from the start."""

    def settle(self) -> None:
        """See `Place.settle`: kernels run on after the call that began them."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def watch(self) -> None:
        """See `Place.watch`. HBM is none of the allocator's: another process made it."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before = torch.cuda.memory_allocated(self._device)

    @property
    def most_beside(self) -> int | None:
        """See `Place.most_beside`: tensors of this process; neither its context nor what the allocator keeps in reserve."""
        if self._device.type != "cuda":
            return None
        return int(torch.cuda.max_memory_allocated(self._device)) - self._before

    @property
    def kept(self) -> bool:
        """See `Place.kept`: PyTorch gives memory back to the card where it has no more of it."""
        return self._given_back() == self._returned

    def _given_back(self) -> int:
        if self._device.type != "cuda":
            return 0
        counted = torch.cuda.memory_stats(self._device)
        return int(counted.get("segment.all.freed", 0)) + int(counted.get("num_alloc_retries", 0))

    @contextmanager
    def warming(self, room: int) -> Iterator[None]:
        """See `Place.warming`. What it took for that is back with the card at the end, before anybody's records are there."""
        if self._device.type != "cuda":
            yield
            return
        whole = torch.cuda.get_device_properties(self._device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, max(WARMING_SHARE, room / whole)), self._device)
        try:
            yield
        finally:
            self.settle()
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction(1.0, self._device)
            self._returned = self._given_back()

    def scratch(self, length: int) -> DevicePlace:
        """See `Place.scratch`."""
        return DevicePlace(Whole(torch.zeros(length, dtype=torch.uint8, device=self._device)))


def device_of(name: str) -> str:
    """The device on which programs are to run."""
    return "cpu" if name == HOST else name.partition("/")[0]


def opened(name: str, hbm: SharedMap) -> Place:
    """The place of that name; on a CUDA device this makes the process's context, so only a worker may call it.

    Raises:
        Unavailable: the device or its memory is not to be had.
    """
    if name == HOST:
        return HostPlace(hbm, OwnMemory())
    device, piece, size, files = name.split("/")
    return DevicePlace(open_shared(device, int(piece), int(size), [int(file) for file in files.split(",")]))


def _require_room(extent: Extent, plan: RegionPlan) -> None:
    if plan.length > extent.length:
        raise InvalidProgram("a region is smaller than the program's tensors", code="region-too-small")
