"""A disk that fails while something is read says nothing of what lies there: who needs it tries again, and nobody's file is called bad."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.files import CheckedFile, DigestStore, is_there
from orchestrator.gpu_session.checkpoints import Checkpoints, _read_parts
from orchestrator.library import _checked_bytes
from orchestrator.sessions.remembered import Checkpoint, ModelState
from orchestrator.weights import map_weights
from shared.canonical import sha256
from shared.claims.layout import RegionPlan
from shared.crypto.secret import Secret
from shared.errors import Unavailable
from tests.orchestrator.orchestrator_world import ARCHIVE, PROGRAM, World, prepared, put, submit

DATA = b"what somebody uploaded"


def _checked(path: Path) -> bytes:
    with CheckedFile(path, sha256(DATA).hex()) as file:
        return file.read(len(DATA))


OPENING: dict[str, Callable[[Path], object]] = {
    "a checkpoint": lambda path: list(_read_parts(path, 8)),
    "a program": lambda path: _checked_bytes(path, sha256(DATA).hex()),
    "a file that is checked as it is read": _checked,
    "a file that is checked first": lambda path: DigestStore(path.parent, "sha256").open(path.name),
    "weights": lambda path: map_weights(path, sha256(DATA).hex(), RegionPlan((), 0)),
}


def _is_named(error: Unavailable, path: Path) -> None:
    assert error.code == "disk-unusable"
    assert str(path) in error.detail
    assert os.strerror(errno.EIO) in error.detail
    assert error.remedy


@pytest.mark.parametrize("which", OPENING)
def test_what_cannot_be_opened_is_away_and_not_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)

    def broken(*arguments: Any, **options: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(io, "open", broken)
    with pytest.raises(Unavailable) as refusal:
        OPENING[which](path)
    _is_named(refusal.value, path)


class Broken(io.BytesIO):
    """An open file whose disk fails at the next read."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_what_breaks_in_the_middle_is_away_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    file = CheckedFile(path, sha256(DATA).hex())
    file._file.close()
    file._file = Broken()
    with pytest.raises(Unavailable) as refusal:
        file.__exit__(None, None, None)
    _is_named(refusal.value, path)


def test_a_disk_that_does_not_say_whether_a_file_is_there_takes_none_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a session would go back to an older checkpoint, or end, because of a moment's fault of the disk."""
    made = Checkpoint("k_1", 1, 8, ModelState("m", "o", 1, None), None)
    checkpoints, path = Checkpoints(tmp_path, Secret(bytes(32))), tmp_path / "k_1.sealed"
    assert checkpoints.usable([made]) is None
    assert not is_there(path / "below")
    path.write_bytes(DATA)
    assert checkpoints.usable([made]) is made

    def broken(self: Path, **options: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "stat", broken)
    with pytest.raises(Unavailable) as refusal:
        checkpoints.usable([made])
    _is_named(refusal.value, path)


async def test_a_disk_that_fails_is_no_fault_of_the_manifest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was answered as a finding at `initial_weights`, which a program takes for a reason to give up."""
    owner, digest, opened = await prepared(world), sha256(DATA).hex(), Path.open
    assert (await put(owner, f"/v1/weights/{digest}", DATA)).status_code == 201

    def broken(self: Path, *arguments: Any, **options: Any) -> Any:
        if self.name == digest:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return opened(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", broken)
    answer = await submit(owner, initial_weights=digest)
    assert (answer.status_code, answer.json()["code"]) == (503, "disk-unusable")
    monkeypatch.undo()
    answer = await submit(owner, initial_weights=digest)
    assert (answer.status_code, answer.json()["code"]) == (422, "weights-malformed")


async def test_an_upload_that_the_disk_does_not_give_back_is_no_bug(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, read = await prepared(world), Path.read_bytes

    def broken(self: Path) -> bytes:
        if self.name.startswith("upload-"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(self)

    monkeypatch.setattr(Path, "read_bytes", broken)
    answer = await put(owner, f"/v1/programs/{PROGRAM}/archive", ARCHIVE)
    assert (answer.status_code, answer.json()["code"]) == (503, "disk-unusable")
    assert list(world.folder.rglob("upload-*")) == []
    monkeypatch.undo()
    assert (await put(owner, f"/v1/programs/{PROGRAM}/archive", ARCHIVE)).status_code == 200
