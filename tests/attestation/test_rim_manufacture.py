"""The emulated GPU's published reference values: form, names, what makes them change. Knows no session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509

from gpu_agent.hardware.firmware import measure_firmware
from gpu_agent.platform import device_manufacture
from gpu_agent.platform.device_manufacture import manufacture_device
from gpu_agent.platform.rim_manufacture import RIM_INDICES
from shared.attestation.gpu_examination import KINDS
from shared.attestation.gpu_rim import parse_rim
from shared.errors import VerificationFailed
from tests.attestation.gpu_evidence_world import GpuWorld, copied_code

pytestmark = pytest.mark.filterwarnings("ignore::shared.errors.EmulationWarning")


@pytest.fixture
def world(tmp_path: Path) -> GpuWorld:
    return GpuWorld.make(tmp_path)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return copied_code(tmp_path / "site")


def test_a_second_manufacturing_touches_only_the_manifest_that_must_change(
    world: GpuWorld, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {kind: path.read_bytes() for kind, path in world.rims.items()}
    (site / "gpu_agent/workload/more.py").write_text("x = 1\n")
    changed = measure_firmware(site)
    monkeypatch.setattr(device_manufacture, "measure_firmware", lambda: changed)
    manufacture_device(world.folder, "gpu-0")
    after = {kind: path.read_bytes() for kind, path in world.rims.items()}
    assert (before["driver"] != after["driver"], before["vbios"] != after["vbios"]) == (True, False)


def test_every_used_block_is_spoken_of_by_exactly_one_manifest() -> None:
    driver, vbios = (set(RIM_INDICES[kind]) for kind in KINDS)
    assert not driver & vbios
    assert {block - 1 for block in measure_firmware().used} <= driver | vbios
    assert (len(driver), len(vbios)) == (21, 12)  # as published for the 550.90.07 generation


def test_manifests_have_the_published_form_and_emulated_names(world: GpuWorld) -> None:
    assert {path.name for path in world.rims.values()} == {
        "NV_GPU_DRIVER_GH100_580.000.01.xml", "NV_GPU_VBIOS_GPUT_0001_EMULATED_00EE000001.xml",
    }  # fmt: skip
    for kind, path in world.rims.items():
        rim = parse_rim(kind, path.read_bytes())
        assert (rim.product, rim.manufacturer, len(rim.golden) + len(rim.inactive)) == ("GH100", "0", 64)
        assert b"NVIDIA" not in path.read_bytes()
        assert len(rim.chain.certificates) == 4
        assert all("EMULATED" in link.subject.rfc4514_string() for link in rim.chain.certificates)
    assert {path.name for path in (world.folder / "platform/gpu").iterdir()} == {
        "provisioner.pem", "chain.pem", "rim-authority.pem", "rim-chain.pem",
    }  # fmt: skip


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data.replace(b'active="True"', b'active="False"', 1)]
)
def test_a_damaged_manifest_is_made_anew(world: GpuWorld, damage: Callable[[bytes], bytes]) -> None:
    path = world.rims["vbios"]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(VerificationFailed):
        world.verify()
    manufacture_device(world.folder, "gpu-0")
    world.verify()


PUBLISHED_EXTENSIONS = [
    {"keyUsage!", "subjectKeyIdentifier", "authorityKeyIdentifier", "subjectAltName", "2.23.133.5.4.1"},
    {"basicConstraints!", "keyUsage!", "subjectKeyIdentifier", "authorityKeyIdentifier"},
    *[{"basicConstraints!", "keyUsage!", "cRLDistributionPoints", "authorityInfoAccess", "subjectKeyIdentifier",
       "authorityKeyIdentifier"}] * 2,
    {"basicConstraints!", "keyUsage!", "subjectKeyIdentifier", "authorityKeyIdentifier"},
]  # fmt: skip
PUBLISHED_RIM_EXTENSIONS = [
    {"basicConstraints!", "keyUsage!", "authorityInfoAccess", "subjectKeyIdentifier", "authorityKeyIdentifier"},
    {"basicConstraints!", "keyUsage!", "authorityInfoAccess", "subjectKeyIdentifier", "authorityKeyIdentifier"},
    PUBLISHED_EXTENSIONS[3],
    PUBLISHED_EXTENSIONS[4],
]


def named_extensions(certificate: x509.Certificate) -> set[str]:
    """Names ("!" when critical), dotted where there is no name."""
    found = ((known.oid, "!" if known.critical else "") for known in certificate.extensions)
    return {(oid.dotted_string if oid._name == "Unknown OID" else oid._name) + mark for oid, mark in found}


def test_certificates_carry_the_published_extensions(world: GpuWorld) -> None:
    chain = x509.load_pem_x509_certificates(world.rot.chain_pem.encode())
    assert [named_extensions(certificate) for certificate in chain] == PUBLISHED_EXTENSIONS
    rim = parse_rim("driver", world.rims["driver"].read_bytes())
    assert [named_extensions(certificate) for certificate in rim.chain.certificates] == PUBLISHED_RIM_EXTENSIONS
