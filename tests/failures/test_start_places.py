"""A service whose place on disk is bad does not start: unwritable, read-only, full, another user's, in use; keys lost, tokens empty."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gput.local.installation import GPU, to_toml
from shared.crypto.signing import PartyKey
from shared.service.data_dir import held
from tests.failures.places import NOBODY, fill, volume, without_override
from tests.failures.starting import CONFIGURATION, EVERYWHERE, STARTED, UNAVAILABLE, refused, settings_of, start


def own_place(service: str, place: Path) -> dict[str, Any]:
    """Settings by which the platform, too, keeps its own state apart from the installation."""
    return {"data_dir": place / "state", "state_dir": place} if service == "platform" else {}


def data_dir(service: str, place: Path) -> Path:
    folder = Path({**settings_of(service, place), **own_place(service, place)}["data_dir"])
    folder.mkdir(exist_ok=True)
    return folder


@pytest.mark.parametrize("service", EVERYWHERE)
def test_data_dir_that_may_not_be_written(service: str, place: Path, capsys: Any) -> None:
    folder = data_dir(service, place)
    folder.chmod(0o500)
    before = sorted(folder.iterdir())
    with without_override():
        code, said = refused(capsys, service, place, own_place(service, place))
    assert code == CONFIGURATION
    assert f"data_dir {folder} cannot be used: Permission denied" in said
    assert sorted(folder.iterdir()) == before, "nothing was left behind"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("service", EVERYWHERE)
def test_data_dir_of_another_user(service: str, place: Path, capsys: Any) -> None:
    folder = data_dir(service, place)
    folder.chmod(0o700)
    os.chown(folder, NOBODY, NOBODY)
    with without_override():
        code, said = refused(capsys, service, place, own_place(service, place))
    os.chown(folder, 0, 0)
    assert code == CONFIGURATION
    assert f"it belongs to uid {NOBODY}, and this process runs as uid 0" in said
    assert "chown" in said


@pytest.mark.parametrize("service", EVERYWHERE)
def test_data_dir_on_a_read_only_volume(service: str, place: Path, tmp_path: Path, capsys: Any) -> None:
    with volume(tmp_path / "sealed", read_only=True) as folder:
        for inside in (folder, folder / "new"):
            code, said = refused(capsys, service, place, {**own_place(service, place), "data_dir": inside})
            assert code == CONFIGURATION
            assert f"data_dir {inside} cannot be used: Read-only file system" in said


@pytest.mark.parametrize("service", EVERYWHERE)
def test_full_volume_at_start(service: str, place: Path, tmp_path: Path, capsys: Any) -> None:
    with volume(tmp_path / "small", 1 << 20) as folder:
        ballast = fill(folder)
        code, said = refused(capsys, service, place, {**own_place(service, place), "data_dir": folder})
        assert code == UNAVAILABLE
        assert "No space left on device" in said or "no space left" in said
        assert str(folder) in said
        assert "Free space" in said
        held_bytes = sum(file.stat().st_size for file in folder.iterdir() if file != ballast)
        assert held_bytes == 0, "nothing half-written"


@pytest.mark.parametrize("service", EVERYWHERE)
def test_a_volume_that_became_full_while_it_was_down(service: str, place: Path, tmp_path: Path, capsys: Any) -> None:
    with volume(tmp_path / "small", 2 << 20) as folder:
        changes = {**own_place(service, place), "data_dir": folder}
        settings = to_toml(settings_of(service, place) | changes)
        assert start(service, place, settings) == STARTED
        capsys.readouterr()
        ballast = fill(folder)
        code, said = refused(capsys, service, place, changes)
        assert code == UNAVAILABLE
        assert f"no space left for SQLite file {folder}/state.db" in said
        ballast.unlink()
        assert start(service, place, settings) == STARTED


@pytest.mark.parametrize("service", EVERYWHERE)
def test_data_dir_in_use(service: str, place: Path, capsys: Any) -> None:
    folder = data_dir(service, place)
    with held(folder):
        code, said = refused(capsys, service, place, own_place(service, place))
    assert code == CONFIGURATION
    assert f"data_dir {folder} is in use by another process (pid {os.getpid()})" in said
    assert "Stop that one first" in said
    with held(folder):
        """Free again."""


LOST = [
    ("orchestrator", "orchestrator/identity.pem"),
    ("holder", "holder-city/identity.pem"),
    ("agent", f"devices/{GPU}/leaf.pem"),
    ("platform", "platform/mux.pem"),
    ("platform", "platform/cpu/pck.pem"),
    ("platform", "platform/installation.secret"),
]


@pytest.mark.parametrize(("service", "file"), LOST)
def test_a_key_that_is_gone_is_not_replaced_unasked(service: str, file: str, place: Path, capsys: Any) -> None:
    if service == "holder":
        PartyKey.load_or_generate(place / file)  # as its first start makes it
    (place / file).unlink()
    code, said = refused(capsys, service, place, {})
    assert code == CONFIGURATION
    assert str(place / file) in said
    assert not (place / file).exists()


@pytest.mark.parametrize("content", ["", "\n", "short"])
@pytest.mark.parametrize(
    ("service", "file"),
    [("orchestrator", "cvms/orchestrator.token"), ("holder", "cvms/holder-city.token"), ("platform", "cvms/holder-city.token")],
)  # fmt: skip
def test_an_empty_token_is_no_token(service: str, file: str, content: str, place: Path, capsys: Any) -> None:
    (place / file).write_text(content)
    code, said = refused(capsys, service, place, {})
    assert code == CONFIGURATION
    assert str(place / file) in said
    assert ("empty" if not content.strip() else "too short") in said
