"""The agent's end of a device's memory: staging slots, and requests to the process that keeps the memory. Knows no tensor and no torch."""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from gpu_agent.compute import fabric_messages as messages
from gpu_agent.compute.environment import device_environment
from gpu_agent.hardware.address_space import pages
from gpu_agent.hardware.hbm import Extent
from shared.errors import ConfigurationError, Unavailable

START_DEADLINE_S: Final = 300.0  # imports PyTorch, makes a CUDA context, zeroes all of HBM
ANSWER_DEADLINE_S: Final = 120.0
_ZEROS: Final = bytes(messages.SLOT_BYTES)


class DeviceFabric:
    """See `hardware.device_hbm.Fabric`. Used by one caller at a time: the device's lock is over it.

    A copy into the device is asked for and not waited for, so that the next record is opened meanwhile; each further request waits for what
    was asked before it, because the keeper answers in order.

    Args:
        device: `cuda:N`; or `cpu`, the host's memory behind the same process and messages, which is there for tests.
        size: bytes of HBM; None: half of what the card has free.
    Raises:
        ConfigurationError: the device is not there, or has not that much memory.
    """

    slot_bytes: Final = messages.SLOT_BYTES

    def __init__(self, device: str, size: int | None) -> None:
        self.device = device
        self._lost = False
        self._slots_fd = _sealed_file("gpu-staging", messages.STAGING_BYTES)
        self._staging = memoryview(mmap.mmap(self._slots_fd, messages.STAGING_BYTES))
        self._used = [0] * messages.SLOTS  # bytes of each slot that hold something
        self._coming: deque[int] = deque()  # slots whose copy was asked for and not yet answered
        self._next = 0
        # What compute processes inherit: descriptors of all pieces of the memory.
        self.files = [_sealed_file("gpu-hbm", pages(size or 0))] if device == "cpu" else []
        self._process, self._link = self._spawn(pages(size or 0))
        try:
            self._link.settimeout(START_DEADLINE_S)
            hello = messages.require_done(self._greeted())
        except Unavailable as error:
            self.close()
            raise ConfigurationError(
                f"the memory of {device} cannot be had: {error.detail}", code="gpu-memory"
            ) from None
        except ConfigurationError:
            self.close()
            raise
        self._link.settimeout(ANSWER_DEADLINE_S)
        self.size: int = hello["bytes"]
        self._piece: int = hello["piece"]
        self.name: str = hello["name"]
        self.pinned: bool = hello["pinned"]
        self.hashes: bool = hello["hashes"]  # the card itself can make digests

    @property
    def pid(self) -> int:
        """Process id of the keeper."""
        return self._process.pid

    @property
    def place(self) -> str:
        """The memory in one word, by which compute processes open it (`places.opened`)."""
        return f"{self.device}/{self._piece}/{self.size}/{','.join(map(str, self.files))}"

    def _spawn(self, size: int) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fds = [*(self.files or [-1]), self._slots_fd, theirs.fileno()]
        # Uncached: what is freed goes back to the card, where the next sweep finds it.
        environment = device_environment() | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        process = subprocess.Popen(  # noqa: S603 (our own interpreter and module, arguments are a checked name and numbers)
            [sys.executable, "-m", "gpu_agent.compute.fabric_server", self.device, str(size), *map(str, fds)],
            pass_fds=[fd for fd in fds if fd >= 0],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=environment,
        )
        theirs.close()
        return process, ours

    # ------------------------------------------------------------ staging

    def landing(self, length: int) -> memoryview:
        """See `Fabric.landing`."""
        while self._next in self._coming:
            self._arrived()
        self._used[self._next] = max(self._used[self._next], length)
        return self._slot(self._next, length)

    def land(self, address: int, length: int) -> None:
        """See `Fabric.land`."""
        self._send(op="in", slot=self._next, address=address, length=length)
        self._coming.append(self._next)
        self._next = (self._next + 1) % messages.SLOTS

    def read_into(self, address: int, target: memoryview) -> None:
        """See `Fabric.read_into`. The device fills slots ahead of the one that is emptied here."""
        self._settle()
        asked: deque[tuple[int, int, int]] = deque()
        answers: list[dict[str, Any]] = []
        for number, at in enumerate(range(0, len(target), self.slot_bytes)):
            slot, length = number % messages.SLOTS, min(self.slot_bytes, len(target) - at)
            if len(asked) == messages.SLOTS:
                answers.append(self._emptied(*asked.popleft(), target))
            self._used[slot] = max(self._used[slot], length)
            self._send(op="out", slot=slot, address=address + at, length=length)
            asked.append((slot, at, length))
        while asked:
            answers.append(self._emptied(*asked.popleft(), target))
        for answer in answers:  # not before all of them are heard: the next request would take one for its own
            messages.require_done(answer)

    def _emptied(self, slot: int, at: int, length: int, target: memoryview) -> dict[str, Any]:
        answer = self._hear()
        target[at : at + length] = self._slot(slot, length)
        return answer

    def wash(self) -> None:
        """See `Fabric.wash`."""
        self._settle()
        for slot, used in enumerate(self._used):
            if used:
                self._slot(slot, used)[:] = memoryview(_ZEROS)[:used]
                self._used[slot] = 0

    def _slot(self, slot: int, length: int) -> memoryview:
        start = slot * self.slot_bytes
        return self._staging[start : start + length]

    # ------------------------------------------------------------ whole extents

    def zero(self, address: int, length: int) -> None:
        """See `Fabric.zero`."""
        self._ask(op="zero", address=address, length=length)

    def is_zero(self, address: int, length: int) -> bool:
        """See `Fabric.is_zero`."""
        return self._ask(op="is-zero", address=address, length=length)["yes"] is True

    def dirty_pages(self, address: int, length: int) -> int:
        """See `Fabric.dirty_pages`."""
        return int(self._ask(op="dirty", address=address, length=length)["pages"])

    def copy(self, target: int, source: int, length: int) -> None:
        """See `Fabric.copy`."""
        self._ask(op="copy", address=target, source=source, length=length)

    def digest(self, parts: Sequence[tuple[bytes, Extent]]) -> bytes:
        """See `Fabric.digest`. The card makes it; else, and where that is no quicker, it passes through the first two staging slots."""
        self._settle()
        passed = sum(len(head) + one.length for head, one in parts)
        card = self.hashes and passed > messages.CARD_BYTES
        for slot in () if card else (0, 1):
            self._used[slot] = max(self._used[slot], min(passed, self.slot_bytes))
        for at in range(0, max(len(parts), 1), messages.PARTS):
            some = [(head.hex(), one.address, one.length) for head, one in parts[at : at + messages.PARTS]]
            answer = self._ask(op="hash", parts=some, card=card, begins=not at, ends=at + messages.PARTS >= len(parts))
        return bytes.fromhex(answer["digest"])

    def free(self) -> int:
        """Bytes of the card that are nobody's."""
        return int(self._ask(op="free")["bytes"])

    def clear_free(self, least: int | None = None) -> int:
        """Zero, with read-back, all of the card's memory that is nobody's; its bytes.

        Args:
            least: what `free` said beside all that is alive now; None: no compute process is.
        Raises:
            VerificationFailed: it is not zero, or not all of it was to be had.
        """
        return int(self._ask(op="clear-free", least=least)["bytes"])

    def close(self) -> None:
        """See `Fabric.close`."""
        self._lost = True
        self._link.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._slots_fd >= 0:
            for fd in (self._slots_fd, *self.files):
                os.close(fd)
        self._slots_fd = -1
        self.files.clear()

    # ------------------------------------------------------------ the wire

    def _ask(self, **request: Any) -> dict[str, Any]:
        self._settle()
        self._send(**request)
        return messages.require_done(self._hear())

    def _settle(self) -> None:
        while self._coming:
            self._arrived()

    def _arrived(self) -> None:
        answer = self._hear()
        self._coming.popleft()
        messages.require_done(answer)

    def _send(self, **request: Any) -> None:
        if self._lost:
            raise _lost()
        try:
            self._link.send(messages.pack(request))
        except OSError:
            self._lost = True
            raise _lost() from None

    def _greeted(self) -> dict[str, Any]:
        """The keeper's first word, and with it what it made."""
        try:
            data, files, _, _ = socket.recv_fds(self._link, messages.MAX_MESSAGE, messages.MAX_FILES)
        except OSError:
            data, files = b"", []
        self.files.extend(files)
        for file in files:
            os.set_inheritable(file, False)  # only compute processes get it
        if not data:
            self._lost = True
            raise _lost()
        return messages.unpack(data)

    def _hear(self) -> dict[str, Any]:
        try:
            data = self._link.recv(messages.MAX_MESSAGE)
        except OSError:
            data = b""
        if not data:
            self._lost = True  # an answer that comes late would be taken for the next one's
            raise _lost()
        return messages.unpack(data)


def _lost() -> Unavailable:
    return Unavailable(
        "the process that keeps the GPU's memory is gone, and the memory with it", code="gpu-memory-lost",
        remedy="Restart the agent; sessions go on from their checkpoints.",
    )  # fmt: skip


def _sealed_file(name: str, length: int) -> int:
    """A memory file that nobody can cut short: whoever has it mapped would end with SIGBUS."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, length)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd
