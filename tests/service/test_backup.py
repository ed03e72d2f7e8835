"""A database that is written all the time is copied all the same, and its writers go on."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

from shared.service.backup import back_up
from shared.service.settings import ServiceSettings

ROWS, ROW_BYTES = 2000, 20_000
PATIENCE_S = 60.0


def _database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA journal_mode=WAL")
        made.execute("CREATE TABLE facts (id INTEGER PRIMARY KEY, body BLOB)")
        made.executemany("INSERT INTO facts (body) VALUES (?)", ((bytes(ROW_BYTES),) for _ in range(ROWS)))
        made.commit()


class _Writer(threading.Thread):
    """Commits a row each few milliseconds, as a running session does."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._path, self.enough, self.commits = path, threading.Event(), 0

    def run(self) -> None:
        with closing(sqlite3.connect(self._path, timeout=PATIENCE_S)) as connection:
            while not self.enough.wait(0.002):
                connection.execute("INSERT INTO facts (body) VALUES (?)", (bytes(2000),))
                connection.commit()
                self.commits += 1


def test_a_database_that_is_written_all_the_time_is_copied(tmp_path: Path) -> None:
    source, target = tmp_path / "service", tmp_path / "copy"
    source.mkdir()
    _database(source / "state.db")
    writer = _Writer(source / "state.db")
    writer.start()
    while not writer.commits:
        time.sleep(0.001)
    copying = threading.Thread(target=back_up, args=(ServiceSettings(data_dir=source), target), daemon=True)
    copying.start()
    copying.join(PATIENCE_S)
    hung = copying.is_alive()
    during = writer.commits
    writer.enough.set()
    writer.join()
    copying.join()
    assert not hung, "the copy began anew with each commit"
    with closing(sqlite3.connect(target / "state.db")) as copy:
        (rows,) = copy.execute("SELECT count(*) FROM facts").fetchone()
    assert ROWS < rows <= ROWS + during + 1, "of one moment while it was written"
