"""A dataset converted once into a file that can be mapped. Knows neither source format nor record.

The converted file holds the holder's records in the clear, beside the source that does too: it is readable by its owner only, appears
under its name only when whole (fsync, then rename), and replaces the conversions of the same source that came before it.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from data_holder.datasets.files import HeldFile
from data_holder.datasets.mappings import Mappings
from shared.canonical import blake3_256
from shared.errors import ConfigurationError

Write = Callable[[BinaryIO], None]


def converted(maps: Mappings, folder: Path | None, source: HeldFile, recipe: bytes, write: Write) -> NDArray[np.uint8]:
    """The mapped bytes that `write` makes of `source` under `recipe` (everything but the file that decides the bytes).

    Raises:
        ConfigurationError: the folder cannot be used, or its disk is full.
        Whatever else `write` raises; nothing is left behind in either case.
    """
    try:
        if folder is None:
            with tempfile.TemporaryFile() as anonymous:
                write(anonymous)
                anonymous.flush()
                return maps.made_from(source, anonymous)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two processes must not convert the same source into one file
            return _kept(maps, folder, source, recipe, write)
        finally:
            os.close(lock)
    except OSError as error:
        reason = f"{source.name} cannot be converted into the dataset cache: {error.strerror}"
        remedy = "give a cache folder that the data holder's user may write to, with room for the converted records"
        raise ConfigurationError(reason, code="dataset-cache", remedy=remedy) from error


def _kept(maps: Mappings, folder: Path, source: HeldFile, recipe: bytes, write: Write) -> NDArray[np.uint8]:
    stem = blake3_256(os.path.realpath(source.path).encode("utf-8", "surrogateescape") + b"\0" + recipe).hex()[:24]
    state = blake3_256(repr(source.identity).encode()).hex()[:16]
    final, partial = folder / f"{stem}-{state}.records", folder / f"{stem}.partial"
    if not final.exists():
        try:
            descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                write(stream)
                stream.flush()
                os.fsync(stream.fileno())
            partial.rename(final)
        finally:
            partial.unlink(missing_ok=True)
        for old in folder.glob(f"{stem}-*.records"):
            if old != final:
                old.unlink()
    with final.open("rb") as stream:
        return maps.made_from(source, stream)
