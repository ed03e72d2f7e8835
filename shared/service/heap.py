"""What the C library does with memory that was freed: a setting of the process. Knows no service.

A body of some megabytes is a few buffers a moment long. By default glibc gives the top of its heap back to the kernel as soon as 128 KiB
of it are free, and the next body pays for fresh, zeroed pages: two thirds of what receiving a byte costs (ADR 0023).
"""

from __future__ import annotations

import ctypes
from typing import Final

KEPT_BYTES: Final = 32 * 1024 * 1024
"""So much freed memory stays with the process."""
MAPPED_BYTES: Final = 8 * 1024 * 1024
"""What is larger is mapped apart, and given back when it is freed. Above the longest record (`shared.wire.gpu.MAX_BULK_RECORD`)."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h


def keep_freed_memory() -> bool:
    """Tell the C library to keep as much as a stream of records needs; whether it is one that can be told."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # not glibc: then it has other habits
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)) and bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES))
