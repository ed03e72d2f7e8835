"""All of a device's memory that is HBM, as one tensor of bytes: operations on it, and how other processes come to it.

The same code on every device that PyTorch knows; what only CUDA has (streams, handles, other processes' leavings) is asked for where it is
needed. Device `cpu` is memory that two processes have mapped: it is there for tests. Knows no address space, no message, no key.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor

from gpu_agent.compute import cuda_driver, cuda_memory
from gpu_agent.hardware.address_space import PAGE
from gpu_agent.hardware.hbm import Extent
from shared.errors import ConfigurationError, Unavailable, VerificationFailed

SHARE: Final = 0.5
"""Of the card's free memory what is HBM unless told otherwise; the rest is for activations and contexts."""
SLACK_BYTES: Final = 256 << 20  # memory of a context that may be in use besides ours, and the driver's own rounding
RETURN_DEADLINE_S: Final = 20.0
_BALLAST: Final = 64 << 20
_LEAST: Final = 2 << 20  # CUDA's own granule
_WORDS: Final = 8
_TABLE_BYTES: Final = 1 << 28


class Arena:
    """One device's HBM.

    Args:
        flat: uint8, one-dimensional, whole pages.
    """

    def __init__(self, flat: Tensor) -> None:
        self.flat = flat
        self._cuda = flat.device.type == "cuda"
        self._stream = _stream(flat.device) if self._cuda else None
        self._free_at_start = self.free()

    def stands(self) -> None:
        """From now on what is free is what was at the start: whoever keeps the arena has all of the card that it wants beside it."""
        self._free_at_start = self.free()

    @contextmanager
    def work(self) -> Iterator[None]:
        """What is begun inside goes over the arena's own stream, beside whatever trains; it is done at the end."""
        if self._stream is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            yield
        self._stream.synchronize()

    def part(self, address: int, length: int) -> Tensor:
        """Bytes of it where they lie. Raises: RuntimeError: they do not lie inside."""
        return self.flat.narrow(0, address, length)

    def put(self, slot: Tensor, address: int, length: int) -> None:
        """Host to device."""
        with self.work():
            self.part(address, length).copy_(slot.narrow(0, 0, length), non_blocking=self._cuda)

    def get(self, slot: Tensor, address: int, length: int) -> None:
        """Device to host."""
        with self.work():
            slot.narrow(0, 0, length).copy_(self.part(address, length), non_blocking=self._cuda)

    def zero(self, address: int, length: int) -> None:
        """Zero bytes."""
        with self.work():
            self.part(address, length).zero_()

    def is_zero(self, address: int, length: int) -> bool:
        """Whether every byte is zero."""
        with self.work():
            return _is_zero(self.part(address, length))

    def dirty_pages(self, address: int, length: int) -> int:
        """Pages that hold anything but zeros; `address` and `length` are whole pages."""
        with self.work():
            table = self.part(address, length).view(torch.int64).view(-1, PAGE // _WORDS)
            parts = torch.split(table, _TABLE_BYTES // PAGE)
            return sum(int(torch.count_nonzero(torch.any(part, dim=1))) for part in parts)

    def copy(self, target: int, source: int, length: int) -> None:
        """Device to device."""
        with self.work():
            self.part(target, length).copy_(self.part(source, length))

    def fetch(self, target: Tensor, address: int) -> None:
        """Begin to copy as many bytes from the device as the target has."""
        if self._stream is None:
            target.copy_(self.part(address, target.numel()))
            return
        with torch.cuda.stream(self._stream):
            target.copy_(self.part(address, target.numel()), non_blocking=True)

    def fetched(self) -> None:
        """Return when all that was begun has come."""
        if self._stream is not None:
            self._stream.synchronize()

    def free(self) -> int:
        """Bytes of the card that no process has; 0 where the memory is the host's."""
        return int(torch.cuda.mem_get_info(self.flat.device)[0]) if self._cuda else 0

    def clear_free(self, least: int | None = None) -> int:
        """Take all memory that no process has, zero it, read it back, give it back; its bytes. Nothing to do where it is the host's.

        A dead process's activations lay there (law L7).

        Args:
            least: how much there has to be, less `SLACK_BYTES`; None: as much as when no other process was there.
        Raises:
            VerificationFailed: `scrub-failed`: it is not zero. `scrub-incomplete`: some of it is not to be had.
        """
        if not self._cuda:
            return 0
        least = self._free_at_start if least is None else least
        until = time.monotonic() + RETURN_DEADLINE_S
        while True:
            held = _take_all(self.flat.device)
            covered = sum(part.numel() for part in held)
            if covered >= least - SLACK_BYTES:
                break
            held.clear()
            if time.monotonic() > until:
                raise VerificationFailed(
                    "memory that a compute process used did not come back to be scrubbed", code="scrub-incomplete",
                    expected=str(least), got=str(covered),
                )  # fmt: skip
            time.sleep(0.05)  # the driver gives a dead process's memory back in its own time, and tells nobody
        del held[0]  # the ballast, known to be zero: room for what the check itself needs
        if not all(_is_zero(part) for part in held):
            raise VerificationFailed("memory is not zero after its scrub", code="scrub-failed")
        return covered


def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # PyTorch leaves it untyped


def _take_all(device: torch.device) -> list[Tensor]:
    """Everything that is free, zeroed, in pieces; the first is the ballast and was read back.

    Asking at once for all that the card says is free was slower in a trial (a sweep of 65 GB 130 ms, and 85 so): what a card refuses
    costs the more the more it has.
    """
    held = [torch.zeros(_BALLAST, dtype=torch.uint8, device=device)]
    if not _is_zero(held[0]):
        raise VerificationFailed("memory is not zero after its scrub", code="scrub-failed")
    step = 1 << 34
    while step >= _LEAST:
        try:
            held.append(torch.zeros(step, dtype=torch.uint8, device=device))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            step //= 2
    return held


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether the card has no more. Uncached, PyTorch hands on the runtime's own error, which is no `torch.OutOfMemoryError`."""
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error)


def _is_zero(part: Tensor) -> bool:
    """By whole words, eight times as fast as by bytes, and the bytes at both ends."""
    head = min(part.numel(), -part.storage_offset() % _WORDS)
    whole = (part.numel() - head) // _WORDS * _WORDS
    ends = torch.cat((part[:head], part[head + whole :]))
    words = part[head : head + whole].view(torch.int64) if whole else ends
    return not bool(torch.any(words)) and not bool(torch.any(ends))


def require_device(device: str) -> None:
    """Raises: ConfigurationError `no-cuda-device`: it is not there."""
    if device == "cpu":
        return
    if torch.version.cuda is None:
        raise ConfigurationError(
            f"device {device} cannot be used: this PyTorch ({torch.__version__}) was built without CUDA",
            code="no-cuda-device", remedy="Install a PyTorch build with CUDA, or unset compute.",
        )  # fmt: skip
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(device.partition(":")[2]) >= count:
        raise ConfigurationError(
            f"there is no device {device}: this machine has {count} CUDA devices",
            code="no-cuda-device", remedy="Name a device that is there, or unset compute.",
        )  # fmt: skip


@dataclass(frozen=True)
class Made:
    """`files`: a descriptor for each piece, by which other processes come to the memory; `piece`: bytes of each but the last. On device
    `cpu` it is one piece, and its descriptor the agent's."""

    arena: Arena
    piece: int
    files: list[int]


def make(device: str, size: int, fd: int) -> Made:
    """All of HBM, zeroed. `size` 0: `SHARE` of what the card has free.

    Args:
        fd: device `cpu` only: the file behind it.
    Raises:
        ConfigurationError `gpu-memory`: the card has not that much free.
    """
    if device == "cpu":
        return Made(Arena(_over_file(fd, size)), size, [])
    cuda_driver.make_current(device)
    free = torch.cuda.mem_get_info(device)[0]
    size = max(cuda_memory.GRANULE, (size or int(free * SHARE)) // cuda_memory.GRANULE * cuda_memory.GRANULE)
    piece = cuda_memory.piece_bytes(size)
    mapping = cuda_memory.Mapping(device, size, piece)
    try:
        files = mapping.make()
    except Unavailable as error:
        if error.code != "cuda-out-of-memory":
            raise
        raise ConfigurationError(
            f"{device} has {free} bytes free, and hbm_bytes asks for {size}", code="gpu-memory",
            remedy="Choose a smaller hbm_bytes, and leave room for activations.",
        ) from None  # fmt: skip
    flat = mapping.bytes_of(Extent(0, size))
    flat.zero_()
    return Made(Arena(flat), piece, files)


class Reach(Protocol):
    """HBM as another process than its keeper reaches it."""

    @property
    def device(self) -> torch.device:
        """Where it lies."""

    def part(self, extent: Extent) -> Tensor:
        """An extent as uint8 (length,)."""


class Whole:
    """Memory that this process has anyway.

    Args:
        flat: all of it, uint8, one-dimensional.
    """

    def __init__(self, flat: Tensor) -> None:
        self._flat, self.device = flat, flat.device

    def part(self, extent: Extent) -> Tensor:
        """See `Reach.part`."""
        return self._flat.narrow(0, extent.address, extent.length)


class Pieces:
    """Memory of a CUDA device, of which those pieces are mapped that hold a part which was asked for.

    Args:
        files: descriptors of all pieces, in order.
    Raises:
        Unavailable `cuda-failed`.
    """

    def __init__(self, device: str, piece: int, size: int, files: Sequence[int]) -> None:
        cuda_driver.make_current(device)
        self.device, self._files = torch.device(device), files
        self._mapping = cuda_memory.Mapping(device, size, piece)

    def part(self, extent: Extent) -> Tensor:
        """See `Reach.part`. Raises: Unavailable `cuda-failed`."""
        if not extent.length:
            return torch.empty(0, dtype=torch.uint8, device=self.device)
        self._mapping.reach(extent, self._files)
        return self._mapping.bytes_of(extent)


def open_shared(device: str, piece: int, size: int, files: Sequence[int]) -> Reach:
    """What `make` made, in another process. Raises: Unavailable."""
    return Whole(_over_file(files[0], size)) if device == "cpu" else Pieces(device, piece, size, files)


def _over_file(fd: int, size: int) -> Tensor:
    return torch.frombuffer(mmap.mmap(fd, size, flags=mmap.MAP_SHARED), dtype=torch.uint8)
