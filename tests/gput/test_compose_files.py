"""What the compose file's `prepare` leaves in a service's volume: its own files stay, the trust folder follows the release."""

from __future__ import annotations

from pathlib import Path

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
