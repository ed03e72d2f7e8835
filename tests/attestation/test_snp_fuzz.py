"""Whatever arrives as SEV-SNP evidence: the verifier's own errors or a refused examination, quickly, and never belief."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.attestation.azure_hcl import parse_hcl
from shared.attestation.snp_certificates import load_certificate, load_crl, read_leaf
from shared.attestation.snp_report import parse_snp_report
from shared.attestation.snp_verifier import INSPECTION, SnpEndorsements, examine_snp_evidence, verify_snp_evidence
from shared.errors import BadRequest, GputError, VerificationFailed
from shared.wire.snp_certificates import ASK, VCEK, parse_certificate_table
from shared.wire.visit import Evidence
from tests.attestation.snp_world import AGREED, AT, REPORT_DATA, b64, body, crl, good_chip, platform, signed, table
from tests.attestation.test_snp_certificate_table import FULL
from tests.attestation.test_snp_report import hcl

_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "evidence"
SAMPLES = Path(os.environ.get("GPUT_EVIDENCE_SAMPLES", _BESIDE)) / "snp"
QUICK, LONG = 150, 6000
REPORT = signed(body(), good_chip().key)
VLEK_REPORT = signed(body(key_info=1 << 2, chip_id=bytes(64)), good_chip("Milan", "VLEK").key)


def seeds(pattern: str, *own: bytes) -> list[bytes]:
    """Our own evidence, and real samples where the folder is present."""
    return [*own, *(path.read_bytes() for path in sorted(SAMPLES.glob(pattern)))]


REPORTS = seeds("reports/*-v[235]*.bin", REPORT, VLEK_REPORT)
LEAVES = seeds("certs/*.der", good_chip().leaf, good_chip("Milan", "VLEK").leaf, good_chip("Turin").leaf)
BLOBS = seeds("reports/azure-hcl-*.bin", hcl(), hcl(kind=4))
TABLES = [FULL, table({}), table({VCEK: good_chip().leaf, ASK: platform().ask.der})]
LISTS = [crl(), crl(1, 2, 3)]


@st.composite
def mutations(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """A seed with a few bytes set, cut, doubled or inserted; sometimes mere noise."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.binary(max_size=3000))
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        act = draw(st.sampled_from(("set", "set", "set", "cut", "insert", "double", "end")))
        if act == "set" and data:
            data[at] = draw(st.integers(0, 255))
        elif act == "cut":
            del data[at : at + draw(st.integers(1, 40))]
        elif act == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=40))
        elif act == "double":
            data[at:at] = data[at : at + draw(st.integers(1, 200))]
        else:
            del data[at:]
    return bytes(data)


def refusal(read: Callable[[], Any]) -> GputError | None:
    """What was raised, with the library's warnings as errors; anything but the verifier's own family escapes and fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            read()
        except (BadRequest, VerificationFailed) as error:
            return error
    return None


def contained(read: Callable[[bytes], Any], data: bytes) -> None:
    error = refusal(lambda: read(data))
    assert error is None or (error.code and error.detail)


def judged(report: bytes, leaf: bytes, other: bytes, listed: bytes) -> None:
    """An examination never raises, and believes only what was signed as it stands."""
    endorsements = SnpEndorsements((leaf,), (other,), (listed,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = examine_snp_evidence(report, endorsements, trust=platform().trust(), agreed=AGREED, at=AT)
    assert len(found.examination.checks) in (1, 20)
    if found.examination.refused(INSPECTION) is None:
        assert (report, leaf) in GENUINE


def verified(report: bytes, certificates: bytes) -> None:
    """Believed is only the report as it was signed, whatever became of the unsigned table around its leaf."""
    evidence = Evidence(kind="snp-report", quote=b64(report), endorsements=b64(certificates))
    error = refusal(
        lambda: verify_snp_evidence(
            evidence, report_data=REPORT_DATA, role="data_holder", trust=platform().trust(), policy=AGREED, at=AT
        )
    )
    assert error is not None or report == REPORT


GENUINE = ((REPORT, good_chip().leaf), (VLEK_REPORT, good_chip("Milan", "VLEK").leaf))
READERS: dict[str, tuple[Callable[[bytes], Any], list[bytes]]] = {
    "report": (parse_snp_report, REPORTS),
    "leaf": (lambda data: read_leaf(load_certificate(data)), LEAVES),
    "table": (parse_certificate_table, TABLES),
    "crl": (load_crl, LISTS),
    "hcl": (lambda data: parse_hcl(data).check_variable_data(), BLOBS),
}
fuzzing = settings(deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", READERS)
def test_parsers_raise_their_own_family_only(name: str) -> None:
    read, originals = READERS[name]
    settings(fuzzing, max_examples=QUICK)(given(mutations(originals))(lambda data: contained(read, data)))()


@settings(fuzzing, max_examples=QUICK)
@given(mutations(REPORTS), st.sampled_from(LEAVES))
def test_mutated_reports_are_never_believed(report: bytes, leaf: bytes) -> None:
    judged(report, leaf, platform().ask.der, LISTS[0])


@settings(fuzzing, max_examples=QUICK)
@given(st.sampled_from(REPORTS), mutations(LEAVES), mutations([platform().ask.der]), mutations(LISTS))
def test_mutated_certificates_are_never_believed(report: bytes, leaf: bytes, other: bytes, listed: bytes) -> None:
    judged(report, leaf, other, listed)


@settings(fuzzing, max_examples=QUICK)
@given(mutations([REPORT]), mutations(TABLES))
def test_mutated_evidence_is_refused(report: bytes, certificates: bytes) -> None:
    verified(report, certificates)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_parsers_for_long(name: str) -> None:
    read, originals = READERS[name]
    settings(fuzzing, max_examples=LONG)(given(mutations(originals))(lambda data: contained(read, data)))()


@pytest.mark.slow
@settings(fuzzing, max_examples=LONG)
@given(mutations(REPORTS), mutations(LEAVES), mutations([platform().ask.der, platform().asvk.der]), mutations(LISTS))
def test_everything_mutated_for_long(report: bytes, leaf: bytes, other: bytes, listed: bytes) -> None:
    judged(report, leaf, other, listed)
