"""What a sweep takes and what it leaves: a predecessor that another session still needs, and nobody else for its sake."""

from __future__ import annotations

import errno
import io
import math
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
import sqlalchemy as sa

from orchestrator.library import Library
from orchestrator.runner import retention
from orchestrator.runner.retention import Retention
from orchestrator.sessions.removals import Removals, naming
from orchestrator.tables import PURGES, SESSIONS
from shared.claims.manifest import Contributor, Predecessor
from shared.errors import Unavailable
from shared.service import steady_clock
from shared.service.logging import configure_logging
from shared.service.statements import insert_row
from tests.orchestrator.orchestrator_samples import Room

NOW, KEEP_S = 1000.0, 100.0


def old(number: int) -> str:
    return f"s_{number:016d}"


def said_of(number: int, *holders: str) -> dict[str, Any]:
    """What of a stored session's page is read here and in lists."""
    names = [{"holder": holder} for holder in holders]
    return {"id": old(number), "gpu": "gpu-0", "phase": "COMPLETED", "waiting_for": [], "holders": names}


class Shelf:
    """Sessions that have ended, and what still needs them."""

    def __init__(self, room: Room) -> None:
        self.room = room

    async def open(self) -> None:
        self.catalogue = await self.room.catalogue()
        settings = SimpleNamespace(keep_finished_s=KEEP_S, keep_unused_s=KEEP_S, keep_removed_s=KEEP_S)
        self.house: Any = SimpleNamespace(
            store=self.room.store, catalogue=self.catalogue, library=Library(self.room.store, self.room.folder, lambda: NOW),
            removals=Removals(self.room.store), fetches=Mock(), settings=settings, clock=lambda: NOW,
            folder=lambda session: self.room.folder / session,
        )  # fmt: skip

    async def ended(self, *numbers: int) -> None:
        """Sessions that ended long ago, in this order."""
        for number in numbers:
            row = {
                "number": number, "owner": "alice", "owner_key": "", "manifest": b"", "signature": b"", "gpu": "gpu-0",
                "phase": "COMPLETED", "version": 1, "created_at": 0.0, "updated_at": float(number), "summary": said_of(number),
            }  # fmt: skip
            await self.room.store.write(lambda c, row=row: insert_row(c, SESSIONS, {"id": old(row["number"]), **row}))  # type: ignore[misc]  # mypy cannot type a lambda's default

    def model(self, number: int) -> Path:
        """Where its model lies; it does so from now on."""
        folder = self.room.folder / old(number)
        folder.mkdir()
        (folder / "model.sealed").write_bytes(b"model")
        return folder

    async def heir(self, number: int) -> None:
        """A session that goes on with that one's model, and has none of its own yet."""
        says = Predecessor(
            session=old(number), manifest="0" * 64, model="a" * 64, optimiser="0" * 64, step=9, log_size=1, log_root="0" * 64,
            contributors=(Contributor(holder="h0", key="0" * 64, records=1),),
        )  # fmt: skip
        await self.room.submitted(self.catalogue, f"s_heir{number:012d}", predecessor=says)

    async def left(self) -> set[str]:
        ended = sa.select(SESSIONS.c.id).where(SESSIONS.c.phase == "COMPLETED")
        return set(await self.room.store.read(lambda c: list(c.execute(ended).scalars())))


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configure_logging("info", "json", stream)
    yield stream
    configure_logging("warning", "json")


