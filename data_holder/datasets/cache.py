"""What is computed from a dataset once and kept as a file that can be mapped: converted records, commitment trees. Knows neither.

A converted file holds the holder's records in the clear, beside the source that does too: kept files are readable by their owner only,
appear under their name only when whole (fsync, then rename), and replace those of the same stem that came before.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from data_holder.datasets.files import HeldFile
from data_holder.datasets.mappings import Mappings
from shared.canonical import blake3_256
from shared.errors import ConfigurationError

RECORDS: Final = "records"
Write = Callable[[BinaryIO], None]
Mapped = Callable[[BinaryIO], NDArray[np.uint8]]


def converted(maps: Mappings, folder: Path | None, source: HeldFile, recipe: bytes, write: Write) -> NDArray[np.uint8]:
    """The mapped bytes that `write` makes of `source` under `recipe` (everything but the file that decides the bytes).

    Raises:
        ConfigurationError: the folder cannot be used, or its disk is full.
        Whatever else `write` raises; nothing is left behind in either case.
    """
    if folder is not None:
        stem = f"{_source(source.path)}-{blake3_256(recipe).hex()[:16]}"
        return kept(
            folder,
            stem,
            repr(source.identity).encode(),
            RECORDS,
            write,
            lambda stream: maps.made_from(source, stream),
        )
    try:
        with tempfile.TemporaryFile() as anonymous:
            write(anonymous)
            anonymous.flush()
            return maps.made_from(source, anonymous)
    except OSError as error:
        raise _unusable(RECORDS, error) from error


def forget_converted(folder: Path, datasets: Iterable[Path]) -> int:
    """Remove what was converted of files that belong to none of these datasets any more, or are gone; how many files.

    Raises:
        OSError: the folder cannot be read or written.
    """
    if not folder.is_dir():
        return 0
    known = {_source(file) for path in datasets for file in (path, *path.rglob("*")) if file.is_file()}
    strange = [path for path in folder.glob(f"*.{RECORDS}") if path.name.split("-")[0] not in known]
    for path in strange:
        path.unlink(missing_ok=True)
    return len(strange)


def _source(path: str | Path) -> str:
    return blake3_256(os.path.realpath(path).encode("utf-8", "surrogateescape")).hex()[:24]


def kept(
    folder: Path, stem: str, state: bytes, kind: str, write: Write, mapped: Mapped | None = None
) -> NDArray[np.uint8]:
    """The mapped bytes of `folder`'s file for `stem` in this `state` of its source; `write` makes them where there are none yet.

    `write` gets a file it may also write to by position. `kind` is the suffix. `mapped` maps the file; by default for good, as only a
    file of the holder's own may be. Raises: as `converted`.
    """
    final = place(folder, stem, state, kind)
    try:
        if not final.exists():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)  # two writers must not make one file
                _make(final, folder / f"{stem}.partial", write)
                dropped(folder, stem, kind, but=final)
            finally:
                os.close(lock)
        with final.open("rb") as stream:
            return (mapped or _mapped)(stream)
    except OSError as error:
        raise _unusable(kind, error) from error


def place(folder: Path, stem: str, state: bytes, kind: str) -> Path:
    """Where the file of `kept` lies, if it was made."""
    return folder / f"{stem}-{blake3_256(state).hex()[:16]}.{kind}"


def dropped(folder: Path, stem: str, kind: str, *, but: Path | None = None) -> None:
    """Remove the kept files of a stem, whatever state they are of."""
    for old in folder.glob(f"{stem}-*.{kind}"):
        if old != but:
            old.unlink(missing_ok=True)


def _make(final: Path, partial: Path, write: Write) -> None:
    if final.exists():  # whoever held the lock before made it
        return
    try:
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        partial.rename(final)
    finally:
        partial.unlink(missing_ok=True)


def _mapped(stream: BinaryIO) -> NDArray[np.uint8]:
    stream.flush()
    size = os.fstat(stream.fileno()).st_size
    if size == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer(mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_READ), np.uint8)


def _unusable(kind: str, error: OSError) -> ConfigurationError:
    remedy = "give a cache folder that the data holder's user may write to, with room for what is kept there"
    return ConfigurationError(
        f"the dataset cache cannot keep {kind}: {error.strerror}", code="dataset-cache", remedy=remedy
    )
