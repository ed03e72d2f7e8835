"""A process's own memory in huge pages: which places those are, and that what lies there stays as it is."""

from __future__ import annotations

import mmap
import os

import pytest

from gpu_agent.compute.huge_pages import collapse, own_memory, with_huge_heap
from gpu_agent.hardware.shared_map import HUGE_PAGE

MAPS = """\
00400000-00401000 r--p 00000000 08:01 131 /usr/bin/python3.11
01000000-01700000 rw-p 00000000 00:00 0                                  [heap]
7f0000000000-7f0000100000 rw-p 00000000 00:00 0
7f0000300000-7f0000900000 rw-p 00000000 00:00 0
7f0001000000-7f0002000000 rw-s 00000000 00:01 77 /memfd:gpu-hbm (deleted)
7f0003000000-7f0004000000 rw-p 00000000 08:01 99 /usr/lib/libtorch_cpu.so
7f0005000000-7f0006000000 r--p 00000000 00:00 0
7ffc00000000-7ffc00800000 rw-p 00000000 00:00 0                          [stack]
"""


def test_whole_huge_pages_of_heap_and_anonymous_memory_are_found() -> None:
    assert own_memory(MAPS) == [(0x1000000, 3 * HUGE_PAGE), (0x7F0000400000, 2 * HUGE_PAGE)]
    assert own_memory("") == []


def test_what_lies_there_stays() -> None:
    memory = mmap.mmap(-1, 8 * HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    data = os.urandom(1 << 16)
    for at in range(0, len(memory), 1 << 20):
        memory[at : at + len(data)] = data
    assert collapse() >= 0  # nothing where the kernel knows no such call
    assert all(memory[at : at + len(data)] == data for at in range(0, len(memory), 1 << 20))


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (None, "glibc.malloc.hugetlb=1"),
        ("glibc.malloc.check=1", "glibc.malloc.check=1:glibc.malloc.hugetlb=1"),
        ("glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=0"),
    ],
)
def test_a_heap_grows_by_huge_pages_unless_the_operator_says_otherwise(stated: str | None, expected: str) -> None:
    before = {"HOME": "/"} | ({} if stated is None else {"GLIBC_TUNABLES": stated})
    kept = dict(before)
    assert with_huge_heap(before) == {"HOME": "/", "GLIBC_TUNABLES": expected}
    assert before == kept
