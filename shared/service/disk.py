"""A service's own volume: whether it has room, and what a failed write means. Knows no file format and no table."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from pathlib import Path

from shared.errors import Unavailable

MARGIN_BYTES = 1 << 20
"""Room that a service wants to see before it calls itself ready: less is gone with the next few commits."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def unwritable(path: Path, error: OSError) -> Unavailable:
    """What an `OSError` of writing `path` means: codes `disk-full` (no room, no quota, a limit of file sizes), `disk-unusable`."""
    full = error.errno in _FULL
    return Unavailable(
        f"{path} cannot be written: {error.strerror}",
        code="disk-full" if full else "disk-unusable",
        remedy="Free space on its volume, or raise the quota; nothing was half written, and it goes on by itself."
        if full
        else "Check the folder, its owner and rights, and whether its volume is mounted for writing.",
    )


class DataDir:
    """The folder of a service's own state, for readiness."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def check(self) -> None:
        """Raises: Unavailable: codes `disk-full`, `disk-unusable`."""
        await asyncio.to_thread(self._probe)

    def _probe(self) -> None:
        # Asked of the volume itself: what it says of its free space leaves out quotas, limits and reserved blocks.
        try:
            with tempfile.TemporaryFile(dir=self._folder) as file:
                os.posix_fallocate(file.fileno(), 0, MARGIN_BYTES)
        except OSError as error:
            raise unwritable(self._folder, error) from error
