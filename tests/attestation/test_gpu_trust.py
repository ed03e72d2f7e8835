"""What verifiers of GPU evidence are configured with, and the statement key that a verified leaf certifies. Knows no session."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cryptography import x509

from gpu_agent.platform import device_pki as pki
from shared.attestation.gpu_verifier import GpuRoots, GpuTrust, verify_statement_key
from shared.canonical import cbor_bytes, sha256
from shared.crypto import ecc
from shared.crypto.cose import p384_point, sign1
from shared.crypto.signing import PartyKey
from shared.errors import BadRequest, ConfigurationError, VerificationFailed
from tests.attestation.gpu_evidence_world import Factory, GpuWorld


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> GpuWorld:
    return GpuWorld.make(tmp_path_factory.mktemp("gpu"))


def test_roots_name_their_set(world: GpuWorld) -> None:
    assert set(world.trust.roots.sets.values()) == {"EMULATED"}
    key = ecc.private_key(lambda size: b"\x09" * size)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "NVIDIA Device Identity CA")])
    builder = pki._authority(pki._builder(name, name, key.public_key(), key.public_key(), 5), crl_sign=True)
    forged = pki.certificate_pem(builder.sign(key, pki.hashes.SHA384()))
    with pytest.raises(ConfigurationError):
        GpuRoots.load(forged)
    with pytest.raises(ConfigurationError):
        GpuRoots.load(forged, "rim")
    for source in (b"", b"text", Path("/absent/gpu-roots.pem")):
        with pytest.raises(ConfigurationError):
            GpuRoots.load(source)


@pytest.mark.parametrize("name", ["gpu-roots.pem", "rim-roots.pem"])
def test_a_trust_folder_without_roots(world: GpuWorld, tmp_path: Path, name: str) -> None:
    shutil.copytree(world.folder / "trust", tmp_path / "trust")
    (tmp_path / "trust" / name).unlink()
    with pytest.raises(ConfigurationError):
        GpuTrust.load(tmp_path / "trust")


def test_statement_key(world: GpuWorld) -> None:
    gpu = world.verify()
    key = verify_statement_key(gpu, world.rot.statement_certificate)
    assert key == world.rot.statement_key.public
    kid = sha256(p384_point(gpu.leaf))
    stranger = Factory().leaf.key
    older = ["gput/statement-key", bytes(32), p384_point(stranger.public_key())]
    certificate = sign1(cbor_bytes(older), world.rot._leaf, kid=kid)
    assert verify_statement_key(gpu, certificate) == stranger.public_key(), "of a device of an earlier release"
    good = ["gput/statement-key", bytes(32), PartyKey.generate().public]
    with pytest.raises(VerificationFailed):
        verify_statement_key(gpu, sign1(cbor_bytes(good), stranger, kid=kid))
    for payload in (
        ["gput/other", *good[1:]],
        good[:2],
        [good[0], b"short", good[2]],
        [good[0], good[1], b"\x04" * 97],
        [good[0], good[1], good[2][:31]],
        [good[0], good[1], good[2] + b"\0"],
        {},
    ):
        with pytest.raises((VerificationFailed, BadRequest)):
            verify_statement_key(gpu, sign1(cbor_bytes(payload), world.rot._leaf, kid=kid))
