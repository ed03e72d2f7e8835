"""Files on the untrusted disk: written atomically, named by their digest, checked when read. Knows no table and no meaning."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from shared.errors import NotFound, VerificationFailed
from shared.service.data_dir import unreadable, unwritable
from shared.service.threads import aside

PIECE = 1024 * 1024


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file that appears whole or not at all: temporary name, fsync, rename, fsync of the folder.

    Raises:
        Unavailable: the disk is full (code `disk-full`) or not writable (`disk-unusable`); nothing half-done stays behind.
    """
    # Not by process id: two containers that share a folder have the same one.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with suppress(FileNotFoundError, NotADirectoryError):
            temporary.unlink()


@asynccontextmanager
async def large_file(path: Path) -> AsyncIterator[BinaryIO]:
    """`atomic_file`, for what takes the disk longer than an event loop can stand still: it is waited for on a thread. Raises: as
    `atomic_file`.
    """
    making = atomic_file(path)
    file = making.__enter__()
    try:
        yield file
    except BaseException as error:
        making.__exit__(type(error), error, error.__traceback__)
        raise
    await aside(making.__exit__, None, None, None)


def write_atomically(path: Path, data: bytes) -> None:
    """`data` as the whole content of `path`; see `atomic_file`."""
    with atomic_file(path) as file:
        file.write(data)


def remembered(path: Path, make: Callable[[], str]) -> str:
    """The text in `path`, made and written there at first use. Raises: Unavailable: as `atomic_file`."""
    if not path.exists():
        write_atomically(path, make().encode())
    return path.read_text().strip()


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """While `path` is read: a disk that fails is no verdict on what lies there. Raises: Unavailable: `disk-unusable`."""
    try:
        yield
    except OSError as error:
        raise unreadable(path, error) from error


def is_there(path: Path) -> bool:
    """Whether `path` is a file. Raises: Unavailable: the disk does not say (`disk-unusable`)."""
    with reading(path):
        try:
            return stat.S_ISREG(path.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False


def sweep(folder: Path) -> None:
    """Remove what a killed process left half-written: uploads, and files that never got their name.

    Raises:
        Unavailable: the folder cannot be written.
    """
    for leftover in (*folder.glob("uploads/upload-*"), *folder.rglob(".*.partial")):
        try:
            leftover.unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(leftover, error) from error


def file_digest(path: Path, algorithm: str) -> str:
    """Hex digest of a whole file, read in pieces. Raises: Unavailable: as `reading`."""
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


class CheckedFile:
    """A file that is read once, from its beginning to its end; at the end it must have been the one of this SHA-256.

    Args:
        head: the file's first bytes, where they were read before: these count, and not what the disk shows now.

    Raises:
        Unavailable: as `reading`; so do `read` and the end.
    """

    def __init__(self, path: Path, sha256: str, head: bytes = b"") -> None:
        self._path, self._expected, self._hash = path, sha256, hashlib.sha256(head)
        with reading(path):
            self._file = path.open("rb")
            self._file.seek(len(head))

    def read(self, count: int) -> bytes:
        """The next bytes: `count` of them unless the file ends, none at its end."""
        with reading(self._path):
            data = self._file.read(count)
        self._hash.update(data)
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close it; on the usual way out, after the rest was read, too.

        Raises:
            VerificationFailed: it was another file (code `stored-file-changed`).
        """
        try:
            while kind is None and self.read(PIECE):
                pass
        finally:
            self._file.close()
        if kind is None and self._hash.hexdigest() != self._expected:
            raise _changed(self._expected, self._hash.hexdigest())


def _changed(expected: str, got: str) -> VerificationFailed:
    return VerificationFailed(
        "A stored file was changed on disk", code="stored-file-changed", expected=expected, got=got
    )


class DigestStore:
    """A folder of files named by the digest of their bytes; the name is believed only after it was computed again."""

    def __init__(self, folder: Path, algorithm: str) -> None:
        self._folder = folder
        self._algorithm = algorithm

    def path(self, digest: str) -> Path:
        """Where a digest's file is or would be."""
        return self._folder / digest

    def adopt(self, spooled: Path, digest: str) -> int:
        """Move a spooled upload in under its digest; answers its size in bytes.

        Raises:
            VerificationFailed: the bytes are not what the name says (code `digest-mismatch`).
        """
        got = file_digest(spooled, self._algorithm)
        if got != digest:
            raise VerificationFailed(
                "The uploaded bytes do not have the digest in the path",
                code="digest-mismatch", remedy="Upload under the digest of the file's own bytes.",
                expected=digest, got=got,
            )  # fmt: skip
        size = spooled.stat().st_size
        with spooled.open("rb") as source, atomic_file(self.path(digest)) as target:
            while piece := source.read(PIECE):
                target.write(piece)
        return size

    def put(self, data: bytes, digest: str) -> None:
        """Store bytes whose digest the caller has computed."""
        write_atomically(self.path(digest), data)

    def open(self, digest: str) -> Path:
        """The verified file.

        Raises:
            NotFound: no such file. VerificationFailed: somebody changed it on disk (code `stored-file-changed`).
        """
        path = self.find(digest)
        got = file_digest(path, self._algorithm)
        if got != digest:
            raise _changed(digest, got)
        return path

    def find(self, digest: str) -> Path:
        """The file, unverified: for whoever checks what it reads (`CheckedFile`). Raises: NotFound. Unavailable: as `is_there`."""
        path = self.path(digest)
        if not is_there(path):
            raise NotFound(f"No stored file has the digest {digest}", code="file-not-found", remedy="Upload it first.")
        return path

    def keep_only(self, digests: Collection[str]) -> None:
        """Remove every other file, but those that are just being written. Raises: Unavailable."""
        if not self._folder.is_dir():
            return
        for path in self._folder.iterdir():
            if path.name not in digests and not path.name.startswith("."):
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise unwritable(path, error) from error