@pytest.fixture(autouse=True)
def settle_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these sweepers is believed at once."""
    monkeypatch.setattr(steady_clock, "SETTLE_S", 0.0)


@pytest.fixture
async def shelf(tmp_path: Path, database_url: str) -> AsyncIterator[Shelf]:
    shelf = Shelf(Room(tmp_path, database_url))
    await shelf.open()
    yield shelf
    await shelf.room.store.close()


async def test_who_is_still_needed_keeps_nobody_behind_it(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "AT_ONCE", 2)
    await shelf.ended(1, 2, 3, 4, 5, 6)
    for number in (1, 2, 3):
        await shelf.heir(number)
    sweeper = Retention(shelf.house)
    await sweeper.sweep()
    assert await shelf.left() == {old(1), old(2), old(3), old(6)}, "so many at once, and the longest first"
    await sweeper.sweep()
    assert await shelf.left() == {old(1), old(2), old(3)}


async def test_who_has_its_id_in_a_text_for_people_does_not_need_it(shelf: Shelf) -> None:
    await shelf.ended(1, 2)
    await shelf.heir(2)
    await shelf.room.submitted(shelf.catalogue, "s_namesake00000000", name=f"after {old(1)} and {old(2)}")
    await Retention(shelf.house).sweep()
    assert await shelf.left() == {old(2)}
    assert await shelf.room.store.read(lambda c: naming(c, old(2))) == [f"s_heir{2:012d}"]


async def test_one_that_is_submitted_while_its_predecessor_is_judged_keeps_it(shelf: Shelf) -> None:
    """It was read once for the judgement and once for the act: what came in between counted as judged."""

    class Meanwhile(Retention):
        submitted = False

        async def _named(self, session: str) -> list[str]:
            found = await super()._named(session)
            if not self.submitted:
                self.submitted = True
                await shelf.heir(1)
            return found

    await shelf.ended(1)
    sweeper = Meanwhile(shelf.house)
    await sweeper.sweep()
    assert sweeper.submitted
    assert await shelf.left() == {old(1)}
    assert await shelf.room.store.read(lambda c: c.execute(sa.select(PURGES)).all()) == []


async def with_holders(shelf: Shelf, number: int, *holders: str) -> None:
    summary = said_of(number, *holders)
    these = sa.update(SESSIONS).where(SESSIONS.c.id == old(number))
    await shelf.room.store.write(lambda c: c.execute(these.values(summary=summary, updated_at=NOW)))


async def test_what_a_process_died_before_it_removed_is_removed_by_the_next(shelf: Shelf) -> None:
    """The wish was written down, and the model stayed until the last holder had heard: hours, or as long as one was away."""
    await shelf.ended(1)
    await with_holders(shelf, 1, "h0")
    folder = shelf.model(1)
    assert await shelf.house.removals.ask(old(1), NOW, ())
    await Retention(shelf.house).sweep()
    assert not folder.exists()
    assert await shelf.left() == {old(1)}, "its holder has its receipts yet to fetch"
    await Retention(shelf.house).heard(old(1), "h0")
    assert await shelf.left() == set()


async def test_one_that_cannot_be_read_keeps_nobody_behind_it(shelf: Shelf) -> None:
    await shelf.ended(1, 2)
    for number in (1, 2):
        await with_holders(shelf, number)
        assert await shelf.house.removals.ask(old(number), NOW + number, ())
    folder = shelf.model(1)
    await shelf.room.store.write(lambda c: c.execute(sa.text("UPDATE sessions SET summary = '[]' WHERE number = 1")))
    await Retention(shelf.house).sweep()
    assert await shelf.left() == {old(1)}
    assert not folder.exists()


async def test_a_folder_that_is_a_link_goes_and_what_it_leads_to_is_named(shelf: Shelf, log: io.StringIO) -> None:
    """It could not be removed as a folder is, and stopped all removing for good."""
    await shelf.ended(1, 2, 3)
    elsewhere = shelf.room.folder / "another disk"
    elsewhere.mkdir()
    (elsewhere / "model.sealed").write_bytes(b"model")
    (shelf.room.folder / old(1)).symlink_to(elsewhere)
    (shelf.room.folder / old(2)).symlink_to(shelf.room.folder / "nowhere")
    folder = shelf.model(3)
    await Retention(shelf.house).sweep()
    assert await shelf.left() == set()
    assert not any((shelf.room.folder / old(number)).is_symlink() for number in (1, 2))
    assert not folder.exists()
    assert (elsewhere / "model.sealed").exists()
    assert str(elsewhere) in log.getvalue()


async def test_a_folder_that_cannot_be_removed_keeps_nothing_else(
    shelf: Shelf, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shelf.ended(1, 2, 3, 4)
    folders = {number: shelf.model(number) for number in (1, 2, 3, 4)}
    for number in (3, 4):  # which their owners want gone
        await with_holders(shelf, number)
        assert await shelf.house.removals.ask(old(number), NOW + number, ())
    remove, unused = shutil.rmtree, Mock(wraps=retention.Unused.sweep)

    def stubborn(folder: Path) -> None:
        if folder in (folders[1], folders[3]):
            raise OSError("it is held")
        remove(folder)

    async def swept(self: retention.Unused, last: float) -> list[str]:
        return await unused(self, last)  # type: ignore[no-any-return]

    monkeypatch.setattr(shutil, "rmtree", stubborn)
    monkeypatch.setattr(retention.Unused, "sweep", swept)
    sweeper = Retention(shelf.house)
    for _ in range(2):
        with pytest.raises(Unavailable, match="cannot be written: it is held") as met:
            await sweeper.sweep()
        assert met.value.code == "disk-unusable"
    assert await shelf.left() == {old(3)}
    assert [number for number, folder in folders.items() if folder.exists()] == [1, 3]
    assert unused.call_count == 2
    assert old(1) in log.getvalue()
    monkeypatch.undo()
    await sweeper.sweep()
    assert await shelf.left() == set()
    assert not any(folder.exists() for folder in folders.values())
    assert await shelf.room.store.read(lambda c: c.execute(sa.select(PURGES)).all()) == []


async def test_a_folder_of_which_the_disk_does_not_say_whether_it_is_there_is_looked_at_again(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for gone: its rows went, and nobody would have removed the files that came back with the disk."""
    await shelf.ended(1)
    folder = shelf.model(1)
    for ask in ("stat", "lstat"):
        monkeypatch.setattr(os, ask, _stale(folder, getattr(os, ask)))
    with pytest.raises(Unavailable) as met:
        await Retention(shelf.house).sweep()
    assert met.value.code == "disk-unusable"
    noted = sa.select(PURGES.c.stream)
    assert await shelf.room.store.read(lambda c: list(c.execute(noted).scalars())) == [old(1)]
    monkeypatch.undo()
    assert folder.exists()
    await Retention(shelf.house).sweep()
    assert not folder.exists()
    assert await shelf.room.store.read(lambda c: list(c.execute(noted).scalars())) == []


