"""The address space of GPU memory: which addresses are allocated, and where the next allocation goes. Knows no byte behind them."""

from __future__ import annotations

import bisect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Final

from gpu_agent.hardware.extents import Extent
from shared.errors import OutOfMemory

PAGE: Final = 4096
_ATTEMPTS: Final = 64


class AddressSpace(ABC):
    """`size` bytes of addresses, of which allocations may use `backing` bytes in all.

    Args:
        entropy: where addresses come from; an address must not be guessable (design 4.2 step 3).
    """

    def __init__(self, size: int, entropy: Callable[[int], bytes], backing: int | None = None) -> None:
        self.size = size // PAGE * PAGE
        self.backing = min(self.size, backing if backing is not None else self.size)
        self._entropy = entropy
        self._starts: list[int] = []
        self._lengths: dict[int, int] = {}

    @abstractmethod
    def _clear(self, address: int, length: int) -> None:
        """Zero bytes, allocated or not."""

    def _first_touch(self, address: int, length: int) -> None:
        """Zero what was just allocated."""
        self._clear(address, length)

    @property
    def used(self) -> int:
        """Allocated bytes, whole pages."""
        return sum(self._lengths.values())

    def allocate(self, length: int) -> int:
        """Address of `length` zeroed bytes at a random page, every page touched.

        Raises:
            OutOfMemory: more than is free, or no gap of that length was found.
        """
        span = pages(length)
        if length < 1 or span > self.backing - self.used:
            raise OutOfMemory(
                f"{length} bytes do not fit: {self.backing - self.used} of {self.backing} bytes of GPU memory are free",
                remedy="Use a smaller buffer, model or number of buffers, or a GPU with more memory.",
            )
        address = self._random_gap(span)
        bisect.insort(self._starts, address)
        self._lengths[address] = span
        self._first_touch(address, span)
        return address

    def forget(self, address: int) -> None:
        """An allocation is none any more."""
        self._starts.remove(address)
        del self._lengths[address]

    def allocated(self) -> list[tuple[int, int]]:
        """(address, length) of every allocation, ascending."""
        return [(start, self._lengths[start]) for start in self._starts]

    def require_inside(self, address: int, length: int) -> None:
        """Raises: OutOfMemory: code `bad-address`: the extent does not lie inside one allocation."""
        at = bisect.bisect_right(self._starts, address) - 1
        start = self._starts[at] if at >= 0 else -1
        if start < 0 or length < 0 or address + length > start + self._lengths[start]:
            raise OutOfMemory(f"extent of {length} bytes lies outside of what is allocated", code="bad-address")

    def require_address(self, address: int, length: int) -> None:
        """Raises: OutOfMemory: code `bad-address`: the extent lies beyond the address space."""
        if address + length > self.size:
            raise OutOfMemory(f"extent of {length} bytes lies beyond the address space", code="bad-address")

    def _random_gap(self, span: int) -> int:
        slots = (self.size - span) // PAGE + 1
        for _ in range(_ATTEMPTS):
            # 128 random bits modulo at most 2^25 slots: the bias is below 2^-100.
            address = int.from_bytes(self._entropy(16), "big") % slots * PAGE
            if self._is_free(address, span):
                return address
        return self._any_gap(span)

    def _any_gap(self, span: int) -> int:
        """A random one among the gaps when memory is nearly full and blind draws keep missing."""
        gaps, end = [], 0
        for start in [*self._starts, self.size]:
            if start - end >= span:
                gaps.append((end, start - span))
            end = start + self._lengths.get(start, 0)
        if not gaps:
            raise OutOfMemory(f"no gap of {span} bytes is left in GPU memory")
        first, last = gaps[int.from_bytes(self._entropy(16), "big") % len(gaps)]
        return first + int.from_bytes(self._entropy(16), "big") % ((last - first) // PAGE + 1) * PAGE

    def _is_free(self, address: int, span: int) -> bool:
        after = bisect.bisect_right(self._starts, address)
        if after < len(self._starts) and self._starts[after] < address + span:
            return False
        return after == 0 or self._starts[after - 1] + self._lengths[self._starts[after - 1]] <= address


def pages(length: int) -> int:
    """`length` rounded up to whole pages, in bytes."""
    return -(-length // PAGE) * PAGE


def whole_pages(extents: Iterable[Extent]) -> list[Extent]:
    """Every page that one of them touches, once: stretches in ascending order, none next to another."""
    found: list[Extent] = []
    for one in sorted(extents, key=lambda extent: extent.address):
        start, end = one.address // PAGE * PAGE, pages(one.address + one.length)
        if not one.length:
            continue
        if found and start <= (last := found[-1]).address + last.length:
            start, end = last.address, max(end, last.address + last.length)
            found.pop()
        found.append(Extent(start, end - start))
    return found
