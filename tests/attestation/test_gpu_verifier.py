"""The verifier of GPU evidence: one genuine device, and every way in which it could be another. Knows no session."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from gpu_agent.platform import device_pki as pki
from shared.attestation.gpu_chain import parse_chain
from shared.attestation.gpu_examination import KINDS
from shared.attestation.gpu_policy import GpuTrust
from shared.attestation.gpu_rim import parse_rim
from shared.attestation.gpu_verifier import GpuPolicy, GpuRoots, VerifiedGpu
from shared.attestation.p384_chain import check_links
from shared.attestation.results import CheckStatus
from shared.crypto import ecc
from shared.errors import BadRequest, ConfigurationError, VerificationFailed
from shared.names import Backend
from tests.adversary.rows import attack
from tests.attestation.gpu_evidence_world import EMULATED, Factory, GpuWorld

RIM_CHECKS = ["", "-version", "-chain", "-signature"]
RECIPE = [
    "layout", "certificates", "root", "links", "device-id", "firmware-id", "nonce", "signature", "device-type", "feature-flag",
    *(f"{kind}-rim{check}" for kind in KINDS for check in RIM_CHECKS), "rim-indices", "measurements",
    "certificate-time", "driver-rim-time", "vbios-rim-time", "ocsp", "driver-rim-ocsp", "vbios-rim-ocsp",
    "root-set", "device", "agreed-measurements",
]  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> GpuWorld:
    return GpuWorld.make(tmp_path_factory.mktemp("gpu"))


def refusal(world: GpuWorld, **arguments: Any) -> str:
    with pytest.raises(VerificationFailed) as caught:
        world.verify(**arguments)
    return caught.value.code


def test_a_genuine_device(world: GpuWorld) -> None:
    gpu = world.verify()
    assert (gpu.root_set, gpu.backend, gpu.device) == ("EMULATED", Backend.EMULATED, world.rot.device)
    assert [check.name for check in gpu.appraisal.examination] == RECIPE
    assert {check.name for check in gpu.appraisal.examination if check.status is not CheckStatus.PASS} == {
        "ocsp", "driver-rim-ocsp", "vbios-rim-ocsp",
    }  # fmt: skip
    assert gpu.appraisal.examination.find("measurements").reason == "32 blocks compared with driver and vbios RIM"
    assert gpu.appraisal.examination.find("root").reason == "root set EMULATED"
    assert gpu.report_digest != gpu.chain_digest
    assert len(world.report()) == 4130
    agreed = dataclasses.replace(EMULATED, measurements=(gpu.measurements_digest,))
    assert world.verify(policy=agreed).measurements_digest == gpu.measurements_digest


def test_only_the_verifier_mints(world: GpuWorld) -> None:
    gpu = world.verify()
    with pytest.raises(TypeError):
        dataclasses.replace(gpu, backend=Backend.HARDWARE, root_set="NVIDIA")
    with pytest.raises(TypeError):
        VerifiedGpu(**{f.name: getattr(gpu, f.name) for f in dataclasses.fields(gpu)})


def test_emulated_needs_both_switches(world: GpuWorld) -> None:
    assert refusal(world, policy=GpuPolicy()) == "gpu-root-set"
    assert refusal(world, policy=GpuPolicy(roots=("EMULATED",))) == "gpu-emulated"
    assert refusal(world, policy=GpuPolicy(roots=("NVIDIA",), allow_emulated=True)) == "gpu-root-set"
    assert refusal(world, policy=GpuPolicy(roots=(), allow_emulated=True)) == "gpu-root-set"


@attack("V16", any="stopped: a fresh nonce in every report")
def test_another_nonce_time_or_agreement(world: GpuWorld) -> None:
    assert refusal(world, nonce=bytes(32)) == "gpu-nonce"
    assert refusal(world, at=1_000_000_000.0) == "gpu-chain-expired"
    assert refusal(world, policy=dataclasses.replace(EMULATED, measurements=("00" * 48,))) == "gpu-measurements"
    with pytest.raises(BadRequest):
        world.verify(nonce=b"short")
    unasked = world.examine(nonce=None).examination
    assert unasked.refused(EMULATED.tolerated()) == unasked.find("nonce")


def test_everything_that_can_be_judged_is(world: GpuWorld) -> None:
    """One failure hides no other, and a report that cannot be read leaves the chain to be judged."""
    both = world.examine(nonce=bytes(32), at=1_000_000_000.0).examination
    assert {c.name for c in both if c.status is CheckStatus.FAIL} == {"nonce"}
    assert {c.name for c in both if c.status is CheckStatus.EXPIRED} == {
        "certificate-time", "driver-rim-time", "vbios-rim-time",
    }  # fmt: skip
    unread = world.examine(report=b"nothing").examination
    assert [c.name for c in unread if c.status is CheckStatus.FAIL] == ["layout"]
    assert unread.find("links").status is CheckStatus.PASS
    assert unread.find("signature").status is CheckStatus.NOT_CHECKED
    assert unread.refused(EMULATED.tolerated()) == unread.find("layout")
    neither = world.examine(report=b"", chain="").examination
    assert [c.name for c in neither if c.status is CheckStatus.PASS] == []


def test_what_is_remembered_is_judged_in_time_anew(world: GpuWorld) -> None:
    """A visit does not pay for chains and manifests that were verified before; their validity, and their bytes, count each time."""
    trust = world.trust
    world.verify(trust=trust)
    before = [remembered.cache_info().misses for remembered in (check_links, parse_chain, parse_rim)]
    world.verify(trust=trust)
    assert refusal(world, trust=trust, at=1_000_000_000.0) == "gpu-chain-expired"
    assert [remembered.cache_info().misses for remembered in (check_links, parse_chain, parse_rim)] == before
    path = world.rims["driver"]
    genuine = path.read_bytes()
    path.write_bytes(genuine.replace(b'active="False"', b'active="True"', 1))
    assert refusal(world, trust=trust) == "gpu-rim-signature"
    path.write_bytes(genuine)
    world.verify(trust=trust)


@pytest.mark.parametrize("at", [45 + 55 + 10, 3570, 3600, 3990, -1, -96])
def test_one_changed_byte_of_the_report(world: GpuWorld, at: int) -> None:
    report = bytearray(world.report())
    report[at] ^= 1
    with pytest.raises(VerificationFailed):
        world.verify(bytes(report))


def test_another_key_signed(world: GpuWorld) -> None:
    assert refusal(world, report=world.resigned(Factory().leaf.key)) == "gpu-signature"


def test_another_device_of_the_same_maker_is_told_apart(world: GpuWorld, tmp_path: Path) -> None:
    other = GpuWorld.make(tmp_path, seed=50)
    assert refusal(world, chain=other.rot.chain_pem) == "gpu-root-unknown"
    both = GpuRoots.load(
        (world.folder / "trust/gpu-roots.pem").read_bytes() + (tmp_path / "trust/gpu-roots.pem").read_bytes()
    )
    trust = GpuTrust(both, world.trust.rim_roots, world.trust.rims)
    assert refusal(world, chain=other.rot.chain_pem, trust=trust) == "gpu-signature"
    known = dataclasses.replace(EMULATED, device=world.rot.device)
    assert world.verify(policy=known).device == world.rot.device
    theirs = GpuTrust(both, other.trust.rim_roots, other.trust.rims)
    assert other.verify(trust=theirs).device != world.rot.device
    assert refusal(other, trust=theirs, policy=known) == "gpu-device"


def test_firmware_that_the_leaf_does_not_certify(world: GpuWorld) -> None:
    assert refusal(world, report=world.resigned(FWID=b"x" * 48)) == "gpu-fwid"
    old = world.resigned(FWID=None)
    assert refusal(world, report=old) == "gpu-fwid"
    assert world.examine(report=old).examination.find("firmware-id").status is CheckStatus.NOT_CHECKED


@attack("V08", any="stopped: confidential computing off or in developer mode is refused")
@pytest.mark.parametrize(
    "fields",
    [
        {"FEATURE_FLAG": b"\1\0"},
        {"FEATURE_FLAG": b"\3\0"},
        {"FEATURE_FLAG": b"\2\0", "PROTECTED_PCIE_STATUS": b"\xaa"},
        {"PROTECTED_PCIE_STATUS": b"\xaa"},  # contradicts flag 0
        {"FEATURE_FLAG": None, "PROTECTED_PCIE_STATUS": b"\xaa"},  # firmware without flag tells it by this field
    ],
)
def test_feature_flag(world: GpuWorld, fields: dict[str, bytes | None]) -> None:
    assert refusal(world, report=world.resigned(**fields)) == "gpu-feature-flag"


# ------------------------------------------------------------------ chains


def test_a_chain_of_our_making_is_accepted() -> None:
    assert Factory().refusal() == "accepted"


@pytest.mark.parametrize("drop", range(5))
def test_a_missing_certificate(drop: int) -> None:
    factory = Factory()
    levels = [level for number, level in enumerate(factory.levels) if number != drop]
    assert factory.refusal(chain=factory.pem(levels)) == "gpu-chain-malformed"


@pytest.mark.parametrize("swap", range(1, 4))
def test_a_certificate_of_another_chain(swap: int) -> None:
    factory, other = Factory(), Factory()
    levels = list(factory.levels)
    levels[swap] = other.levels[swap]
    assert factory.refusal(chain=factory.pem(levels)) == "gpu-chain-broken"


@attack("V08", any="stopped: roots by fingerprint")
def test_a_self_consistent_chain_under_a_foreign_root() -> None:
    factory, other = Factory(), Factory()
    assert factory.root.certificate.subject == other.root.certificate.subject  # the name alone says nothing
    assert factory.refusal(other.report(), other.pem()) == "gpu-root-unknown"


def test_a_leaf_that_may_issue() -> None:
    def authority(identity: pki.Issued, fwid: bytes) -> pki.Issued:
        return pki.make_identity(identity, b"\x02" * 8)

    assert Factory(leaf=authority).refusal() == "gpu-chain-broken"


def test_an_identity_that_may_not_issue(monkeypatch: pytest.MonkeyPatch) -> None:
    true = pki._authority

    def powerless(builder: x509.CertificateBuilder, *, crl_sign: bool, **options: Any) -> x509.CertificateBuilder:
        if crl_sign:
            return true(builder, crl_sign=True, **options)
        return builder.add_extension(pki._usage(digital_signature=True), critical=True)

    monkeypatch.setattr(pki, "_authority", powerless)
    assert Factory().refusal() == "gpu-chain-broken"


def test_a_switch_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pki, "GPU_IDENTITY", 0x50)
    assert Factory().refusal() == "gpu-device-type"


def test_a_device_id_that_is_not_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    true = pki.dice_extension
    stranger = ecc.private_key(lambda size: b"\x07" * size).public_key()
    monkeypatch.setattr(pki, "dice_extension", lambda _key, fwid: true(stranger, fwid))
    assert Factory().refusal() == "gpu-device-id"


@pytest.mark.parametrize(
    "chain",
    [
        "",
        "nonsense",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "x" * 6000,
        "\ud800",
    ],
)
def test_no_chain_at_all(world: GpuWorld, chain: str) -> None:
    assert refusal(world, chain=chain) == "gpu-chain-malformed"


@pytest.mark.parametrize("extra", ["trailing words", "-----BEGIN X-----\nAAAA\n-----END X-----\n"])
def test_something_beside_the_certificates(world: GpuWorld, extra: str) -> None:
    assert refusal(world, chain=world.rot.chain_pem + extra) == "gpu-chain-malformed"
    assert refusal(world, chain=extra + "\n" + world.rot.chain_pem) == "gpu-chain-malformed"
    world.verify(chain=world.rot.chain_pem + "\0\0")  # NVML's buffer is padded


def test_every_byte_class_of_the_chain_counts(world: GpuWorld) -> None:
    lines = world.rot.chain_pem.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("-----") or number % 5:
            continue
        other = "A" if line[7] != "A" else "B"
        changed = "\n".join([*lines[:number], line[:7] + other + line[8:], *lines[number + 1 :]])
        with pytest.raises(VerificationFailed):
            world.verify(chain=changed)


def test_roots_are_not_interchangeable() -> None:
    factory = Factory()
    with pytest.raises(ConfigurationError):
        GpuTrust(factory.rims.roots, factory.roots, factory.trust.rims)  # swapped
    for authority, purpose in ((factory.rims.root, "device"), (factory.root, "rim")):
        with pytest.raises(ConfigurationError):
            GpuRoots.load(pki.certificate_pem(authority.certificate), purpose)  # type: ignore[arg-type]
