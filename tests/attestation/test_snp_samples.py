"""Published SEV-SNP evidence under AMD's own roots, and a foreign emulator's, where the sample folder is present. Copies nothing."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.attestation.azure_hcl import parse_hcl
from shared.attestation.cpu_trust import CpuPolicy
from shared.attestation.results import CheckStatus, Examination
from shared.attestation.snp_certificates import load_certificate, read_leaf
from shared.attestation.snp_chain import check_validity, verify_snp_chain
from shared.attestation.snp_report import Tcb, parse_snp_report
from shared.attestation.snp_trust import AMD_ROOTS
from shared.attestation.snp_verifier import INSPECTION, SnpEndorsements, SnpRoots, SnpTrust, examine_snp_evidence
from shared.errors import VerificationFailed

_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "evidence"
SAMPLES = Path(os.environ.get("GPUT_EVIDENCE_SAMPLES", _BESIDE)) / "snp"
CASES: list[dict[str, Any]] = (
    json.loads((SAMPLES / "cases.json").read_text())["cases"] if (SAMPLES / "cases.json").is_file() else []
)
CRYPTO = ("layout", "leaf", "certificate-chain", "validity", "signing-key", "signature", "tcb", "chip-id")
# Which checks must be the ones that fail: a case that is refused for another reason is not judged as its README says.
AGAINST = {
    "n02": {"certificate-chain", "signature", "tcb", "chip-id"}, "n03": {"certificate-chain", "signature", "tcb", "chip-id"},
    "n04": {"certificate-chain"}, "n05": {"debug"}, "n07": {"validity"}, "n21-amd-root": {"certificate-chain"},
    "n23-debug": {"debug"}, "n24-other-chip": {"chip-id"}, "n25-vmpl2": {"vmpl"},
}  # fmt: skip
pytestmark = pytest.mark.skipif(not CASES, reason="no evidence samples beside this checkout (GPUT_EVIDENCE_SAMPLES)")


@pytest.fixture(autouse=True)
def no_warning_escapes() -> Iterator[None]:
    """Most real leaves have serial number 0, at which the library would warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def examined(case: dict[str, Any], agreed: CpuPolicy | None = None) -> Examination:
    emulated = "foreign" in case["root"]
    policy = agreed or CpuPolicy(("EMULATED",) if emulated else ("AMD",), allow_emulated=emulated)
    leaf = () if case["leaf"] is None else ((SAMPLES / case["leaf"]).read_bytes(),)
    found = examine_snp_evidence(
        (SAMPLES / case["report"]).read_bytes(), SnpEndorsements(leaf),
        trust=SnpTrust(SnpRoots.load(SAMPLES / case["root"]), {}), agreed=policy, at=case["time_unix"],
    )  # fmt: skip
    return found.examination


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["id"]))
def test_published_case(case: dict[str, Any]) -> None:
    found = examined(case)
    statuses = {check.name: check.status for check in found}
    crypto = {statuses[name] for name in CRYPTO}
    assert (crypto == {CheckStatus.PASS}) == (case["crypto"] == "ok")
    assert (statuses["signature"] is CheckStatus.NOT_CHECKED) == (case["crypto"] == "unverifiable")
    against = {name for name, status in statuses.items() if status in (CheckStatus.FAIL, CheckStatus.EXPIRED)}
    assert against == AGAINST.get(case["id"], set())
    if case["verdict"] == "accept":
        found.require(INSPECTION)
    else:
        with pytest.raises(VerificationFailed):
            found.require(INSPECTION)


def test_expired_is_not_forged() -> None:
    case = next(case for case in CASES if case["id"] == "n07")
    assert examined(case).find("validity").status is CheckStatus.EXPIRED
    examined(case).require((*INSPECTION, ("validity", CheckStatus.EXPIRED)))


def test_amds_root_does_not_count_where_only_an_emulated_one_was_agreed_and_the_other_way_round() -> None:
    amd, own = (next(case for case in CASES if case["id"] == name) for name in ("n01", "n20-own-root"))
    for case, agreed, code in (
        (amd, CpuPolicy(("EMULATED",), allow_emulated=True), "snp-root-set"),
        (own, CpuPolicy(("AMD",), allow_emulated=True), "snp-root-set"),
        (own, CpuPolicy(("AMD", "EMULATED"), allow_emulated=False), "snp-emulated"),
    ):
        assert examined(case, agreed).find("root-set").code == code


@pytest.mark.parametrize("product", ["milan", "genoa", "turin"])
def test_the_pinned_fingerprints_are_those_of_the_published_roots(product: str) -> None:
    roots = SnpRoots.load(SAMPLES / "roots" / f"{product}_ask_ark_asvk.pem")
    ((fingerprint, root_set),) = roots.sets.items()
    assert (AMD_ROOTS[fingerprint].lower(), root_set) == (product, "AMD")


def test_a_real_turin_leaf_stands_on_turins_root_and_no_other() -> None:
    """What ties the pinned Turin root to hardware: a leaf that AMD issued for a chip."""
    leaf = read_leaf(load_certificate((SAMPLES / "certs" / "turin-vcek-only.der").read_bytes()))
    assert (leaf.product, leaf.tcb) == ("Turin", Tcb(fmc=0, bootloader=0, tee=0, snp=0, microcode=9))
    assert leaf.hwid == bytes.fromhex("1e550a8ee5cf9f4d").ljust(64, b"\0")
    chain = verify_snp_chain(leaf, SnpRoots.load(SAMPLES / "roots" / "turin_ask_ark_asvk.pem"))
    check_validity(chain, 1748736000)
    with pytest.raises(VerificationFailed) as caught:
        verify_snp_chain(leaf, SnpRoots.load(SAMPLES / "roots" / "genoa_ask_ark_asvk.pem"))
    assert caught.value.code == "snp-chain-incomplete"


@pytest.mark.parametrize("kind", ["snp", "tdx"])
def test_azures_blobs_cover_their_variable_data(kind: str) -> None:
    raw = (SAMPLES / "reports" / f"azure-hcl-{kind}-report.bin").read_bytes()
    blob = parse_hcl(raw)
    assert blob.kind == kind
    assert json.loads(blob.variable_data)["keys"]
    blob.check_variable_data()
    altered = parse_hcl(raw.replace(b'"keys"', b'"keyz"', 1))
    with pytest.raises(VerificationFailed) as caught:
        altered.check_variable_data()
    assert caught.value.code == "hcl-variable-data"
    if kind == "snp":
        assert parse_snp_report(blob.report).report_data == blob.report_data
