"""Revocation lists of SEV-SNP: whose they are, when they count, what they take away; in the trust folder and from a host."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509

from shared.attestation.results import CheckStatus
from shared.attestation.snp_certificates import load_crl
from shared.attestation.snp_verifier import SnpPolicy, SnpTrust, verify_snp_evidence
from shared.errors import Unavailable, VerificationFailed
from shared.wire.snp_certificates import ASK, CRL, VCEK
from shared.wire.visit import Evidence
from tests.attestation.snp_world import (
    AGREED,
    AT,
    MEASUREMENT,
    REPORT_DATA,
    authority,
    b64,
    body,
    crl,
    good_chip,
    platform,
    signed,
    table,
)
from tests.attestation.test_snp_chain import examined
from tests.attestation.test_snp_policy import folder


def test_revocation_is_judged_where_a_list_is_at_hand() -> None:
    ask = platform().ask.certificate.serial_number
    assert examined(good_chip()).find("revocation").status is CheckStatus.NOT_CHECKED
    for clean in (
        examined(good_chip(), crl()),
        examined(good_chip(), delivered=(crl(),)),
        examined(good_chip(), crl(ask + 1)),
    ):
        assert clean.find("revocation").status is CheckStatus.PASS
    for revoked in (examined(good_chip(), crl(ask)), examined(good_chip(), crl(), delivered=(crl(ask),))):
        assert revoked.find("revocation").code == "snp-revoked"
    numbered = platform().chip(serial=4711)
    assert examined(numbered, crl(4711)).find("revocation").code == "snp-revoked"
    # Nothing can be said of one leaf with serial number 0, so an entry 1 (which the loader put there) must not hit it.
    assert examined(good_chip(), crl(1)).find("revocation").status is CheckStatus.PASS


def test_lists_that_are_old_forged_or_of_another_root() -> None:
    ask = platform().ask.certificate.serial_number
    old = crl(start=-20, end=-10)
    assert examined(good_chip(), old).find("revocation").status is CheckStatus.EXPIRED
    assert examined(good_chip(), old, crl()).find("revocation").status is CheckStatus.PASS
    assert examined(good_chip(), crl(ask, start=-20, end=-10)).find("revocation").code == "snp-revoked"
    forged = crl(ask, key=platform().ask.key)
    assert examined(good_chip(), delivered=(forged,)).find("revocation").code == "snp-crl-signature"
    foreign = crl(ask, issuer=authority("ARK-EMULATED other", "ask"))
    assert examined(good_chip(), foreign).find("revocation").status is CheckStatus.NOT_CHECKED
    assert examined(good_chip(), delivered=(b"\x30\x00",)).find("revocation").status is CheckStatus.NOT_CHECKED


def test_a_list_of_after_the_evidence_knows_more_and_not_less() -> None:
    """Receipts of years ago are judged at their own time, by the one list that the folder holds: today's."""
    ask = platform().ask.certificate.serial_number
    renewed = crl(start=1, end=31)
    assert examined(good_chip(), renewed).find("revocation").status is CheckStatus.PASS
    assert examined(good_chip(), crl(start=-20, end=-10), renewed).find("revocation").status is CheckStatus.PASS
    assert examined(good_chip(), delivered=(renewed,)).find("revocation").status is CheckStatus.PASS
    assert examined(good_chip(), crl(ask, start=1, end=31)).find("revocation").code == "snp-revoked"


def test_a_delivered_list_that_has_ended_could_as_well_have_been_left_out() -> None:
    ask = platform().ask.certificate.serial_number
    ended = crl(start=-20, end=-10)
    left_open = examined(good_chip(), delivered=(ended,)).find("revocation")
    assert (left_open.status, left_open.code) == (CheckStatus.NOT_CHECKED, "snp-no-crl")
    assert "has ended" in left_open.reason
    # What it takes away it takes away, and the verifier's own list is not made good by the host's silence.
    still = examined(good_chip(), delivered=(crl(ask, start=-20, end=-10),)).find("revocation")
    assert (still.status, still.code) == (CheckStatus.FAIL, "snp-revoked")
    own = examined(good_chip(), ended, delivered=(ended,)).find("revocation")
    assert (own.status, own.code) == (CheckStatus.EXPIRED, "snp-crl-expired")
    forged = crl(start=-20, end=-10, key=platform().ask.key)
    assert examined(good_chip(), delivered=(forged,)).find("revocation").code == "snp-crl-signature"


