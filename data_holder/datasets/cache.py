"""What is computed from a dataset once and kept as a file that can be mapped: converted records, commitment trees. Knows neither.

A converted file holds the holder's records in the clear, beside the source that does too: kept files are readable by their owner only,
appear under their name only when whole (fsync, then rename), and replace those of the same stem that came before. Until then they are
`STEM.partial`, locked by whoever writes it: one that nobody holds was left by a process that died.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from data_holder.datasets.files import HeldFile
from data_holder.datasets.mappings import Mappings
from data_holder.datasets.options import DatasetOptions, GoOn
from shared.canonical import blake3_256
from shared.errors import ConfigurationError

RECORDS: Final = "records"
CONVERSION: Final = 2
"""Goes up when something is converted in another way: what an earlier release made is not believed, and removed. An approval remembers by
which its table was read."""
Write = Callable[[BinaryIO], None]
Mapped = Callable[[BinaryIO], NDArray[np.uint8]]
Removal = tuple[Callable[[Path], bool], Path]


def converted(
    maps: Mappings, options: DatasetOptions, source: HeldFile, recipe: bytes, write: Write
) -> NDArray[np.uint8]:
    """The mapped bytes that `write` makes of `source` under `recipe` (everything but the file that decides the bytes).

    Raises:
        UnfitData: `source` changed meanwhile. ConfigurationError: the folder cannot be used, or its disk is full.
        Whatever else `write` raises, and `options.converting` before it is called; nothing is left behind in any case.
    """

    def made(stream: BinaryIO) -> None:
        write(stream)
        source.insist()  # what was made of a torn file would be taken for that of the file that is put back as it was

    if (folder := options.cache_dir) is not None:
        stem = f"{_source(source.path)}-{CONVERSION}-{blake3_256(recipe).hex()[:16]}"
        state = repr(source.identity).encode()
        return kept(
            folder, stem, state, RECORDS, made, go_on=options.converting, mapped=lambda stream: maps.made_from(source, stream)
        )  # fmt: skip
    options.converting()
    with _usable(RECORDS), tempfile.TemporaryFile() as anonymous:
        made(anonymous)
        anonymous.flush()
        return maps.made_from(source, anonymous)


def forget_converted(folder: Path, datasets: Iterable[Path]) -> int:
    """Remove what was converted of files that belong to none of these datasets any more, or are gone, or by an earlier release, or of what
    was in them before, and what a process that died left half converted; how many files.

    Raises:
        OSError: the folder cannot be read, or a file not removed; the others are.
    """
    if not folder.is_dir():
        return 0
    known = {
        f"{_source(file)}-{CONVERSION}" for path in datasets for file in (path, *path.rglob("*")) if file.is_file()
    }
    newest, found = {}, sorted(folder.glob(f"*.{RECORDS}"), key=_made_at)
    for path in found:
        newest[_stem(path)] = path
    old = [path for path in found if path.name.rsplit("-", 2)[0] not in known or newest[_stem(path)] != path]
    return _each([*((_unlink, path) for path in old), *((_let_go, path) for path in folder.glob("*.partial"))])


def _stem(kept: Path) -> str:
    return kept.name.rpartition("-")[0]


def _made_at(kept: Path) -> int:
    try:
        return kept.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _source(path: str | Path) -> str:
    return blake3_256(os.path.realpath(path).encode("utf-8", "surrogateescape")).hex()[:24]


def kept(
    folder: Path, stem: str, state: bytes, kind: str, write: Write, *, go_on: GoOn, mapped: Mapped | None = None
) -> NDArray[np.uint8]:
    """The mapped bytes of `folder`'s file for `stem` in this `state` of its source; `write` makes them where there are none yet.

    `write` gets a file it may also write to by position. `kind` is the suffix. `go_on` is asked first, before it waits for whoever makes
    the same file already. `mapped` maps the file; by default for good, as only a file of the holder's own may be. Raises: as `converted`.
    """
    final = place(folder, stem, state, kind)
    with _usable(kind):
        if not final.exists():
            go_on()
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _make(final, folder, stem, kind, write)
        with final.open("rb") as stream:
            return (mapped or _mapped)(stream)


def discard(folder: Path, stem: str, state: bytes, kind: str) -> None:
    """Remove the file of `kept`: it is not what it is called. Raises: ConfigurationError: as `kept`."""
    with _usable(kind):
        place(folder, stem, state, kind).unlink(missing_ok=True)


def place(folder: Path, stem: str, state: bytes, kind: str) -> Path:
    """Where the file of `kept` lies, if it was made."""
    return folder / f"{stem}-{blake3_256(state).hex()[:16]}.{kind}"


def forget(folder: Path, stem: str, kind: str) -> None:
    """Remove the kept files of a stem, whatever state they are of, and what a process that died left half made.

    Raises:
        OSError: one cannot be removed; the others are.
    """
    _each([*_unlinking(folder, stem, kind), (_let_go, _partial(folder, stem))])


def _each(removals: Iterable[Removal]) -> int:
    """How many files there were. Raises: OSError: the first one's that stays, after all were tried."""
    count, failed = 0, None
    for remove, path in removals:
        try:
            count += remove(path)
        except OSError as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return count


def _unlinking(folder: Path, stem: str, kind: str) -> list[Removal]:
    return [(_unlink, path) for path in folder.glob(f"{stem}-*.{kind}")]


def _unlink(path: Path) -> bool:
    path.unlink(missing_ok=True)
    return True


def _partial(folder: Path, stem: str) -> Path:
    return folder / f"{stem}.partial"


def _make(final: Path, folder: Path, stem: str, kind: str, write: Write) -> None:
    partial = _partial(folder, stem)
    with _claimed(partial) as stream:
        if final.exists():  # whoever held it before made it
            partial.unlink()
            return
        try:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        before = _unlinking(folder, stem, kind)
        partial.rename(
            final
        )  # who claims the name from here on has another file, and what he makes of it is not among those
        with suppress(OSError):  # whoever tidies up the folder, or forgets the stem, meets it again, and says so
            _each(before)


@contextmanager
def _claimed(partial: Path) -> Iterator[BinaryIO]:
    """The file of that name, empty, and nobody else's until it is closed. Files of other names are not waited for."""
    while True:
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            if _leads_to(partial, descriptor):  # else whoever held it has renamed or removed it
                stream.truncate(0)
                yield stream
                return


def _let_go(partial: Path) -> bool:
    """Remove a half made file, unless somebody is writing it; whether it did."""
    try:
        descriptor = os.open(partial, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if ours := _leads_to(partial, descriptor):
            partial.unlink()
        return ours
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


def _leads_to(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _mapped(stream: BinaryIO) -> NDArray[np.uint8]:
    stream.flush()
    size = os.fstat(stream.fileno()).st_size
    if size == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer(mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_READ), np.uint8)


@contextmanager
def _usable(kind: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = "give a cache folder that the data holder's user may write to, with room for what is kept there"
        raise ConfigurationError(
            f"the dataset cache cannot keep {kind}: {error.strerror}", code="dataset-cache", remedy=remedy
        ) from error
