"""The verifier of GPU evidence: one genuine device, and every way in which it could be another. Knows no session."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from gpu_agent.hardware.firmware import measure_firmware
from gpu_agent.platform import device_pki as pki
from shared.attestation.gpu_report import Opaque, parse_report, unsigned_report
from shared.attestation.gpu_verifier import (
    CHECKS,
    GpuProfile,
    GpuReference,
    GpuRoots,
    VerifiedGpu,
    verify_gpu_evidence,
)
from shared.crypto import ecc
from shared.errors import BadRequest, VerificationFailed
from shared.names import Backend
from shared.wire.spdm import get_measurements
from tests.attestation.gpu_evidence_world import AT, NONCE, Factory, GpuWorld


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> GpuWorld:
    return GpuWorld.make(tmp_path_factory.mktemp("gpu"))


def refusal(world: GpuWorld, **arguments: Any) -> str:
    with pytest.raises(VerificationFailed) as caught:
        world.verify(**arguments)
    return caught.value.code


def resigned(world: GpuWorld, key: Any, **opaque: bytes) -> bytes:
    """The world's report with other opaque fields, signed by `key`."""
    report = parse_report(world.report())
    fields = dict(report.opaque) | {Opaque[name]: value for name, value in opaque.items()}
    data = unsigned_report(get_measurements(NONCE), report.measurements, b"r" * 32, fields)
    return data + ecc.sign(key, data)


def test_a_genuine_device(world: GpuWorld) -> None:
    gpu = world.verify()
    assert (gpu.root_set, gpu.backend, gpu.device) == ("EMULATED", Backend.EMULATED, world.rot.device)
    assert gpu.checks == CHECKS
    assert gpu.report_digest != gpu.chain_digest
    assert len(world.report()) == 4130
    assert world.verify(measurements=(gpu.measurements_digest,)).measurements_digest == gpu.measurements_digest


def test_only_the_verifier_mints(world: GpuWorld) -> None:
    gpu = world.verify()
    with pytest.raises(TypeError):
        dataclasses.replace(gpu, backend=Backend.HARDWARE, root_set="NVIDIA")
    with pytest.raises(TypeError):
        VerifiedGpu(**{f.name: getattr(gpu, f.name) for f in dataclasses.fields(gpu)})


def test_emulated_needs_both_switches(world: GpuWorld) -> None:
    assert refusal(world, allow_emulated=False) == "gpu-emulated"
    assert refusal(world, allowed_roots=("NVIDIA",)) == "gpu-root-set"
    assert refusal(world, allowed_roots=()) == "gpu-root-set"


def test_another_nonce_time_or_agreement(world: GpuWorld) -> None:
    assert refusal(world, nonce=bytes(32)) == "gpu-nonce"
    assert refusal(world, at=1_000_000_000.0) == "gpu-chain-expired"
    assert refusal(world, measurements=("00" * 48,)) == "gpu-measurements"
    with pytest.raises(BadRequest):
        world.verify(nonce=b"short")


@pytest.mark.parametrize("at", [45 + 55 + 10, 3570, 3600, 3990, -1, -96])
def test_one_changed_byte_of_the_report(world: GpuWorld, at: int) -> None:
    report = bytearray(world.report())
    report[at] ^= 1
    with pytest.raises((VerificationFailed, BadRequest)):
        world.verify(bytes(report))


def test_another_key_signed(world: GpuWorld) -> None:
    other = Factory()
    assert refusal(world, report=resigned(world, other.leaf.key)) == "gpu-signature"


def test_another_device_of_the_same_maker_is_told_apart(world: GpuWorld, tmp_path: Path) -> None:
    other = GpuWorld.make(tmp_path, seed=50)
    assert refusal(world, chain=other.rot.chain_pem) == "gpu-root-unknown"
    both = GpuRoots.load(
        (world.folder / "trust/gpu-roots.pem").read_bytes() + (tmp_path / "trust/gpu-roots.pem").read_bytes()
    )
    assert refusal(world, chain=other.rot.chain_pem, roots=both) == "gpu-signature"
    assert other.verify(roots=both).device != world.verify(roots=both).device


def test_firmware_that_the_leaf_does_not_certify() -> None:
    factory = Factory()
    fields = {"fwid": b"x" * 48}
    report, chain = _evidence(factory, **fields)
    code = _refusal(factory, report, chain)
    assert code == "gpu-fwid"
    report, chain = _evidence(factory, drop=Opaque.FWID)
    assert _refusal(factory, report, chain) == "gpu-fwid"


def test_feature_flag() -> None:
    factory = Factory()
    assert _refusal(factory, *_evidence(factory, flag=b"\1\0")) == "gpu-feature-flag"


def _evidence(
    factory: Factory, *, fwid: bytes | None = None, flag: bytes = b"\0\0", drop: Opaque | None = None
) -> tuple[bytes, str]:
    firmware = measure_firmware()
    fields: dict[int, bytes] = {
        Opaque.VBIOS_VERSION: bytes(8), Opaque.DRIVER_VERSION: b"1.0\0", Opaque.GPU_INFO: bytes(8), Opaque.NVDEC0_STATUS: b"\x55",
        Opaque.FWID: firmware.fwid if fwid is None else fwid, Opaque.FEATURE_FLAG: flag,
    }  # fmt: skip
    if drop is not None:
        del fields[drop]
    data = unsigned_report(get_measurements(NONCE), firmware.measurements, b"r" * 32, fields)
    return data + ecc.sign(factory.leaf.key, data), factory.pem()


