"""The local launcher: the demo's corpora, configuration files, and child processes that start, fail and stop."""

from __future__ import annotations

import asyncio
import os
import shutil
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gput.files import fleeting
from gput.local.corpus import split
from gput.local.installation import HolderSpec, Installation, to_toml
from gput.local.process import Service
from shared.errors import BadRequest, Unavailable

HOLDERS = ("north", "city", "harbour")


def library(folder: Path) -> Path:
    for number in range(60):
        path = folder / f"module{number % 20}" / f"part{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"value = {number}\n")
    (folder / "test").mkdir()
    (folder / "test" / "left_out.py").write_text("no = 1\n")
    (folder / "empty.py").touch()
    return folder


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.py")}


def test_corpora_are_disjoint_complete_and_deterministic(tmp_path: Path) -> None:
    source = library(tmp_path / "library")
    first = split(tmp_path / "one", HOLDERS, source)
    again = split(tmp_path / "two", HOLDERS, source)
    parts = {name: names(folder) for name, folder in first.items()}
    assert set(parts) == {*HOLDERS, "held-out"}
    assert all(parts.values())
    assert sum(len(part) for part in parts.values()) == len(set.union(*parts.values()))
    assert set.union(*parts.values()) == names(source) - {"test/left_out.py", "empty.py"}
    assert parts == {name: names(folder) for name, folder in again.items()}
    modules = [{name.split("/")[0] for name in parts[holder]} for holder in HOLDERS]
    assert not modules[0] & modules[1] | modules[1] & modules[2] | modules[0] & modules[2]


def test_an_interrupted_split_is_made_anew(tmp_path: Path) -> None:
    source = library(tmp_path / "library")
    folders = split(tmp_path / "one", HOLDERS, source)
    (tmp_path / "one" / ".complete").unlink()
    (folders["north"] / "stale.py").write_text("x")
    assert "stale.py" not in names(split(tmp_path / "one", HOLDERS, source)["north"])


TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=20)
VALUES = st.one_of(
    st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False), TEXT, st.lists(TEXT, max_size=3)
)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), VALUES | st.dictionaries(TEXT, TEXT, max_size=3)))
def test_settings_survive_toml(settings: dict[str, object]) -> None:
    assert tomllib.loads(to_toml(settings)) == settings


def test_paths_become_absolute() -> None:
    assert tomllib.loads(to_toml({"where": Path("x"), "data": {"a": Path("/y")}})) == {
        "where": str(Path("x").absolute()), "data": {"a": "/y"},
    }  # fmt: skip


def service(tmp_path: Path, code: str) -> Service:
    return Service("sample", ["-c", code], {}, tmp_path / "logs" / "sample.log")


READY = """print('{"ready": "http://127.0.0.1:1"}'); import time; time.sleep(60)"""


async def test_a_service_that_dies_shows_the_end_of_its_log(tmp_path: Path) -> None:
    code = "import sys; [print('line', n, file=sys.stderr) for n in range(50)]; sys.exit(7)"
    with pytest.raises(Unavailable) as found:
        await service(tmp_path, code).start()
    assert "sample ended with exit code 7 before it listened" in found.value.detail
    assert "line 49" in found.value.detail
    assert "line 10" not in found.value.detail
    assert "sample.log" in str(found.value.remedy)


async def test_of_a_passing_folder_the_log_stays_that_an_error_names() -> None:
    async def broken() -> None:
        with fleeting("gput-test-") as passing:
            folders.append(passing)
            (passing / "keys").mkdir()
            (passing / "keys" / "k.pem").write_text("secret")
            await service(passing, "import sys; print('why', file=sys.stderr); sys.exit(7)").start()

    folders = list[Path]()
    with pytest.raises(Unavailable) as found:
        await broken()
    (folder,) = folders
    try:
        log = folder / "logs" / "sample.log"
        assert str(log) in str(found.value.remedy)
        assert log.read_text() == "why\n"
        assert [path for path in folder.rglob("*") if path.is_file()] == [log]
        assert not (folder / "keys").exists()
    finally:
        shutil.rmtree(folder)


def test_of_a_passing_folder_nothing_stays_otherwise() -> None:
    for error in (None, BadRequest("another"), KeyboardInterrupt()):
        with suppress(BadRequest, KeyboardInterrupt), fleeting("gput-test-") as folder:
            (folder / "sample.log").touch()
            if error is not None:
                raise error
        assert not folder.exists()


async def test_a_silent_service_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gput.local.process.READY_TIMEOUT_S", 0.2)
    silent = service(tmp_path, "import time; time.sleep(60)")
    with pytest.raises(Unavailable, match="did not listen"):
        await silent.start()
    assert not silent.alive


async def test_a_service_that_ignores_the_signal_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gput.local.process.STOP_TIMEOUT_S", 0.3)
    deaf = service(tmp_path, "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY)
    await deaf.start()
    assert await deaf.stop() == -9


async def test_stop_leaves_nothing_running(tmp_path: Path) -> None:
    installation = Installation(tmp_path, [])
    installation.services = {name: service(tmp_path, READY) for name in ("agent", "orchestrator", "holder-x")}
    await asyncio.gather(*(one.start() for one in installation.services.values()))
    pids = [one.pid for one in installation.services.values()]
    assert all(pid and os.path.exists(f"/proc/{pid}") for pid in pids)  # noqa: ASYNC240  # procfs does not block
    await installation.stop()
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]  # noqa: ASYNC240  # procfs does not block
    await installation.stop()  # again is no error


class Asked(Installation):
    """Starts nothing. `settings`: what each service would have been given in its file."""

    settings: dict[str, dict[str, Any]]

    async def _ensure(self, name: str, module: str, settings: Mapping[str, Any]) -> None:
        self.settings[name] = tomllib.loads(to_toml(settings))
        self.services[name] = Service(name, [], {}, self.folder / "log")
        self.services[name].ready = {"ready": "http://127.0.0.1:1"}


async def test_platform_and_agent_share_the_muxs_register(tmp_path: Path) -> None:
    installation = Asked(tmp_path, [HolderSpec("north", {})])
    installation.settings = {}
    await installation.start()
    told = {name: settings.get("mux_registers") for name, settings in installation.settings.items()}
    folder = str(installation.registers)
    assert told == {"agent": folder, "platform": folder, "orchestrator": None, "holder-north": None}
    assert installation.registers.parent == tmp_path


async def test_a_start_that_is_cancelled_leaves_a_process_that_stop_finds(tmp_path: Path) -> None:
    one = service(tmp_path, "import time; time.sleep(60)")
    start = asyncio.create_task(one.start())
    await asyncio.sleep(0)  # inside the making of the process
    await asyncio.sleep(0)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert one.pid
    await one.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(one._process.pid if one._process else 0, 0)


async def test_the_first_to_end_is_named(tmp_path: Path) -> None:
    installation = Installation(tmp_path, [])
    dying = READY.replace("60", "0.1") + "; raise SystemExit(3)"
    installation.services = {"agent": service(tmp_path, READY), "platform": service(tmp_path, dying)}
    await asyncio.gather(*(one.start() for one in installation.services.values()))
    failed = await installation.first_failure()
    assert failed is installation.services["platform"]
    assert "exit code 3" in failed.failure().detail
    await installation.stop()
