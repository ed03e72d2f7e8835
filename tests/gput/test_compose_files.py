"""What the compose file's `prepare` leaves in a service's volume: its own files stay, whole, and the trust folder follows the release."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gput.local.compose import _copy


def test_a_volume_keeps_its_identity_and_gets_the_new_trust_folder(tmp_path: Path) -> None:
    source, volume = tmp_path / "installation", tmp_path / "volume"
    for text in ("old", "new"):
        for name in ("trust/reference.json", "trust/collateral/emulated.json", "state/identity.pem"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_text(text)
        (volume / "trust" / "collateral").mkdir(parents=True, exist_ok=True)
        (volume / "trust" / "collateral" / "fetched.json").write_text("fetched")
        for part in ("trust", "state"):
            _copy(source / part, volume / part)
    found = {path.relative_to(volume).as_posix(): path.read_text() for path in volume.rglob("*") if path.is_file()}
    assert found == {
        "trust/reference.json": "new",
        "trust/collateral/emulated.json": "new",
        "trust/collateral/fetched.json": "fetched",
        "state/identity.pem": "old",
    }


@pytest.mark.parametrize("part", ["cvms", "identity.pem"])
def test_what_an_interrupted_prepare_left_is_copied_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    source, volume = tmp_path / "installation", tmp_path / "volume"
    (source / "cvms").mkdir(parents=True)
    for name in ("cvms/holder-city.token", "cvms/holder-north.token", "identity.pem"):
        (source / name).write_text(f"all of {name}")
    whole = shutil.copyfile
    copied = list[Path]()

    def killed(place: Path, copy: Path, *, follow_symlinks: bool = True) -> None:
        copied.append(Path(copy))
        Path(copy).write_text("half")
        if len(copied) == (2 if part == "cvms" else 1):
            raise KeyboardInterrupt  # as the container is stopped
        whole(place, copy, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(shutil, "copyfile", killed)
    with pytest.raises(KeyboardInterrupt):
        _copy(source / part, volume / part)
    monkeypatch.undo()
    _copy(source / part, volume / part)
    found = {path.relative_to(volume).as_posix(): path.read_text() for path in volume.rglob("*") if path.is_file()}
    assert found == {
        name.relative_to(source).as_posix(): name.read_text()
        for name in source.rglob("*") if name.is_file() and name.relative_to(source).parts[0] == part
    }  # fmt: skip