def _refusal(factory: Factory, report: bytes, chain: str) -> str:
    values = {str(block): (value.hex(),) for block, value in measure_firmware().used.items()}
    reference = GpuReference((GpuProfile(driver_version="1.0", vbios_version="00.00.00.00.00", measurements=values),))
    try:
        verify_gpu_evidence(
            report, chain, nonce=NONCE, roots=factory.roots, reference=reference, allowed_roots=("EMULATED",),
            allow_emulated=True, at=AT,
        )  # fmt: skip
    except VerificationFailed as error:
        return error.code
    return "accepted"


def test_measurements_name_the_blocks_that_differ(world: GpuWorld) -> None:
    profile = world.reference.profiles[0]
    changed = dict(profile.measurements)
    changed |= {"2": ("ab" * 48,), "10": ("cd" * 48, "ef" * 48)}
    other = GpuReference((profile.model_copy(update={"measurements": changed}),))
    with pytest.raises(VerificationFailed) as caught:
        world.verify(reference=other)
    assert caught.value.code == "gpu-measurements"
    assert "blocks 2, 10" in caught.value.detail
    assert refusal(world, reference=GpuReference(())) == "gpu-reference-missing"
    alternatives = changed | {"2": ("ab" * 48, *profile.measurements["2"]), "10": profile.measurements["10"]}
    world.verify(reference=GpuReference((profile.model_copy(update={"measurements": alternatives}),)))


# ------------------------------------------------------------------ chains


def test_a_chain_of_our_making_is_accepted() -> None:
    factory = Factory()
    assert _refusal(factory, *_evidence(factory)) == "accepted"


@pytest.mark.parametrize("drop", range(5))
def test_a_missing_certificate(drop: int) -> None:
    factory = Factory()
    levels = [level for number, level in enumerate(factory.levels) if number != drop]
    assert _refusal(factory, _evidence(factory)[0], factory.pem(levels)) == "gpu-chain-malformed"


@pytest.mark.parametrize("swap", range(1, 4))
def test_a_certificate_of_another_chain(swap: int) -> None:
    factory, other = Factory(), Factory()
    levels = list(factory.levels)
    levels[swap] = other.levels[swap]
    assert _refusal(factory, _evidence(factory)[0], factory.pem(levels)) == "gpu-chain-broken"


def test_a_self_consistent_chain_under_a_foreign_root() -> None:
    factory, other = Factory(), Factory()
    assert factory.root.certificate.subject == other.root.certificate.subject  # the name alone says nothing
    assert _refusal(factory, *_evidence(other)) == "gpu-root-unknown"


def test_a_leaf_that_may_issue() -> None:
    def authority(identity: pki.Issued, fwid: bytes) -> pki.Issued:
        return pki.make_identity(identity, b"\x02" * 8)

    factory = Factory(leaf=authority)
    assert _refusal(factory, *_evidence(factory)) == "gpu-chain-broken"


def test_an_identity_that_may_not_issue(monkeypatch: pytest.MonkeyPatch) -> None:
    true = pki._authority

    def powerless(builder: x509.CertificateBuilder, *, crl_sign: bool) -> x509.CertificateBuilder:
        if crl_sign:
            return true(builder, crl_sign=True)
        return builder.add_extension(pki._usage(digital_signature=True), critical=True)

    monkeypatch.setattr(pki, "_authority", powerless)
    factory = Factory()
    assert _refusal(factory, *_evidence(factory)) == "gpu-chain-broken"


def test_a_switch_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pki, "GPU_IDENTITY", 0x50)
    factory = Factory()
    assert _refusal(factory, *_evidence(factory)) == "gpu-device-type"


def test_a_device_id_that_is_not_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    true = pki.dice_extension
    stranger = ecc.private_key(lambda size: b"\x07" * size).public_key()
    monkeypatch.setattr(pki, "dice_extension", lambda _key, fwid: true(stranger, fwid))
    factory = Factory()
    assert _refusal(factory, *_evidence(factory)) == "gpu-device-id"


@pytest.mark.parametrize(
    "chain", ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "x" * 6000, "\ud800"]
)
def test_no_chain_at_all(world: GpuWorld, chain: str) -> None:
    assert refusal(world, chain=chain) == "gpu-chain-malformed"


def test_every_byte_class_of_the_chain_counts(world: GpuWorld) -> None:
    der = x509.load_pem_x509_certificates(world.rot.chain_pem.encode())
    pem = world.rot.chain_pem
    lines = pem.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("-----") or number % 5:
            continue
        at = 7
        other = "A" if line[at] != "A" else "B"
        changed = "\n".join([*lines[:number], line[:at] + other + line[at + 1 :], *lines[number + 1 :]])
        with pytest.raises(VerificationFailed):
            world.verify(chain=changed)
    assert len(der) == 5
