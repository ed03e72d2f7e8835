"""Files of secrets, and those that are put in others' places: whole, durable, and still their owner's."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.crypto.private_file import replace_private, replace_public, write_private
from shared.service.reader_tokens import Reader, read_readers, write_readers

SERVICE = 10001
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@as_root
def test_what_root_rotates_stays_the_service_s(tmp_path: Path) -> None:
    """It runs as somebody else, and could not read its own key or its readers any more."""
    key, readers = tmp_path / "identity.pem", tmp_path / "readers.json"
    for path in (key, readers):
        path.write_bytes(b"{}")
        path.chmod(0o600)
        os.chown(path, SERVICE, SERVICE)
    replace_private(key, b"new")
    write_readers(readers, {"00" * 32: Reader(name="maria")})
    for path in (key, readers):
        status = path.stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (SERVICE, SERVICE, 0o600), path
    assert key.read_bytes() == b"new"
    assert [reader.name for reader in read_readers(readers).values()] == ["maria"]


def test_who_may_not_give_a_file_away_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "identity.pem"
    path.write_bytes(b"old")

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("shared.crypto.private_file.os.chown", refuse)
    monkeypatch.setattr("shared.crypto.private_file._owner", lambda of: (len(of.name), 0))
    with pytest.raises(PermissionError):
        replace_private(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["identity.pem"]


def test_a_new_one_has_no_owner_to_keep(tmp_path: Path) -> None:
    replace_private(tmp_path / "new", b"x")
    assert (tmp_path / "new").read_bytes() == b"x"
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600


def test_what_is_public_others_may_read_as_far_as_the_umask_lets_them(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace_public(tmp_path / "folder" / "roots.pem", b"old")
        replace_public(tmp_path / "folder" / "roots.pem", b"new")
    finally:
        os.umask(before)
    folder = tmp_path / "folder"
    assert [path.stat().st_mode & 0o777 for path in (folder, folder / "roots.pem")] == [0o750, 0o640]
    assert (os.listdir(folder), (folder / "roots.pem").read_bytes()) == (["roots.pem"], b"new")


@pytest.mark.parametrize("write", [replace_public, replace_private])
def test_a_draft_that_gets_no_name_is_removed(
    write: Callable[[Path, bytes], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "kept").write_bytes(b"old")
    for point in ("replace", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, point, full)
            with pytest.raises(OSError, match="No space"):
                write(tmp_path / "kept", b"new")
        assert (os.listdir(tmp_path), (tmp_path / "kept").read_bytes()) == (["kept"], b"old")


@pytest.mark.parametrize("write", [write_private, replace_private, replace_public])
def test_content_is_durable_before_its_name_and_the_name_before_it_is_said(
    write: Callable[[Path, bytes], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, link, replace = os.fsync, os.link, os.replace

    def synced(descriptor: int) -> None:
        is_folder = os.path.samestat(os.fstat(descriptor), tmp_path.stat())
        done.append("folder" if is_folder else "content")
        fsync(descriptor)

    def named(by: Callable[..., None]) -> Callable[..., None]:
        def name(*paths: Path) -> None:
            done.append("name")
            by(*paths)

        return name

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", named(link))
    monkeypatch.setattr(os, "replace", named(replace))
    write(tmp_path / "new", b"x")
    assert done == ["content", "name", "folder"]
    assert (os.listdir(tmp_path), (tmp_path / "new").read_bytes()) == (["new"], b"x")
