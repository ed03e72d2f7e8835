"""How much memory of its own this process comes to have, by the kernel's count (Linux). Knows no tensor and no launch.

Own is what lies in no file and is shared with nobody: the emulated GPU's memory is not counted, nor is code.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc/self")
_RESET_PEAK: Final = "5"  # to clear_refs: VmHWM begins anew (proc(5))
_OTHERS: Final = ("RssFile", "RssShmem")


class OwnMemory:
    """From its making on: what the process has more than then.

    Args:
        proc: the kernel's account of this process.
    """

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc, self._watched = proc, False
        self._before = self._counts().get("RssAnon")

    def watch(self) -> None:
        """Note the most from now on; of what came before only what is still there counts."""
        self._watched = False
        with suppress(OSError):
            (self._proc / "clear_refs").write_text(_RESET_PEAK)
            self._watched = True

    @property
    def most(self) -> int | None:
        """Most bytes at once since `watch`; None where the kernel does not tell.

        The kernel keeps a peak of all kinds together only. What of the others is there now is taken off, and as they only grow in a launch
        that is at least what there was at the peak: the figure may fall a little short and is never too large.
        """
        now = self._counts()
        if not self._watched or self._before is None or not {"VmHWM", *_OTHERS} <= now.keys():
            return None
        return max(0, now["VmHWM"] - sum(now[kind] for kind in _OTHERS) - self._before)

    def _counts(self) -> dict[str, int]:
        """Bytes by name, of what the kernel tells in kB."""
        found = {}
        with suppress(OSError):
            for line in (self._proc / "status").read_text().splitlines():
                name, _, value = line.partition(":")
                if value.endswith(" kB"):
                    found[name] = int(value.split()[0]) * 1024
        return found
