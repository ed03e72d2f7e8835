"""Keys that a file held before: kept beside it for whoever owns that file, the private halves for nobody else's eyes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shared.crypto.former_keys import former_keys, keep_former, keep_private, kept_private
from shared.crypto.signing import PartyKey


def kept(folder: Path) -> tuple[Path, list[PartyKey]]:
    """A key file that held two other keys before, and all three, the newest last."""
    file, keys = folder / "identity.pem", [PartyKey.generate() for _ in range(3)]
    for key in keys:
        if file.exists():
            before = PartyKey.load(file)
            keep_former(file, before.public)
            keep_private(file, before.public)
            file.unlink()
        key.save(file)
    return file, keys


def test_both_halves_are_kept_of_each(tmp_path: Path) -> None:
    file, keys = kept(tmp_path)
    assert former_keys(file) == {key.fingerprint: key.public for key in keys[:2]}
    assert [PartyKey.load(path).public for path in kept_private(file)] == [keys[1].public, keys[0].public]
    place = tmp_path / "identity.former"
    assert {path.stat().st_mode & 0o077 for path in (place, *place.iterdir())} == {0}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_keeps_is_the_owners_of_the_key(tmp_path: Path) -> None:
    file = tmp_path / "identity.pem"
    key = PartyKey.generate()
    key.save(file)
    os.chown(file, 12345, 54321)
    keep_former(file, key.public)
    keep_private(file, key.public)
    place = tmp_path / "identity.former"
    found = [path.stat() for path in (place, *place.iterdir())]
    assert [(one.st_uid, one.st_gid) for one in found] == [(12345, 54321)] * 3
