"""A copy of what a service keeps, taken while it runs: its SQLite database and its files. Knows no table and no file's meaning.

The database is copied by SQLite's own online backup, in one read transaction, which in WAL stops no writer: it is whole at one moment.
Files are copied before and after: what the database of that moment names was there at one of the two times. Restoring is putting the copy
in the place of data_dir while the service does not run.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from shared.errors import ConfigurationError
from shared.service.data_dir import LOCK
from shared.service.settings import ServiceSettings

LEFT_OUT = ("state.db", "state.db-wal", "state.db-shm", LOCK)
"""The database, which is copied in its own way, and what belongs to the running process."""
MADE_AGAIN = ("converted",)
"""Folders of what is made again where it is missing; a holder's of converted datasets holds records."""
FILE_SYSTEMS_OWN = "lost+found"
"""Root's alone, where data_dir is a volume's own root; no service has anything in it."""
NAMED = 5


def back_up(settings: ServiceSettings, target: Path) -> int:
    """Write a copy of the service's data_dir to the new folder `target` (mode 0700: it holds keys); how many files it has.

    Raises:
        ConfigurationError: code `backup`: data_dir is none or cannot be read, the folder exists or cannot be written, or there are
            symbolic links in data_dir, whose targets the copy would lack. (Of a PostgreSQL database there is no copy in it: that has
            tools of its own.)
    """
    source = settings.data_dir.resolve()
    if not source.is_dir():
        raise _refused(
            f"data_dir {source} is no folder", "Name the service's own by the setting data_dir, as it was started with."
        )
    if target.resolve().is_relative_to(source):
        raise _refused(f"{target} lies inside of data_dir", "Name a folder elsewhere, on another disk.")
    try:
        _refuse_links(source)
        target.mkdir(mode=0o700, parents=True)
        _copy_files(source, target)
        if settings.database_url is None:
            _copy_database(source / "state.db", target / "state.db")
        _copy_files(source, target)
    except FileExistsError:
        raise _refused(f"{target} exists", "Name a new folder for each copy.") from None
    except (OSError, sqlite3.Error) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise _refused(f"{target} cannot be written: {why}", "Check both folders, and the space on the disk.") from None
    return sum(1 for _ in _files(target))


def _refuse_links(source: Path) -> None:
    links = [str(path.relative_to(source)) for path in sorted(_below(source)) if path.is_symlink()]
    if links:
        shown = ", ".join(links[:NAMED]) + (f" and {len(links) - NAMED} more" if len(links) > NAMED else "")
        remedy = "Put what they lead to in their place, or copy data_dir by a tool of your own while the service does not run."
        raise _refused(f"data_dir has symbolic links, and a copy would lack what they lead to: {shown}", remedy)


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(_below(folder)):
        if path.is_file() and not path.is_symlink() and path.relative_to(folder).parts[0] not in MADE_AGAIN:
            yield path


def _below(folder: Path) -> Iterator[Path]:
    """Everything in it. Raises: ConfigurationError: a folder cannot be read: `rglob` would pass it over, and the copy would lack it."""

    def unread(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # removed since it was listed
            remedy = "Copy as the service's own user, or as root."
            raise _refused(f"{error.filename} cannot be read: {error.strerror}", remedy) from None

    for place, folders, files in os.walk(folder, onerror=unread):
        if Path(place) == folder and FILE_SYSTEMS_OWN in folders:
            folders.remove(FILE_SYSTEMS_OWN)
        yield from (Path(place, name) for name in (*folders, *files))


def _copy_files(source: Path, target: Path) -> None:
    for path in _files(source):
        place = target / path.relative_to(source)
        if place.name in LEFT_OUT and path.parent == source:
            continue
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = place.with_name(f"{place.name}.partial")
        try:
            shutil.copy2(path, partial)
        except FileNotFoundError:  # removed since it was listed; if it is needed, the other pass has it
            continue
        os.replace(partial, place)


def _copy_database(source: Path, target: Path) -> None:
    uri = f"{source.as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(
            new
        )  # at one go: between steps each write of the service would have it begin anew, and it might never end
        if new.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("the copy is damaged")
    target.chmod(0o600)


def _refused(detail: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"no copy was made: {detail}", code="backup", remedy=remedy)
