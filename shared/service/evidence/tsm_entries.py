"""Report entries of configfs-tsm: one made for each question, or one that the machine's root made for this service. Knows no evidence.

The kernel gives whatever is made there to root, and an entry's questions (`inblob`) may be written by their owner alone: a service that
is not root can make no entry that it could use. An attribute keeps the owner that root gives it, for as long as the entry is there.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from shared.errors import ConfigurationError
from shared.service.logging import get_logger

COMMANDS = "deploy/compose/README.md has the commands"
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)
_log = get_logger("evidence")


class Files(Protocol):
    """What of the module `os` is used; tests put the kernel's side here."""

    def mkdir(self, path: str, mode: int = ..., /) -> None: ...
    def rmdir(self, path: str, /) -> None: ...
    def open(self, path: str, flags: int, /) -> int: ...
    def read(self, fd: int, length: int, /) -> bytes: ...
    def write(self, fd: int, data: bytes, /) -> int: ...
    def close(self, fd: int, /) -> None: ...


class Entries(Protocol):
    """Where questions are asked."""

    def taken(self) -> AbstractContextManager[str]:
        """An entry's path, nobody else's of this process meanwhile. Raises: OSError."""
        ...

    def absent(self, error: OSError) -> ConfigurationError:
        """What a start says when the first use ended so, and what to do."""
        ...


class OwnEntries:
    """An entry of our own for each question, so that nobody else has a reason to write into it."""

    def __init__(self, folder: str, files: Files) -> None:
        self._folder, self._files = folder, files

    @contextmanager
    def taken(self) -> Iterator[str]:
        entry = f"{self._folder}/gput-{os.getpid()}-{secrets.token_hex(8)}"
        self._files.mkdir(entry, 0o700)
        try:
            yield entry
        finally:
            try:
                self._files.rmdir(entry)
            except OSError as error:
                _log.warning("a report entry stays behind", entry=entry, reason=error.strerror)

    def absent(self, error: OSError) -> ConfigurationError:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return _refusal(
                f"{self._folder} is no configfs-tsm folder, so this is no confidential VM or its kernel is not set up",
                "Run in a TDX or SEV-SNP guest with Linux 6.7 or newer, and mount configfs at /sys/kernel/config.",
            )
        remedy = f"Run as root; or have root make an entry for this user, and name it: configfs-tsm:#NAME ({COMMANDS})."
        return _unasked(self._folder, error, remedy)


class GivenEntry:
    """One entry that root made and gave this service the right to write to; questions wait for one another."""

    def __init__(self, folder: str, name: str) -> None:
        self._entry, self._turn = f"{folder}/{name}", threading.Lock()

    @contextmanager
    def taken(self) -> Iterator[str]:
        with self._turn:
            yield self._entry

    def absent(self, error: OSError) -> ConfigurationError:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return _refusal(
                f"there is no report entry {self._entry}",
                f"Have the machine's root make it at each boot, before this service starts: {COMMANDS}.",
            )
        asked = f"{self._entry}/inblob, and {self._entry}/privlevel if it is there"
        return _unasked(self._entry, error, f"Have the machine's root give user {os.getuid()} {asked}: {COMMANDS}.")


def _unasked(path: str, error: OSError, if_not_allowed: str) -> ConfigurationError:
    if error.errno == errno.ENXIO:
        return _refusal(
            f"no evidence provider is loaded behind {path}",
            "Load the kernel module tdx_guest or sev-guest in this guest.",
        )
    return _refusal(
        f"the kernel at {path} cannot be asked for evidence: {error.strerror}",
        if_not_allowed if error.errno in _NOT_ALLOWED else "See the kernel's log.",
    )


def _refusal(detail: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(detail, code="evidence-backend", remedy=remedy)
