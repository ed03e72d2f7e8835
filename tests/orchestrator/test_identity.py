"""The orchestrator's identity is rotated by a command of its own: between sessions, while nobody serves, and said so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gput.local.installation import to_toml
from orchestrator.__main__ import main
from shared.crypto.signing import PartyKey, fingerprint, load_public
from shared.service.data_dir import held
from tests.orchestrator.orchestrator_world import opened, prepared, submit


@pytest.fixture
def place(installation: Path, tmp_path: Path) -> Path:
    for name in ("trust", "owners"):
        (tmp_path / name).symlink_to(installation / name)
    settings = {
        "data_dir": tmp_path / "data", "owner_keys": tmp_path / "owners", "evidence": "emulated:unused",
        "agent_url": "http://127.0.0.1:9", "platform_url": "http://127.0.0.1:9", "log_level": "error",
    }  # fmt: skip
    (tmp_path / "o.toml").write_text(to_toml(settings))
    return tmp_path


def rotate(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["orchestrator", "--config", str(place / "o.toml"), "--rotate-identity"])
    capsys.readouterr()
    code = main()
    told = capsys.readouterr()
    return code, told.out, told.err


async def test_it_changes_between_sessions_only(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = place / "data" / "identity.pem"
    async with opened(place) as world:
        session = (await submit(await prepared(world))).json()["id"]
    old = PartyKey.load(identity).fingerprint
    code, out, err = rotate(place, monkeypatch, capsys)
    assert (code, out, session in err) == (1, "", True), err
    assert PartyKey.load(identity).fingerprint == old
    async with opened(place) as world:
        owner = world.client(PartyKey.generate(lambda n: bytes([99]) * n))
        assert (await owner.post(f"/v1/sessions/{session}/cancel")).status_code == 202
    code, out, err = rotate(place, monkeypatch, capsys)
    assert code == 0, err
    said = json.loads(out)
    new = PartyKey.load(identity).fingerprint
    assert (said["was"], said["identity"]) == (old, new)
    assert new != old
    assert fingerprint(load_public(Path(said["public_key"]).read_bytes())) == new  # noqa: ASYNC240  # a few bytes
    assert not list(identity.parent.glob("*.next*"))
    async with opened(place) as world:
        assert world.app.state.orchestrator.house.identity.fingerprint == new


def test_not_beside_one_that_serves(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with held(place / "data"):
        code, _, err = rotate(place, monkeypatch, capsys)
    assert (code, "in use by another process" in err) == (2, True)
    assert not (place / "data" / "identity.pem").exists()
