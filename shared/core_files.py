"""No core file of a process that crashes: its memory holds records, models and keys, and whoever runs the machine reads the file.

Knows Linux's limits of a process; no service.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path
from typing import Final

_FILTER: Final = Path("/proc/self/coredump_filter")


def leave_no_core() -> None:
    """From now on this process, and all that it starts, writes none. For good: only root may raise the limit again.

    The limit holds for files. Where the machine hands cores to a program it does not count, so what such a program gets is emptied of
    memory, too (core(5)).

    Raises:
        OSError: the kernel refuses; nothing secret should come into this process.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(FileNotFoundError):  # a kernel that writes no cores
        _FILTER.write_bytes(b"0")