def test_every_delivered_list_is_heard() -> None:
    ask = platform().ask.certificate.serial_number
    found = examined(good_chip(), delivered=(crl(), crl(ask + 1), crl(ask)))
    assert found.find("revocation").code == "snp-revoked"


@pytest.mark.parametrize("raw", [b"", b"\x30\x00", good_chip().leaf, bytes(70_000)], ids=range(4))
def test_what_is_no_list(raw: bytes) -> None:
    with pytest.raises(VerificationFailed) as caught:
        load_crl(raw)
    assert caught.value.code == "snp-crl-malformed"


@pytest.mark.parametrize(
    "critical",
    [
        x509.DeltaCRLIndicator(7),
        x509.IssuingDistributionPoint(None, None, False, False, None, False, only_contains_attribute_certs=True),
        x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\0"),
    ],
    ids=["changes only", "attribute certificates only", "unknown"],
)
def test_a_list_of_a_part_says_of_nobody_that_he_is_good(critical: x509.ExtensionType) -> None:
    with pytest.raises(VerificationFailed) as caught:
        load_crl(crl(critical=critical))
    assert caught.value.code == "snp-crl-malformed"
    assert (
        examined(good_chip(), delivered=(crl(critical=critical),)).find("revocation").status is CheckStatus.NOT_CHECKED
    )


def test_a_renewed_list_counts_at_once(tmp_path: Path) -> None:
    """The remedy of an ended list is a new one in the folder; a service that runs for months is not to be restarted for it."""
    place = folder(tmp_path, {"profiles": {"orchestrator": {"measurement": MEASUREMENT.hex()}}})
    (place / "snp-crls").mkdir()
    listed, evidence = (
        place / "snp-crls" / "EMULATED.crl",
        platform().evidence(signed(body(), good_chip().key), good_chip().leaf),
    )
    trust = SnpTrust.load(place)
    assert trust is not None

    def verified() -> str:
        return verify_snp_evidence(
            evidence, report_data=REPORT_DATA, role="orchestrator", trust=trust, policy=AGREED, at=AT
        ).measurement

    assert verified() == MEASUREMENT.hex()
    ask = platform().ask.certificate.serial_number
    for content, code in ((crl(start=-20, end=-10), "snp-crl-expired"), (crl(ask), "snp-revoked")):
        listed.write_bytes(content)
        with pytest.raises(VerificationFailed) as caught:
            verified()
        assert (caught.value.code, bool(caught.value.remedy) or code == "snp-revoked") == (code, True)
    for content in (crl()[:200], b""):  # a copy that is not done yet: nobody's evidence is bad for that
        listed.write_bytes(content)
        with pytest.raises(Unavailable) as unread:
            verified()
        assert (unread.value.code, "move it there" in unread.value.advice) == ("snp-crl-malformed", True)
    listed.write_bytes(crl())
    assert verified() == MEASUREMENT.hex()


def test_a_list_is_required_and_the_host_s_has_ended() -> None:
    entries = {VCEK: good_chip().leaf, ASK: platform().ask.der, CRL: crl(start=-20, end=-10)}
    evidence = Evidence(kind="snp-report", quote=b64(signed(body(), good_chip().key)), endorsements=b64(table(entries)))

    def verified(policy: SnpPolicy) -> tuple[str, ...]:
        return verify_snp_evidence(
            evidence, report_data=REPORT_DATA, role="orchestrator", trust=platform().trust(policy), policy=AGREED, at=AT
        ).checks

    assert "revocation" not in verified(SnpPolicy())
    with pytest.raises(VerificationFailed) as caught:
        verified(SnpPolicy(require_crl=True))
    assert caught.value.code == "snp-no-crl"
