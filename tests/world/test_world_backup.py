"""A backup taken while the services run, everything lost, the copies put back: the session goes on to the same model."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from data_holder.settings import HolderSettings
from orchestrator.settings import OrchestratorSettings
from shared.errors import ConfigurationError
from shared.service.app import service_state
from shared.service.backup import back_up
from shared.service.settings import ServiceSettings
from tests.world.world import NewWorld, World
from tests.world.world_recording import Recording

ORCH, CITY = "orchestrator", "holder-city"


def _settings(world: World, service: str) -> ServiceSettings:
    app = world[service].app
    assert app is not None
    found = service_state(app).settings
    assert isinstance(found, OrchestratorSettings | HolderSettings)
    return found


async def test_a_paused_session_goes_on_from_its_backup(new_world: NewWorld, recorded: Recording) -> None:
    async with new_world() as world:
        session = await world.submit()
        await world.until(session, lambda view: view["visits_closed"] >= 2)
        await world.owner.act(session, "pause")
        await world.until(session, lambda view: view["phase"] == "PAUSED")
        copies = {}
        for service in (ORCH, CITY):
            settings, copy = _settings(world, service), world.folder / f"copy-{service}"
            assert back_up(settings, copy) > 1
            copies[service] = (settings.data_dir, copy)
        for service, (folder, copy) in copies.items():
            await world[service].kill()
            shutil.rmtree(folder)
            shutil.copytree(copy, folder)
        for service in copies:
            await world[service].start()
        await world.until(session, lambda view: view["phase"] == "PAUSED")
        await world.owner.act(session, "resume")
        view = await world.completed(session)
        assert view["model"]["digest"] == recorded.view["model"]["digest"]


def _service(folder: Path) -> ServiceSettings:
    folder.mkdir()
    with closing(sqlite3.connect(folder / "state.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE t (x)")
        database.execute("INSERT INTO t VALUES (1)")
    (folder / ".lock").write_text("pid")
    (folder / "sub").mkdir()
    (folder / "sub" / "identity.pem").write_text("key")
    (folder / "converted").mkdir()
    (folder / "converted" / "a.records").write_text("a patient's")
    return ServiceSettings(data_dir=folder)


def test_a_copy_is_whole_while_the_database_is_written(tmp_path: Path) -> None:
    settings = _service(tmp_path / "data")
    writer = sqlite3.connect(tmp_path / "data" / "state.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("INSERT INTO t VALUES (2)")  # not committed: no copy may have it
    assert back_up(settings, tmp_path / "copy") == 2
    writer.execute("COMMIT")
    writer.close()
    with closing(sqlite3.connect(tmp_path / "copy" / "state.db")) as copy:
        assert copy.execute("SELECT x FROM t").fetchall() == [(1,)]
    assert (tmp_path / "copy" / "sub" / "identity.pem").read_text() == "key"
    assert not (tmp_path / "copy" / "converted").exists(), "records belong to no copy: they are converted again"
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "copy" / "state.db").stat().st_mode & 0o777 == 0o600


def test_a_copy_replaces_none_and_lies_elsewhere(tmp_path: Path) -> None:
    settings = _service(tmp_path / "data")
    back_up(settings, tmp_path / "copy")
    with pytest.raises(ConfigurationError, match="exists"):
        back_up(settings, tmp_path / "copy")
    with pytest.raises(ConfigurationError, match="inside"):
        back_up(settings, tmp_path / "data" / "copy")
    (tmp_path / "data" / "elsewhere").symlink_to(tmp_path)
    (tmp_path / "data" / "sub" / "gone").symlink_to(tmp_path / "absent")
    with pytest.raises(ConfigurationError, match="elsewhere, sub/gone") as linked:
        back_up(settings, tmp_path / "linked")
    assert (linked.value.code, (tmp_path / "linked").exists()) == ("backup", False)
    for link in ("elsewhere", "sub/gone"):
        (tmp_path / "data" / link).unlink()
    (tmp_path / "data" / "state.db").write_bytes(b"no database" * 1000)
    with pytest.raises(ConfigurationError, match="cannot be written"):
        back_up(settings, tmp_path / "other")


def test_no_copy_is_made_of_what_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database elsewhere has a copy of its own, so the files are all that is missed, and nobody would miss them before they restore."""
    elsewhere = {"database_url": "postgresql://gput@database/gput"}
    with pytest.raises(ConfigurationError, match="mistyped is no folder") as mistyped:
        back_up(ServiceSettings(data_dir=tmp_path / "mistyped", **elsewhere), tmp_path / "copy")
    settings = _service(tmp_path / "data").model_copy(update=elsewhere)
    (tmp_path / "data" / "lost+found").mkdir()  # as on a volume of its own: that is nobody's loss
    listed, closed_to_us = os.scandir, {"sub", "lost+found"}

    def of_somebody_else(place: Any = ".") -> Any:
        if Path(place).name in closed_to_us:
            raise PermissionError(13, "Permission denied", str(place))
        return listed(place)

    monkeypatch.setattr(os, "scandir", of_somebody_else)
    with pytest.raises(ConfigurationError, match="data/sub cannot be read: Permission denied") as closed:
        back_up(settings, tmp_path / "copy")
    assert (mistyped.value.code, closed.value.code, (tmp_path / "copy").exists()) == ("backup", "backup", False)
    closed_to_us.remove("sub")
    assert back_up(settings, tmp_path / "copy") == 1
