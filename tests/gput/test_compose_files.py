"""What the compose file's `prepare` leaves in a service's volume: its own files stay, whole, and the trust folder follows the release."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from gpu_agent.hardware import root_of_trust
from gpu_agent.hardware.firmware import measure_firmware
from gpu_agent.hardware.root_of_trust import RootOfTrust
from gpu_agent.platform import device_manufacture
from gput.local import compose
from gput.local.compose import HOME, READERS, SECRET, _admit_nobody_yet, _copy, _orchestrator, _own
from gput.local.demos.texts import HOLDERS
from gput.local.installation import GPU, to_toml
from orchestrator.readers import reader_tokens
from orchestrator.settings import OrchestratorSettings
from shared.attestation.gpu_chain import certified_firmware, parse_chain
from shared.service.reader_tokens import Reader, read_readers, write_readers

COMPOSE = yaml.safe_load((Path(__file__).parents[2] / "docker-compose.yml").read_text())


@pytest.mark.parametrize("name", sorted(COMPOSE["services"]))
def test_every_container_is_without_rights_but_the_one_that_lays_out_the_volumes(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["ulimits"] == {"core": 0}
    if name == "prepare":
        assert (service["user"], service["cap_add"]) == ("root", ["CHOWN", "DAC_OVERRIDE", "FOWNER"])
        assert (service["network_mode"], service["restart"]) == ("none", "no")
    else:  # our image's user is nobody's root; of another's image the file says which
        assert (
            int(service["user"].partition(":")[0]) > 0
            if "user" in service
            else service["image"].startswith("gpu-travelling/")
        )
        assert not service.keys() & {"privileged", "cap_add", "network_mode", "pid", "ipc", "devices"}


@pytest.mark.parametrize("name", [*HOLDERS, "x-holder"])
def test_a_holder_is_started_by_the_settings_that_its_volume_has(name: str) -> None:
    service = COMPOSE["services"][name] if name in COMPOSE["services"] else COMPOSE[name]
    assert service["command"] == ["python", "-m", "data_holder", "--config", str(HOME / "config.toml")]


def test_readers_are_admitted_by_the_file_that_the_orchestrator_looks_at(tmp_path: Path) -> None:
    assert _orchestrator()["reader_tokens"] == HOME / READERS
    _admit_nobody_yet(tmp_path / READERS)
    assert reader_tokens(tmp_path / READERS) is not None  # its start reads the file, and ends where there is none
    write_readers(tmp_path / READERS, {"5a" * 32: Reader(name="maria")})
    _admit_nobody_yet(tmp_path / READERS)  # the next `up`
    assert [reader.name for reader in read_readers(tmp_path / READERS).values()] == ["maria"]


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


def test_an_operators_command_finds_the_database_that_the_orchestrator_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m orchestrator --config …` in its container, with --backup, --schema or --rotate-identity, which ask it who leads."""
    for name in [name for name in os.environ if name.startswith("GPUT_ORCHESTRATOR_")]:
        monkeypatch.delenv(name)
    password = tmp_path / "password"
    password.write_text("p/w\n")
    (tmp_path / "config.toml").write_text(to_toml({**_orchestrator(), "database_password_file": password}))
    assert (
        OrchestratorSettings.load(tmp_path / "config.toml").store_url
        == "postgresql+psycopg://gput:p%2Fw@database:5432/gput"
    )
    assert "p/w" not in (tmp_path / "config.toml").read_text()
    services = COMPOSE["services"]
    for name in ("orchestrator", "standby"):
        assert services[name]["command"] == ["python", "-m", "orchestrator", "--config", "/var/lib/gput/config.toml"]
        assert services[name]["secrets"] == [SECRET.name]
        assert not [variable for variable in services[name].get("environment", ()) if "DATABASE" in variable]
    assert _orchestrator()["database_password_file"] == SECRET


def test_a_volume_is_handed_over_while_its_service_makes_and_removes_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "state/identity.pem",
        "state/sessions/s_1/.model.partial",
        "state/state.db-wal",
        "trust/reference.json",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "state" / "link").symlink_to("/absent")
    given = set[str]()

    def chown(path: Path | str, user: int, group: int, *, follow_symlinks: bool) -> None:
        if not given:  # the service goes on meanwhile
            shutil.rmtree(tmp_path / "state" / "sessions")
            (tmp_path / "state" / "state.db-wal").unlink()
        os.lstat(path)  # raises what the call would raise
        assert (user, group, follow_symlinks) == (10001, 10001, False)
        given.add(Path(path).relative_to(tmp_path).as_posix())

    monkeypatch.setattr(compose.os, "chown", chown)
    _own(tmp_path)
    assert given == {".", "state", "state/identity.pem", "state/link", "trust", "trust/reference.json"}


@pytest.mark.filterwarnings("ignore::shared.errors.EmulationWarning")
def test_after_an_update_the_agent_gets_the_leaf_that_its_new_firmware_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the same identity, as on a real device; with the old leaf every verifier would refuse its evidence for good."""
    volumes, device = tmp_path / "volumes", tmp_path / "volumes" / "agent" / "devices" / GPU
    for name in ("platform", "agent", "orchestrator", "client", *(f"holder-{name}" for name in HOLDERS)):
        (volumes / name).mkdir(parents=True)
    monkeypatch.setattr(compose, "INSTALLATION", tmp_path / "installation")
    monkeypatch.setattr(compose, "VOLUMES", volumes)
    monkeypatch.setattr(compose, "_own", lambda _volume: None)
    compose.prepare()
    before = {path.name: path.read_bytes() for path in device.iterdir()}

    updated = replace(measure_firmware(), fwid=b"\x0e" * 48)
    monkeypatch.setattr(device_manufacture, "measure_firmware", lambda: updated)
    compose.prepare()
    after = {path.name: path.read_bytes() for path in device.iterdir()}
    assert certified_firmware(parse_chain(after["chain.pem"].decode())) == updated.fwid
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == {
        "leaf.pem",
        "chain.pem",
    }
    monkeypatch.setattr(root_of_trust, "measure_firmware", lambda: updated)
    RootOfTrust.load(
        device, os.urandom
    )  # boots: the key is that of the chain, private, and certified for this firmware
