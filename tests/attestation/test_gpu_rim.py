"""Reference values in a verification: who may sign them, for which device, what is compared, where they come from. Knows no session."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID

from gpu_agent.platform import device_pki as pki
from shared.attestation.gpu_examination import examine_gpu_evidence
from shared.attestation.gpu_policy import GpuTrust
from shared.attestation.gpu_report import parse_report
from shared.attestation.gpu_rim import parse_rim, rim_name
from shared.attestation.gpu_trust import GpuRoots
from shared.attestation.gpu_verifier import GpuPolicy
from shared.attestation.results import Check, CheckStatus
from shared.attestation.rim_store import RimFolder
from shared.claims.manifest import GpuRules
from shared.errors import NotFound, VerificationFailed
from tests.attestation.given_rims import GivenRims
from tests.attestation.gpu_evidence_world import AT, EMULATED, NONCE, Factory, GpuWorld, RimAuthority
from tests.attestation.gpu_samples import CASES, content, needs_samples

FACTORY = Factory()
RIMS = FACTORY.rims


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> GpuWorld:
    return GpuWorld.make(tmp_path_factory.mktemp("gpu"))


def trusting(driver: bytes | None = None, vbios: bytes | None = None, roots: GpuRoots | None = None) -> GpuTrust:
    given = GivenRims(driver or RIMS.make("driver"), vbios or RIMS.make("vbios"))
    return GpuTrust(FACTORY.roots, roots or RIMS.roots, given)


def refusal(
    driver: bytes | None = None, vbios: bytes | None = None, roots: GpuRoots | None = None, **options: Any
) -> str:
    return FACTORY.refusal(trust=trusting(driver, vbios, roots), **options)


def issued(
    issuer: pki.Issued, subject: pki.Issued, *, until: datetime | None = None, **extra: x509.ExtensionType
) -> pki.Issued:
    """`subject` certified once more by `issuer`, with another end or further extensions."""
    old = subject.certificate
    builder = x509.CertificateBuilder(
        issuer.certificate.subject, old.subject, subject.key.public_key(), old.serial_number, pki._NOT_BEFORE,
        until or pki._NO_END, list(old.extensions),
    )  # fmt: skip
    for extension in extra.values():
        builder = builder.add_extension(extension, critical=False)
    return pki.Issued(builder.sign(issuer.key, hashes.SHA384()), subject.key)


# ------------------------------------------------------------------ who may sign


def test_manifests_of_our_making_are_accepted() -> None:
    assert refusal() == "accepted"


def test_the_root_may_be_left_out_of_a_manifest() -> None:
    assert refusal(RIMS.make("driver", above=RIMS.above[:-1])) == "accepted"
    assert refusal(RIMS.make("driver", above=RIMS.above[:-2])) == "gpu-driver-rim-root-unknown"
    assert refusal(RIMS.make("driver", above=[])) == "gpu-driver-rim-root-unknown"


def test_a_stranger_with_the_same_names() -> None:
    stranger = RimAuthority()
    assert stranger.root.certificate.subject == RIMS.root.certificate.subject
    assert refusal(vbios=stranger.make("vbios")) == "gpu-vbios-rim-root-unknown"
    assert refusal(vbios=stranger.make("vbios", above=stranger.above[:-1])) == "gpu-vbios-rim-root-unknown"
    mixed = [stranger.authority.certificate, RIMS.product.certificate, RIMS.root.certificate]
    assert refusal(vbios=stranger.make("vbios", above=mixed)) == "gpu-vbios-rim-chain-broken"


def test_a_device_root_signs_no_manifest() -> None:
    """The whole chain is genuine, but for devices."""
    device = FACTORY.levels
    signer = pki.make_rim_signer(device[2])
    above = [level.certificate for level in device[2:]]
    assert refusal(RIMS.make("driver", signer=signer, above=above)) == "gpu-driver-rim-root-unknown"


def test_a_responder_of_the_same_authority_signs_no_manifest() -> None:
    purpose = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.OCSP_SIGNING])
    responder = issued(RIMS.authority, RIMS.signer, purpose=purpose)
    assert refusal(RIMS.make("driver", signer=responder)) == "gpu-driver-rim-chain-broken"


def test_an_authority_signs_no_manifest_itself() -> None:
    assert refusal(RIMS.make("driver", signer=RIMS.authority, above=RIMS.above[1:])) == "gpu-driver-rim-chain-broken"


def test_a_signer_that_issues_another() -> None:
    below = pki.make_rim_signer(RIMS.signer)
    data = RIMS.make("driver", signer=below, above=[RIMS.signer.certificate, *RIMS.above])
    assert refusal(data) == "gpu-driver-rim-chain-broken"
    longer = pki.make_intermediate(RIMS.authority, "L3b")  # the L3 allows no authority below it
    signer = pki.make_rim_signer(longer)
    assert (
        refusal(RIMS.make("driver", signer=signer, above=[longer.certificate, *RIMS.above]))
        == "gpu-driver-rim-chain-broken"
    )


def test_an_expired_signer_is_not_called_forged() -> None:
    old = issued(RIMS.authority, RIMS.signer, until=datetime(2024, 6, 1, tzinfo=UTC))
    trust = trusting(RIMS.make("driver", signer=old))
    assert FACTORY.refusal(trust=trust) == "gpu-driver-rim-chain-expired"
    rules = replace(EMULATED, rules=GpuRules(expired_reference_values=True))
    assert FACTORY.refusal(trust=trust, policy=rules) == "accepted"
    before = datetime(2023, 6, 1, tzinfo=UTC).timestamp()
    assert FACTORY.refusal(trust=trust, at=before) == "accepted"
    forged = trusting(RIMS.make("driver", signer=issued(RimAuthority().authority, old)))
    assert FACTORY.refusal(trust=forged, policy=rules) == "gpu-driver-rim-chain-broken"


# ------------------------------------------------------------------ what is compared


@pytest.mark.parametrize("change", [{"version": "580.000.02"}, {"product": "GB100"}])
def test_a_manifest_for_another_version_or_product(change: dict[str, str]) -> None:
    assert refusal(RIMS.make("driver", **change)) == "gpu-rim-version"


def test_one_kind_in_place_of_the_other() -> None:
    assert refusal(RIMS.make("vbios")) == "gpu-rim-version"
    assert refusal(vbios=RIMS.make("driver")) == "gpu-rim-version"


def test_an_index_in_both() -> None:
    measured = FACTORY.firmware.measurements
    vbios = RIMS.make("vbios", golden={1: measured[1], 22: measured[22]})
    assert refusal(vbios=vbios) == "gpu-rim-conflict"


def checked(trust: GpuTrust, name: str, policy: GpuPolicy = EMULATED, report: bytes | None = None) -> Check:
    found = examine_gpu_evidence(
        report or FACTORY.report(), FACTORY.pem(), nonce=NONCE, trust=trust, policy=policy, at=AT
    )
    return found.examination.find(name)


def test_differing_blocks_are_listed_whichever_manifest_names_them() -> None:
    measured = dict(enumerate(FACTORY.firmware.measurements))
    driver = RIMS.make("driver", golden={7: b"\x01" * 48, 22: measured[22], 40: b"\x02" * 48})
    vbios = RIMS.make("vbios", golden={1: measured[1], 5: b"\x03" * 48})
    found = checked(trusting(driver, vbios), "measurements")
    assert (found.status, found.indices) == (CheckStatus.FAIL, (6, 8, 41))
    assert found.expected.startswith(f"6: {'03' * 48}; 8: ")
    assert found.got.startswith(f"6: {measured[5].hex()}; 8: ")


@pytest.mark.parametrize(("nvdec", "status"), [(b"\x55", CheckStatus.PASS), (b"\xaa", CheckStatus.FAIL)])
def test_index_35_counts_only_where_the_decoder_is_on(world: GpuWorld, nvdec: bytes, status: CheckStatus) -> None:
    report = world.resigned(NVDEC0_STATUS=nvdec, values={36: b"\x24" * 48})
    assert world.examine(report).examination.find("measurements").status is status


def test_a_manifest_that_is_not_believed_is_not_compared_with() -> None:
    """It agrees with the report, which must not count; the other one still does."""
    found = checked(trusting(RimAuthority().make("driver")), "measurements")
    assert (found.status, found.reason) == (CheckStatus.PASS, "12 blocks compared with vbios RIM")
    neither = trusting(RimAuthority().make("driver"), RimAuthority().make("vbios"))
    assert checked(neither, "measurements").status is CheckStatus.NOT_CHECKED


def test_without_manifests_nothing_is_accepted_unless_somebody_only_looks() -> None:
    for rims in (GivenRims(), GivenRims(driver=RIMS.make("driver")), GivenRims(vbios=RIMS.make("vbios"))):
        trust = GpuTrust(FACTORY.roots, RIMS.roots, rims)
        assert FACTORY.refusal(trust=trust) == "gpu-rim-missing"
        assert FACTORY.refusal(trust=trust, policy=replace(EMULATED, unappraised=True)) == "accepted"
    name = "NV_GPU_DRIVER_GH100_580.000.01"
    assert checked(GpuTrust(FACTORY.roots, RIMS.roots, GivenRims()), "driver-rim").expected == name
    wrong = GivenRims(RIMS.make("driver", golden={7: b"\x01" * 48}))
    assert FACTORY.refusal(
        trust=GpuTrust(FACTORY.roots, RIMS.roots, wrong), policy=replace(EMULATED, unappraised=True)
    ) == "gpu-measurements"  # fmt: skip


# ------------------------------------------------------------------ where they come from


def test_folder(world: GpuWorld, tmp_path: Path) -> None:
    folder = RimFolder(tmp_path / "rim", RIMS.roots)
    assert folder.find("driver", "NV_X") is None
    (tmp_path / "rim").mkdir()
    (tmp_path / "rim" / "NV_X.swidtag").write_bytes(b"one")
    assert folder.find("driver", "NV_X") == b"one"
    (tmp_path / "rim" / "NV_X.xml").write_bytes(b"two")
    assert folder.find("driver", "NV_X") == b"two"
    for name in ("../rim/NV_X", "", ".hidden", "a/b", "a\0b", "x" * 200):
        with pytest.raises(VerificationFailed):
            folder.find("driver", name)
    (tmp_path / "rim" / "NV_Y.xml").mkdir()
    with pytest.raises(VerificationFailed):
        folder.find("driver", "NV_Y")


def test_a_report_cannot_name_a_file_elsewhere(world: GpuWorld) -> None:
    found = world.examine(world.resigned(PROJECT=b"../.\0")).examination.find("vbios-rim")
    assert (found.status, found.code) == (CheckStatus.FAIL, "gpu-rim-name")


def test_fetched_manifests_are_verified_before_they_are_kept(tmp_path: Path) -> None:
    answers = {"NV_GPU_DRIVER_GH100_580.000.01": RIMS.make("driver")}
    asked: list[str] = []

    def fetch(name: str, /) -> bytes:
        asked.append(name)
        if name not in answers:
            raise NotFound(f"no {name}")
        return answers[name]

    folder = RimFolder(tmp_path / "rim", RIMS.roots, fetch)
    (name,) = answers
    assert folder.find("driver", name) == folder.find("driver", name) == answers[name]
    assert asked == [name]  # the second came from the folder
    assert [path.name for path in (tmp_path / "rim").iterdir()] == [f"{name}.xml"]
    missing = checked(GpuTrust(FACTORY.roots, RIMS.roots, folder), "vbios-rim")
    assert (missing.status, missing.code) == (CheckStatus.NOT_CHECKED, "gpu-rim-missing")
    assert "no NV_GPU_VBIOS" in missing.reason
    for bad in (b"no xml", RimAuthority().make("driver"), RIMS.make("driver", version="580.000.02")):
        other = RimFolder(tmp_path / "other", RIMS.roots, lambda name, /, bad=bad: bad)
        with pytest.raises(VerificationFailed):
            other.find("driver", name)
        assert not (tmp_path / "other").exists()


def test_a_file_that_is_no_manifest_is_fetched_anew_where_that_was_switched_on(tmp_path: Path) -> None:
    """What a power cut or a full disk left of one would be refused at every visit, and nobody would be asked."""
    name, sound = "NV_GPU_DRIVER_GH100_580.000.01", RIMS.make("driver")
    for ending in (".xml", ".swidtag"):
        for number, left in enumerate((b"", sound[:100], b"no xml")):
            place = tmp_path / f"{number}{ending}"
            place.mkdir()
            (place / f"{name}{ending}").write_bytes(left)
            assert RimFolder(place, RIMS.roots).find("driver", name) == left, (
                "offline, the verifier says what is wrong with it"
            )
            fetching = RimFolder(place, RIMS.roots, lambda name, /: sound)
            assert fetching.find("driver", name, ask=False) == left
            assert fetching.find("driver", name) == sound
            assert RimFolder(place, RIMS.roots).find("driver", name) == sound, "and is kept"


# ------------------------------------------------------------------ names


@needs_samples
def test_names_of_published_devices() -> None:
    reports = {case["id"][:3]: parse_report(content(case["report"])) for case in CASES}
    assert rim_name("driver", reports["n01"], "GH100") == "NV_GPU_DRIVER_GH100_550.90.07"
    assert rim_name("vbios", reports["n01"], "GH100") == "NV_GPU_VBIOS_1010_0200_882_96009F0001"
    assert rim_name("vbios", reports["n05"], "GH100") == "NV_GPU_VBIOS_1010_0200_882_96005E0001"
    assert rim_name("driver", reports["n08"], "GH100") == "NV_GPU_DRIVER_GH100_580.159.03"
    assert rim_name("driver", reports["n10"], "GB100").startswith("NV_GPU_CC_DRIVER_GB100_575.")


def test_a_manifest_says_which_parts_it_was_read_from(world: GpuWorld) -> None:
    rim = parse_rim("vbios", world.rims["vbios"].read_bytes())
    assert (rim.version, rim.product, sorted(rim.golden)) == ("00.EE.00.00.01", "GH100", [*range(7), *range(8, 13)])
