"""Files of a dataset: found, and opened without leaving their folder. Knows no format and reads nothing but a file's head.

A file is remembered by device, inode, size and modification time: what is read of it counts only while these are the same.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from data_holder.datasets.findings import UnfitData, refusal

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # O_NONBLOCK: a FIFO must not stop us


def shown(name: str) -> str:
    """A file name that can be printed: undecodable bytes and control characters are replaced."""
    text = name.encode("utf-8", "replace").decode("utf-8")
    return "".join(c if c.isprintable() else "?" for c in text)


Identity = tuple[int, int, int, int]


@dataclass(frozen=True)
class HeldFile:
    """A regular file as it was when the dataset was opened. `name` is for people, `size` in bytes."""

    path: str
    name: str
    size: int
    identity: Identity
    follow: bool

    def changed(self) -> UnfitData:
        """The error that says so."""
        return refusal("data-changed", "was changed or replaced after the dataset was opened", self.name,
                       remedy="open the dataset again; data of a running session must stay as it is")  # fmt: skip

    def insist(self) -> None:
        """The path still leads to the very file that was held, as it was. Raises: UnfitData."""
        try:
            status = os.stat(self.path, follow_symlinks=self.follow)
        except OSError:
            raise self.changed() from None
        if _identity(status) != self.identity:
            raise self.changed()

    def open(self) -> int:
        """A descriptor for reading the very file that was held, as it was. Raises: UnfitData."""
        descriptor, status = _open(self.path, self.name, self.follow)
        if _identity(status) != self.identity:
            os.close(descriptor)
            raise self.changed()
        return descriptor


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _open(path: str, name: str, follow: bool) -> tuple[int, os.stat_result]:
    try:
        descriptor = os.open(path, _FLAGS if follow else _FLAGS | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise refusal("data-not-found", "there is no such file", name, remedy="check the path") from None
    except OSError as error:
        reason = f"cannot be opened: {error.strerror}"
        raise refusal("data-unreadable", reason, name, remedy="let the data holder's user read it") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise refusal("data-unreadable", "is not a regular file", name, remedy="remove it or name files by suffix")
    return descriptor, status


def hold(path: Path | str, name: str | None = None, *, follow: bool = True) -> HeldFile:
    """Open `path` once to learn that it is a readable regular file, and remember which.

    `follow` False refuses a symbolic link at the last component (files inside a folder).

    Raises:
        UnfitData: absent, unreadable, or not a regular file.
    """
    name = shown(name or Path(path).name)
    descriptor, status = _open(str(path), name, follow)
    os.close(descriptor)
    return HeldFile(str(path), name, status.st_size, _identity(status), follow)


def bytes_of(path: Path) -> int | None:
    """Of a dataset's one file, or of its folder; None where a folder holds what no reader may read, or cannot be listed. Nothing is read.

    Raises:
        UnfitData: as `hold`, of one file.
    """
    if not path.is_dir():
        return hold(path).size
    try:
        return sum(file.size for file in list_files(path))
    except UnfitData:
        return None  # which files count is for the reader that is chosen to say


def head(file: HeldFile, count: int) -> bytes:
    """The first `count` bytes of the file, fewer at its end."""
    descriptor, _ = _open(file.path, file.name, file.follow)
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(count)


def list_files(root: Path, suffixes: tuple[str, ...] = ()) -> list[HeldFile]:
    """The regular files under `root`, sorted by the bytes of their relative path; dot-files and dot-folders are left out.

    Symbolic links are never followed: one that stays inside `root` is skipped, because its target is there anyway; one
    that leads out is refused, because the operator may believe that its target is part of the dataset.

    Raises:
        UnfitData: a link that leads out, an unreadable folder or file, something that is no file, or nothing at all.
    """
    base = os.path.realpath(root)
    found: list[str] = []
    for folder, subfolders, names in os.walk(root, onerror=_unreadable_folder):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        links = [name for name in (*subfolders, *names) if os.path.islink(os.path.join(folder, name))]
        for name in links:
            _stays_inside(base, os.path.join(folder, name), root)
        found += [os.path.join(folder, name) for name in names if _wanted(name, suffixes) and name not in links]
    relative = {path: os.path.relpath(path, root) for path in found}
    found.sort(key=lambda path: os.fsencode(relative[path]))
    if not found:
        wanted = f" ending in {' or '.join(suffixes)}" if suffixes else ""
        raise refusal("data-empty", f"the folder holds no files{wanted}", shown(root.name))
    return [hold(path, relative[path], follow=False) for path in found]


def _wanted(name: str, suffixes: tuple[str, ...]) -> bool:
    return not name.startswith(".") and (not suffixes or name.endswith(suffixes))


def _stays_inside(base: str, link: str, root: Path) -> None:
    target = os.path.realpath(link)
    if os.path.commonpath([base, target]) != base:
        name = shown(os.path.relpath(link, root))
        raise refusal("data-link-escapes", "is a symbolic link that leads out of the folder", name,
                      remedy="copy its target into the folder, or remove the link")  # fmt: skip


def _unreadable_folder(error: OSError) -> None:
    name = shown(os.path.basename(str(error.filename)))
    raise refusal("data-unreadable", f"folder cannot be read: {error.strerror}", name) from None
