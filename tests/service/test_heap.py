"""Freed memory stays with a process that was told so: the next body of that size meets pages that are there, by the kernel's own count."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

GLIBC = hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
# Bodies as a server handles them: a few buffers of each, let go of together. What is counted is pages that the kernel had to bring.
FAULTS = """
import resource, sys
from shared.service.heap import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def body():
    pieces = [bytes([n]) * 262144 for n in range(8)]
    whole = b"".join(pieces)
    del pieces
    return len(whole)
for _ in range(3):
    body()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    body()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(how: str) -> int:
    return int(subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, check=True, text=True).stdout)


@pytest.mark.skipif(not GLIBC, reason="the setting is glibc's")
def test_a_process_that_keeps_memory_meets_the_same_pages_again() -> None:
    kept, given_back = _faults("keep"), _faults("default")
    assert kept < 20  # less than one a body
    assert given_back > 1000  # 2 MiB a body, and only a part of it is new each time
