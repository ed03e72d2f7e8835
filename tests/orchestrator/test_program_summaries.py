"""What the library says of a program: elements of its parameters and how many tensors hold them; also where an older release stored it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from orchestrator.api.deps import parts_of
from orchestrator.tables import PROGRAMS
from shared.errors import VerificationFailed
from tests.orchestrator.orchestrator_world import ARCHIVE, PROGRAM, World, prepared

PATH = f"/v1/programs/{PROGRAM}"


def stored_by_an_older_release(world: World) -> None:
    """It had one number, and that was how many tensors there are."""
    (database,) = (world.folder / "data").rglob("*.db")
    engine = sa.create_engine(f"sqlite:///{database}")
    with engine.begin() as connection:
        summary: dict[str, Any] = dict(connection.execute(sa.select(PROGRAMS.c.summary)).scalar_one())
        summary["parameters"] = summary.pop("parameter_tensors")
        connection.execute(sa.update(PROGRAMS).values(summary=summary))
    engine.dispose()


async def test_parameters_are_elements(world: World) -> None:
    owner = await prepared(world)
    said = (await owner.get(PATH)).json()
    assert (said["parameters"], said["parameter_tensors"]) == (2, 1)


async def test_what_an_older_release_stored_is_said_anew(world: World) -> None:
    owner = await prepared(world)
    before = (await owner.get(PATH)).json()
    stored_by_an_older_release(world)
    assert (await owner.get(PATH)).json() == before
    assert (await owner.get("/v1/programs")).json()["items"] == [before]


async def test_a_damaged_archive_takes_no_list_away(world: World) -> None:
    owner = await prepared(world)
    before = (await owner.get(PATH)).json()
    stored_by_an_older_release(world)
    (archive,) = (path for path in (world.folder / "data").rglob("programs/*") if path.is_file())
    archive.chmod(0o600)
    archive.write_bytes(b"another")
    assert (await owner.get("/v1/programs")).json()["items"] == [before | {"parameters": None}]


async def test_an_archive_is_read_once_and_what_was_hashed_is_used(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is the platform's: at the second reading there lay another."""
    await prepared(world)
    read, reads = Path.read_bytes, list[Path]()

    def swapped(path: Path) -> bytes:
        data = read(path)
        if path.parent.name == "programs":
            reads.append(path)
            path.chmod(0o600)
            path.write_bytes(b"another")
        return data

    monkeypatch.setattr(Path, "read_bytes", swapped)
    library = parts_of(world.app).library
    assert await library.archive_bytes(PROGRAM) == ARCHIVE
    assert len(reads) == 1
    with pytest.raises(VerificationFailed) as refusal:
        await library.archive_bytes(PROGRAM)
    assert refusal.value.code == "stored-file-changed"
