"""Manufacturing and booting an emulated GPU: what stays, what is renewed, what refuses to boot. Knows no session."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from gpu_agent.hardware.firmware import measure_firmware
from gpu_agent.platform import device_manufacture
from gpu_agent.platform.device_manufacture import manufacture_device
from shared.attestation.gpu_chain import MAX_CHAIN_BYTES
from shared.attestation.gpu_report import ORDER_580, parse_report
from shared.attestation.results import CheckStatus
from shared.errors import BadRequest, ConfigurationError, EmulationWarning, VerificationFailed
from shared.names import Backend
from shared.wire.spdm import get_measurements, parse_chain_form
from tests.adversary.rows import attack
from tests.attestation.gpu_evidence_world import NONCE, GpuWorld, boot, copied_code, entropy

pytestmark = pytest.mark.filterwarnings("ignore::shared.errors.EmulationWarning")


@pytest.fixture
def world(tmp_path: Path) -> GpuWorld:
    return GpuWorld.make(tmp_path)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return copied_code(tmp_path / "site")


def test_the_published_profile_under_emulated_names(world: GpuWorld) -> None:
    chain = x509.load_pem_x509_certificates(world.rot.chain_pem.encode())
    assert len(world.rot.chain_pem) < MAX_CHAIN_BYTES
    for certificate in chain:
        assert "EMULATED" in certificate.subject.rfc4514_string()
        assert "NVIDIA" not in certificate.subject.rfc4514_string()
        key = certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert isinstance(key.curve, ec.SECP384R1)
    leaf, identity = chain[:2]
    ski = leaf.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert leaf.serial_number == int.from_bytes(bytes([ski[0] & 0x7F | 0x40]) + ski[1:], "big")
    assert f"{identity.serial_number:x}" == "41" + world.rot.device
    assert leaf.not_valid_after_utc.year == 9999
    root_hash, der = parse_chain_form(world.rot.chain_spdm)
    assert len(der) == 5
    assert len(root_hash) == 48
    assert world.rot.backend is Backend.EMULATED


def test_report_has_the_580_form(world: GpuWorld) -> None:
    report = parse_report(world.report())
    assert tuple(report.opaque) == ORDER_580
    assert len(world.report()) == 4130
    assert world.rot.measurements(get_measurements(NONCE))[:5] == bytes([0x11, 0x60, 0, 0, 64])
    assert report.responder_nonce != parse_report(world.report()).responder_nonce
    with pytest.raises(BadRequest):
        world.rot.report(get_measurements(NONCE)[:-1])


def test_secrets_are_private_and_nothing_shows_them(world: GpuWorld) -> None:
    for path in (*world.folder.glob("devices/*/*"), *world.folder.glob("platform/gpu/*")):
        private = b"PRIVATE" in path.read_bytes()
        assert private == (stat.S_IMODE(path.stat().st_mode) == 0o600), path
    assert "PRIVATE" not in repr(vars(world.rot)) + repr(world.rot)


def test_manufacturing_twice_changes_nothing(world: GpuWorld) -> None:
    before = {path: path.read_bytes() for path in world.folder.rglob("*") if path.is_file()}
    manufacture_device(world.folder, "gpu-0")
    assert before == {path: path.read_bytes() for path in world.folder.rglob("*") if path.is_file()}


def test_a_second_device_has_the_same_root_and_its_own_identity(world: GpuWorld) -> None:
    roots = (world.folder / "trust/gpu-roots.pem").read_bytes()
    manufacture_device(world.folder, "gpu-1")
    assert (world.folder / "trust/gpu-roots.pem").read_bytes() == roots
    other = GpuWorld(world.folder, boot(world.folder, gpu="gpu-1"))
    assert other.verify().device != world.verify().device


def test_a_boot_draws_its_own_statement_key(world: GpuWorld) -> None:
    again = boot(world.folder, seed=99)
    assert again.statement_key.public != world.rot.statement_key.public
    assert again.statement_certificate != world.rot.statement_certificate
    assert again.device == world.rot.device


@pytest.mark.parametrize(
    "path",
    [
        "gpu_agent/hardware/grants.py",
        "shared/crypto/aead.py",
        "shared/errors.py",
        "gpu_agent/x.py",
        "shared/new/x.json",
    ],
)
def test_every_file_counts(site: Path, path: str) -> None:
    before = measure_firmware(site)
    assert before.measurements == measure_firmware(site).measurements
    (site / path).parent.mkdir(exist_ok=True)
    with (site / path).open("a") as file:
        file.write("\n# changed\n")
    after = measure_firmware(site)
    assert after.fwid != before.fwid
    assert sum(a != b for a, b in zip(before.measurements, after.measurements, strict=True)) == 1


@attack("V08", any="stopped: firmware is measured")
@pytest.mark.parametrize(
    ("path", "block"),
    [("gpu_agent/hardware/grants.py", 2), ("gpu_agent/workload/training.py", 23), ("shared/errors.py", 8)],
)
def test_one_changed_byte_of_the_agents_code_is_a_mismatch_of_its_block(
    world: GpuWorld, site: Path, path: str, block: int
) -> None:
    code = bytearray((site / path).read_bytes())
    code[-2] ^= 1
    (site / path).write_bytes(code)
    changed = measure_firmware(site)
    examination = GpuWorld(world.folder, boot(world.folder, foreign=changed)).examine().examination
    assert [check.name for check in examination if check.status is CheckStatus.FAIL] == ["firmware-id", "measurements"]
    found = examination.find("measurements")
    assert (found.code, found.indices) == ("gpu-measurements", (block,))
    assert f"blocks {block} " in found.reason


def test_changed_firmware_is_refused_until_leaf_and_manifests_are_issued_anew(
    world: GpuWorld, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_manifests = world.given()
    (site / "gpu_agent/hardware/backdoor.py").write_text("x = 1\n")
    changed = measure_firmware(site)
    monkeypatch.setattr("gpu_agent.hardware.root_of_trust.measure_firmware", lambda: changed)
    monkeypatch.setattr(device_manufacture, "measure_firmware", lambda: changed)
    booted = GpuWorld(world.folder, boot(world.folder, foreign=changed))
    with pytest.raises(VerificationFailed) as caught:
        booted.verify()
    assert caught.value.code == "gpu-fwid"
    # Honest code says so itself, at its start, and where it is mended.
    with pytest.raises(ConfigurationError) as refused:
        boot(world.folder)
    assert (refused.value.code, refused.value.got) == ("bad-device", changed.fwid.hex())
    assert "manufacture again" in str(refused.value.remedy)

    manufacture_device(world.folder, "gpu-0")
    renewed = GpuWorld(world.folder, boot(world.folder))
    assert renewed.verify().device == world.rot.device
    assert renewed.rot.chain_pem != world.rot.chain_pem
    with pytest.raises(VerificationFailed) as caught:
        renewed.verify(trust=old_manifests)
    assert caught.value.code == "gpu-measurements"
    assert "blocks 2 " in caught.value.detail


def test_the_untrusted_host_is_no_part_of_the_device(site: Path) -> None:
    before = measure_firmware(site)
    (site / "gpu_agent/platform/new.py").write_text("x = 1\n")
    (site / "gpu_agent/hardware/__pycache__").mkdir()
    (site / "gpu_agent/hardware/__pycache__/x.pyc").write_bytes(b"x")
    assert measure_firmware(site) == before


def test_code_that_is_absent_cannot_be_measured(site: Path) -> None:
    shutil.rmtree(site / "gpu_agent/hardware")
    with pytest.raises(ConfigurationError):
        measure_firmware(site)


def _unreadable(folder: Path) -> None:
    (folder / "leaf.pem").unlink()


def _open_to_others(folder: Path) -> None:
    (folder / "leaf.pem").chmod(0o644)


def _another_leaf(folder: Path) -> None:
    shutil.copy(folder.parent / "gpu-1/leaf.pem", folder / "leaf.pem")


def _no_key(folder: Path) -> None:
    (folder / "leaf.pem").write_text("nothing")


def _no_chain(folder: Path) -> None:
    (folder / "chain.pem").write_text("nothing")


@pytest.mark.parametrize("damage", [_unreadable, _open_to_others, _another_leaf, _no_key, _no_chain])
def test_a_damaged_device_does_not_boot(world: GpuWorld, damage: Callable[[Path], None]) -> None:
    manufacture_device(world.folder, "gpu-1")
    damage(world.folder / "devices/gpu-0")
    with pytest.raises(ConfigurationError):
        boot(world.folder)


@pytest.mark.parametrize("damage", [_unreadable, _no_chain])
def test_an_interrupted_manufacturing_is_completed(world: GpuWorld, damage: Callable[[Path], None]) -> None:
    damage(world.folder / "devices/gpu-0")
    manufacture_device(world.folder, "gpu-0")
    again = GpuWorld(world.folder, boot(world.folder))
    assert again.verify().device == world.rot.device


def test_manufacturing_refuses_bad_names_and_foreign_keys(world: GpuWorld) -> None:
    for name in ("", "../up", "GPU 0"):
        with pytest.raises(ConfigurationError):
            manufacture_device(world.folder, name)
    shutil.copy(world.folder / "devices/gpu-0/leaf.pem", world.folder / "devices/gpu-0/identity.pem")
    with pytest.raises(ConfigurationError):
        manufacture_device(world.folder, "gpu-0")


def test_emulation_is_said_aloud(tmp_path: Path) -> None:
    with pytest.warns(EmulationWarning):
        manufacture_device(tmp_path, "gpu-0", entropy=entropy(3))
    from gpu_agent.hardware.root_of_trust import RootOfTrust

    with pytest.warns(EmulationWarning):
        RootOfTrust.load(tmp_path / "devices/gpu-0", os.urandom)
