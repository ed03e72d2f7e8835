"""The kernel's side of configfs-tsm, in memory, behind the functions of `os`: what drivers/virt/coco and fs/configfs do. Knows no test.

Faithful where it matters: `generation` counts every write to any option; a binary attribute is taken over at close, whose result nobody
hears; attributes are write-only or read-only; a report is made when it is first read after a change; errors are the kernel's. What is made
there is root's, whoever made it: others write to what root gave them, and read all that can be read.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

ROOT = "/sys/kernel/config/tsm/report"
MAX_IN, MAX_OUT, MAX_PRIVLEVEL = 64, 32 * 1024, 3
COMMON = {"generation": "r", "provider": "r", "inblob": "w", "outblob": "r"}
VISIBLE = {
    "tdx_guest": COMMON,
    "sev_guest": {**COMMON, "auxblob": "r", "privlevel": "w", "privlevel_floor": "r"},
    "arm_cca_guest": COMMON,
}
BINARY = ("inblob", "outblob", "auxblob")
Maker = Callable[[bytes, int], tuple[bytes, bytes]]
"""(inblob, privilege level) -> (outblob, auxblob), or OSError."""


def failure(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@dataclass
class Entry:
    """One report entry's state."""

    write_generation: int = 0
    read_generation: int = 0
    privlevel: int = 0
    inblob: bytes = b""
    made: tuple[bytes, bytes] | None = None
    owners: dict[str, int] = field(default_factory=dict)
    """Attribute -> user, where it is not root."""


@dataclass
class Opened:
    """One open attribute."""

    entry: Entry
    attribute: str
    flags: int
    written: bytes | None = None
    content: bytes | None = None
    at: int = 0


@dataclass
class FakeTsm:
    """A kernel with one loaded provider; `name` None: none is. `before_read` runs before an attribute's first read (an intruder).
    `user`: who calls."""

    name: str | None
    make: Maker
    privlevel_floor: int = 0
    root: str = ROOT
    before_read: Callable[[str, Entry], None] | None = None
    mkdir_error: int = 0
    rmdir_error: int = 0
    user: int = 0
    entries: dict[str, Entry] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    opened: dict[int, Opened] = field(default_factory=dict)
    _next: int = 1000
    _lock: threading.RLock = field(default_factory=threading.RLock)

    # ------------------------------------------------------------- as in `os`

    def mkdir(self, path: str, mode: int = 0o777, /) -> None:
        parent, _, name = path.rpartition("/")
        with self._lock:
            if parent != self.root or not name:
                raise failure(errno.ENOENT)
            if error := self.mkdir_error or (self.user and errno.EACCES):
                raise failure(error)
            if name in self.entries:
                raise failure(errno.EEXIST)
            if self.name is None:
                raise failure(errno.ENXIO)
            self.entries[name] = Entry()
            self.log.append("mkdir")

    def rmdir(self, path: str, /) -> None:
        with self._lock:
            if error := self.rmdir_error or (self.user and errno.EACCES):
                raise failure(error)
            self._entry(path)
            del self.entries[path.rpartition("/")[2]]
            self.log.append("rmdir")

    def open(self, path: str, flags: int, /) -> int:
        folder, _, attribute = path.rpartition("/")
        with self._lock:
            entry = self._entry(folder)
            rights = VISIBLE[self.name or "tdx_guest"].get(attribute)
            if rights is None:
                raise failure(errno.ENOENT)
            if {os.O_RDONLY: "r", os.O_WRONLY: "w"}.get(flags & os.O_ACCMODE) != rights:
                raise failure(errno.EACCES)
            if rights == "w" and self.user not in (0, entry.owners.get(attribute, 0)):
                raise failure(errno.EACCES)
            self._next += 1
            self.opened[self._next] = Opened(entry, attribute, flags)
            return self._next

    def read(self, fd: int, length: int, /) -> bytes:
        file = self.opened[fd]
        if file.content is None:
            if self.before_read is not None:
                self.before_read(file.attribute, file.entry)
            with self._lock:
                file.content = self._show(file.entry, file.attribute)
        part = file.content[file.at : file.at + length]
        file.at += len(part)
        return part

    def write(self, fd: int, data: bytes, /) -> int:
        file = self.opened[fd]
        with self._lock:
            if file.attribute in BINARY:
                if len(file.written or b"") + len(data) > MAX_IN:
                    raise failure(errno.EFBIG)
                file.written = (file.written or b"") + data
            else:
                self._store(file.entry, data)
        return len(data)

    def close(self, fd: int, /) -> None:
        file = self.opened.pop(fd)
        with self._lock:
            # The result of a binary attribute's write is thrown away by the kernel.
            if file.written is not None and self._advance(file.entry):
                file.entry.inblob = file.written
                self.log.append(f"inblob {len(file.written)}")

    # ------------------------------------------------------------- behind it

    def give(self, name: str, user: int, attributes: Iterable[str] = ("inblob", "privlevel")) -> None:
        """Root makes an entry, and gives these attributes to somebody."""
        self.entries[name] = Entry(owners=dict.fromkeys(attributes, user))

    def intrude(self, entry: Entry, data: bytes) -> None:
        """Another program writes to the entry."""
        with self._lock:
            self._advance(entry)
            entry.inblob = data

    def _entry(self, folder: str) -> Entry:
        parent, _, name = folder.rpartition("/")
        if parent != self.root or name not in self.entries:
            raise failure(errno.ENOENT)
        return self.entries[name]

    def _advance(self, entry: Entry) -> bool:
        if entry.write_generation == entry.read_generation - 1:
            return False
        entry.write_generation += 1
        return True

    def _store(self, entry: Entry, data: bytes) -> None:
        if not data.strip().isdigit() or not self.privlevel_floor <= int(data) <= MAX_PRIVLEVEL:
            raise failure(errno.EINVAL)
        if not self._advance(entry):
            raise failure(errno.EBUSY)
        entry.privlevel = int(data)
        self.log.append(f"privlevel {entry.privlevel}")

    def _show(self, entry: Entry, attribute: str) -> bytes:
        if attribute == "generation":
            return b"%d\n" % entry.write_generation
        if self.name is None:
            raise failure(errno.ENXIO)
        if attribute == "provider":
            return self.name.encode() + b"\n"
        if attribute == "privlevel_floor":
            return b"%d\n" % self.privlevel_floor
        blob = self._report(entry)[BINARY.index(attribute) - 1]
        if len(blob) > MAX_OUT:
            raise failure(errno.EFBIG)
        return blob

    def _report(self, entry: Entry) -> tuple[bytes, bytes]:
        if not entry.inblob:
            raise failure(errno.EINVAL)
        if entry.made is None or entry.read_generation != entry.write_generation:
            entry.made = None
            if len(entry.inblob) != MAX_IN:
                raise failure(errno.EINVAL)
            entry.made = self.make(entry.inblob, entry.privlevel)
            entry.read_generation = entry.write_generation
            self.log.append("report")
        return entry.made
