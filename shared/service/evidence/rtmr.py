"""The runtime register of a TDX guest, RTMR3, through the kernel's measurement files. Knows no event and no quote.

Linux 6.16 and newer, Documentation/ABI/testing/sysfs-devices-virtual-misc-tdx_guest: reading gives the value, writing 48 bytes extends:
RTMR = SHA-384(RTMR ‖ written). RTMR0 to 2 belong to firmware, kernel and system; they are left alone here.
"""

from __future__ import annotations

import errno
from pathlib import Path

from shared.canonical import sha384
from shared.errors import Conflict, Unavailable
from shared.service.logging import get_logger

FOLDER = Path("/sys/class/misc/tdx_guest/measurements")
RUNTIME = 3
REGISTER_BYTES = 48
_log = get_logger("evidence")


class RuntimeRegister:
    """RTMR3 of this guest. `folder` is the kernel's; an older kernel has none."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._file = folder / f"rtmr{RUNTIME}:sha384"

    def values(self) -> dict[int, bytes]:
        """{3: value}, 48 bytes; empty where the kernel does not offer it, or not to this user. Raises: Unavailable."""
        return {RUNTIME: self._read()} if self._file.exists() and self._may_extend() else {}

    def extend(self, register: int, digest: bytes, before: bytes) -> None:
        """Extend from `before`, and see that it was done; done already is done.

        Raises:
            Conflict: no such register, or another value: somebody else extends it. Unavailable: the kernel does not take it.
        """
        if register != RUNTIME or not self._file.exists():
            raise Conflict(f"this guest has no runtime register {register} to extend", code="no-register")
        after, now = sha384(before + digest), self._read()
        if now == after:
            return
        if now != before:
            raise Conflict("RTMR3 has another value than this process left", code="register-moved", got=now.hex())
        try:
            # One write of 48 bytes at offset 0: the kernel refuses anything else.
            with self._file.open("r+b", buffering=0) as file:
                file.write(digest)
        except OSError as error:
            raise _unusable(error) from None
        if self._read() != after:
            raise Conflict("RTMR3 was extended by somebody else at the same time", code="register-moved")

    def _may_extend(self) -> bool:
        """Opens for writing and writes nothing. A register that is shown and not extended would hold up every quote for good."""
        try:
            with self._file.open("r+b", buffering=0):
                return True
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise _unusable(error) from None
            _log.warning(
                "RTMR3 is not this service's to extend: its evidence goes without an event log, as on an older kernel",
                reason=error.strerror, remedy=f"Have the machine's root give this user {self._file.name}, and mount it to be written.",
            )  # fmt: skip
            return False

    def _read(self) -> bytes:
        try:
            value = self._file.read_bytes()
        except OSError as error:
            raise _unusable(error) from None
        if len(value) != REGISTER_BYTES:
            raise Unavailable(f"{self._file.name} has {len(value)} bytes", code="register-unusable")
        return value


def _unusable(error: OSError) -> Unavailable:
    return Unavailable(f"RTMR3 cannot be used: {error.strerror}", code="register-unusable")
