"""Uploads that nobody uses go, file and row; what a kept session names stays, whichever field names it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpu_agent.workload.builder import build
from orchestrator.library import Library
from orchestrator.runner.unused import Unused
from orchestrator.tables import FILES, PROGRAMS, SESSIONS
from shared.canonical import sha256
from shared.claims.archive import open_archive
from shared.claims.manifest import Validation
from shared.errors import Conflict
from tests.orchestrator.orchestrator_samples import KNOWN, Room, manifest

DAY = 86_400.0


class Shelf:
    """A library whose clock the test sets, and what is in it: rows and files."""

    def __init__(self, room: Room) -> None:
        self.room, self.now = room, 0.0
        self.library = Library(room.store, room.folder, lambda: self.now)
        self.unused = Unused(room.store, self.library)

    async def file(self, kind: str, data: bytes) -> str:
        spooled = self.room.folder / "spooled"
        spooled.write_bytes(data)
        await self.library.add_file(kind, sha256(data).hex(), spooled)
        return sha256(data).hex()

    async def program(self, hidden: int) -> str:
        archive, _ = build("classifier", features=4, classes=2, hidden=(hidden,))
        digest = open_archive(archive).digest.hex()
        await self.library.add_program(digest, archive)
        return digest

    async def rows(self) -> set[str]:
        statements = (sa.select(FILES.c.digest), sa.select(PROGRAMS.c.digest))
        return set(await self.room.store.read(lambda c: [d for s in statements for d in c.execute(s).scalars()]))

    def files(self) -> int:
        return sum(
            path.is_file()
            for kind in ("programs", "weights", "validation")
            for path in (self.room.folder / kind).glob("*")
        )


@pytest.fixture
async def shelf(tmp_path: Path) -> AsyncIterator[Shelf]:
    room = Room(tmp_path)
    await room.store.open()
    yield Shelf(room)
    await room.store.close()


async def test_what_no_session_names_goes_when_it_is_due(shelf: Shelf) -> None:
    old = {await shelf.file("weights", b"old"), await shelf.file("validation", b"old"), await shelf.program(4)}
    shelf.now = 2 * DAY
    young = {await shelf.file("weights", b"young"), await shelf.program(5)}
    assert set(await shelf.unused.sweep(last=DAY)) == old
    assert await shelf.rows() == young
    assert shelf.files() == len(young)
    assert await shelf.unused.sweep(last=DAY) == []


async def test_an_upload_again_counts_as_use(shelf: Shelf) -> None:
    again = await shelf.file("weights", b"again")
    shelf.now = 2 * DAY
    await shelf.file("weights", b"again")
    assert await shelf.unused.sweep(last=DAY) == []
    assert await shelf.rows() == {again}


async def test_what_a_session_names_stays_as_long_as_the_session(shelf: Shelf) -> None:
    weights, validation = await shelf.file("weights", b"w"), await shelf.file("validation", b"v" * 8)
    program = await shelf.program(4)
    catalogue = await shelf.room.catalogue()
    held_out = Validation(dataset=validation, records=1)
    await shelf.room.submitted(catalogue, program=program, initial_weights=weights, validation=held_out)
    assert await shelf.unused.sweep(last=DAY) == []
    await shelf.room.store.write(lambda c: c.execute(sa.delete(SESSIONS)))
    assert set(await shelf.unused.sweep(last=DAY)) == {program, weights, validation}
    assert shelf.files() == 0


async def test_weights_that_a_kept_program_begins_with_stay(shelf: Shelf) -> None:
    weights = await shelf.file("weights", b"w")
    shelf.now = 2 * DAY
    program = await shelf.program(4)
    summary = {"digest": program, "initial_weights": {"kind": "file", "sha256": weights}}
    await shelf.room.store.write(lambda c: c.execute(sa.update(PROGRAMS).values(summary=summary)))
    assert await shelf.unused.sweep(last=DAY) == []
    assert await shelf.unused.sweep(last=3 * DAY) == [program, weights], "what only a program names goes with it"


async def test_a_file_whose_row_is_gone_goes_too(shelf: Shelf) -> None:
    """As a process leaves it that was killed between row and file."""
    await shelf.file("weights", b"w")
    await shelf.room.store.write(lambda c: c.execute(sa.delete(FILES)))
    await shelf.unused.sweep(last=-1.0)
    assert shelf.files() == 0


async def test_no_session_is_created_over_what_was_just_removed(shelf: Shelf) -> None:
    catalogue = await shelf.room.catalogue()
    named = manifest()
    with pytest.raises(Conflict, match="removed just now"):
        await catalogue._create("s_b", named, KNOWN, named.canonical(), b"", "alice", bytes(32), "gpu-0", None)
