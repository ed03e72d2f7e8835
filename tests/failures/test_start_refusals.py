"""A service that cannot start says which thing, why, and what to do, in two lines, and ends with the exit code of the family."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gput.local.installation import GPU
from tests.failures.starting import (
    CONFIGURATION,
    EVERYWHERE,
    NOWHERE,
    SERVICES,
    UNAVAILABLE,
    Started,
    refused,
    settings_of,
    start,
    two_lines,
)


@pytest.mark.parametrize("service", EVERYWHERE)
def test_busy_port(service: str, place: Path, capsys: Any) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        code, said = refused(capsys, service, place, {"port": port})
    assert code == CONFIGURATION
    assert str(port) in said


@pytest.mark.parametrize("service", EVERYWHERE)
def test_database(service: str, place: Path, capsys: Any) -> None:
    code, said = refused(capsys, service, place, {"database_url": "postgresql://u:sekrit@127.0.0.1:1/gput"})
    assert code == UNAVAILABLE
    assert "gput at 127.0.0.1" in said
    assert "sekrit" not in said
    damaged = place / "damaged.db"
    damaged.write_bytes(b"no database at all, but long enough to be one " * 99)
    code, said = refused(capsys, service, place, {"database_url": f"sqlite:///{damaged}"})
    assert code == CONFIGURATION
    assert "damaged.db" in said
    assert damaged.read_bytes().startswith(b"no database"), "it is left as it was"
    code, said = refused(capsys, service, place, {"database_url": "mysql://h/gput"})
    assert code == CONFIGURATION
    assert "mysql" in said


@pytest.mark.parametrize("service", EVERYWHERE)
def test_newer_schema(service: str, place: Path, capsys: Any) -> None:
    file = place / "newer.db"
    with pytest.raises(Started):
        _pass_started(service, place, {"database_url": f"sqlite:///{file}"})
    with closing(sqlite3.connect(file)) as connection, connection:
        tables = [
            name
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE '%schema%'"
            )
        ]
        for name in tables:
            connection.execute(f"UPDATE {name} SET version_num = '9999'")
    code, said = refused(capsys, service, place, {"database_url": f"sqlite:///{file}"})
    assert code == CONFIGURATION
    assert "newer version" in said
    assert "9999" in said


def _pass_started(service: str, place: Path, changes: Mapping[str, Any]) -> None:
    kind, create = SERVICES[service]
    create(kind(**{**settings_of(service, place), **changes}), NOWHERE)
    raise Started


@pytest.mark.parametrize("service", EVERYWHERE)
def test_configuration_file(service: str, place: Path, capsys: Any) -> None:
    assert start(service, place, "data_dir = [\n") == CONFIGURATION
    assert "config.toml is not TOML" in two_lines(capsys)
    code, said = refused(capsys, service, place, {"data_dirr": "/tmp"})
    assert code == CONFIGURATION
    assert "there is no setting data_dirr" in said
    code, said = refused(capsys, service, place, {"data_dir": None})
    assert code == CONFIGURATION
    assert "data_dir" in said


FILES: list[tuple[str, str, Any, str]] = [
    ("agent", "device_dir", "/nonexistent", "/nonexistent/leaf.pem"),
    ("agent", "device_dir", None, "device_dir"),
    ("agent", "evidence", "cuda:0", "cuda:0"),
    ("agent", "platform_key", "/nonexistent", "/nonexistent"),
    ("agent", "platform_key", "JUNK", "junk"),
    ("agent", "hbm_bytes", 1 << 60, "hbm_bytes"),
    ("agent", "data_dir", "JUNK", "junk"),
    ("platform", "state_dir", "/nonexistent", "/nonexistent"),
    ("platform", "orchestrator_key", "/nonexistent", "/nonexistent"),
    ("platform", "orchestrator_key", "JUNK", "junk"),
    ("platform", "mux_registers", "JUNK", "junk"),
    ("orchestrator", "trust_dir", "/nonexistent", "/nonexistent"),
    ("orchestrator", "trust_dir", None, "trust"),
    ("orchestrator", "evidence_token_file", "/nonexistent", "/nonexistent"),
    ("orchestrator", "evidence", "tdx:x", "tdx"),
    ("orchestrator", "evidence", "configfs-tsm:/nonexistent", "sealing_key_file"),
    ("orchestrator", "evidence_token_file", None, "evidence_token_file"),
    ("orchestrator", "sealing_key_file", "JUNK", "sealing_key_file"),
    *(
        ("orchestrator", name, value, name)
        for name in ("agent_url", "agent_public_url", "platform_url", "collateral_url")
        for value in ("agent:8003", "http://agent:99999")
    ),
    ("orchestrator", "owner_keys", "/nonexistent", "/nonexistent"),
    ("orchestrator", "reader_tokens", "/nonexistent", "/nonexistent"),
    ("orchestrator", "reader_tokens", "JUNK", "junk"),
    ("orchestrator", "reader_tokens", "TOKENS", "SHA-256"),
    ("orchestrator", "data_dir", "JUNK", "junk"),
    ("holder", "trust_dir", "/nonexistent", "/nonexistent"),
    ("holder", "trust_dir", None, "trust_dir"),
    ("holder", "evidence_token_file", "/nonexistent", "/nonexistent"),
    ("holder", "evidence", "configfs-tsm:/nonexistent", "sealing_key_file"),
    ("holder", "policy", "/nonexistent", "/nonexistent"),
    ("holder", "policy", "JUNK", "junk"),
    ("holder", "operator_keys", "/nonexistent", "/nonexistent"),
    ("holder", "name", "../x", "name"),
    ("holder", "data_dir", "JUNK", "junk"),
]


@pytest.mark.parametrize(("service", "setting", "value", "named"), FILES)
def test_what_a_setting_points_at(service: str, setting: str, value: Any, named: str, place: Path, capsys: Any) -> None:
    if value == "JUNK":
        (place / "junk").write_text("neither key nor table = [")
        value = place / "junk"
    if value == "TOKENS":
        (place / "junk").write_text('{"the token itself": "maria"}')
        value = place / "junk"
    code, said = refused(capsys, service, place, {setting: value})
    assert code == CONFIGURATION
    assert named in said


Break = Callable[[Path], object]
DAMAGE: list[tuple[str, str, Break]] = [
    ("orchestrator", "trust/cpu-roots.pem", lambda file: file.write_text("no certificate")),
    ("orchestrator", "trust/gpu-roots.pem", lambda file: file.write_text("no certificate")),
    ("orchestrator", "trust/rim-roots.pem", lambda file: file.write_text("no certificate")),
    ("orchestrator", "trust/reference.json", lambda file: file.write_text("{")),
    ("orchestrator", "orchestrator/identity.pem", lambda file: file.write_text("no key")),
    ("orchestrator", "orchestrator/identity.pem", lambda file: file.chmod(0o644)),
    ("orchestrator", "owners/owner.pub", lambda file: file.write_text("no key")),
    ("holder", "trust/cpu-roots.pem", lambda file: file.unlink()),
    ("holder", "trust/reference.json", lambda file: file.write_text("[]")),
    ("holder", "holder-city/identity.pem", lambda file: file.write_text("no key")),
    ("agent", f"devices/{GPU}/leaf.pem", lambda file: file.chmod(0o644)),
    ("agent", f"devices/{GPU}/leaf.pem", lambda file: file.write_text("no key")),
    ("platform", "cvms/orchestrator.token", lambda file: file.unlink()),
    ("platform", "platform/mux.pem", lambda file: file.write_text("no key")),
    ("platform", "platform/cvms.json", lambda file: file.write_text("{")),
    ("platform", "platform/cpu/chain.pem", lambda file: file.unlink()),
]


@pytest.mark.parametrize(("service", "file", "damage"), DAMAGE)
def test_damaged_file(service: str, file: str, damage: Break, place: Path, capsys: Any) -> None:
    (place / file).parent.mkdir(exist_ok=True)
    if not (place / file).exists():
        (place / file).write_text("")
        (place / file).chmod(0o600)
    damage(place / file)
    code, said = refused(capsys, service, place, {})
    assert code == CONFIGURATION
    assert Path(file).name in said


def test_owner_key_damaged_by_a_later_edit_is_named_and_the_others_stay(place: Path, capsys: Any) -> None:
    (place / "owners" / "zzz.pub").write_bytes(b"\x00")
    code, said = refused(capsys, "orchestrator", place, {})
    assert code == CONFIGURATION
    assert "zzz.pub" in said