def _stale(folder: Path, ask: Callable[..., Any]) -> Callable[..., Any]:
    def asked(path: Any, **options: Any) -> Any:
        if path == folder:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return ask(path, **options)

    return asked


async def test_a_clock_that_is_ahead_for_a_moment_takes_nothing(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a machine's start, and while the service runs; nor does an owner's wish come true for it, for which a holder is waited for."""
    monkeypatch.setattr(retention, "roster_of", lambda row: ("h0",))
    monkeypatch.setattr(steady_clock, "SETTLE_S", KEEP_S)
    uptime, now = 0.0, NOW
    monkeypatch.setattr(shelf.house, "clock", lambda: now)
    sweeper = Retention(shelf.house)
    sweeper._steady = steady_clock.SteadyClock(lambda: now, lambda: uptime)
    uploads = AsyncMock()
    monkeypatch.setattr(sweeper._unused, "sweep", uploads)
    await shelf.ended(1)
    await shelf.house.removals.ask(old(1), 1.0, ())
    await sweeper.sweep()
    assert await shelf.left() == {old(1)}, "nothing says yet that this clock is right"
    uptime, now = KEEP_S, NOW + KEEP_S + 10 * KEEP_S
    await sweeper.sweep()
    assert await shelf.left() == {old(1)}, "it was set meanwhile"
    uptime, now = 2 * KEEP_S, now + KEEP_S
    await sweeper.sweep()
    assert not await shelf.left(), "it has gone evenly since: the machine was off for that long"
    assert [call.args[0] for call in uploads.await_args_list] == [-math.inf, -math.inf, now - KEEP_S]
