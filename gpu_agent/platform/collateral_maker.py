"""The emulated collateral service: TCB info, QE identity and revocation lists, signed by the emulated maker. Knows no guest and no file.

Forms: Intel PCS v4. The texts are signed exactly as they stand. On expiry every verifier refuses the machine's evidence as expired, not
as forged; manufacturing again renews what has less than half its time left.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from gpu_agent.platform.machine import (
    EVALUATION,
    FMSPC,
    MODULE_LEVELS,
    MRSIGNER_SEAM,
    PCE_ID,
    PLATFORM_LEVELS,
    QE_LEVELS,
    QE_MR_SIGNER,
    QE_PRODUCT,
    Level,
)
from gpu_agent.platform.pki import Issuer, Maker, certificate_pem
from shared.attestation.collateral import Collateral
from shared.attestation.tcb_info import TIME_FORMAT

VALID_DAYS = 365


def make_collateral(
    maker: Maker,
    at: float,
    *,
    valid_days: float = VALID_DAYS,
    evaluation: int = EVALUATION,
    revoked: Iterable[x509.Certificate] = (),
) -> Collateral:
    """Collateral for the maker's machines, issued an hour before `at` (seconds since 1970).

    Args:
        revoked: certificates to put on the list of whoever issued them.
    """
    start = datetime.fromtimestamp(at, UTC).replace(microsecond=0) - timedelta(hours=1)
    end, gone = start + timedelta(days=valid_days), list(revoked)
    tcb_info = _text(_tcb_info(start, end, evaluation))
    qe_identity = _text(_qe_identity(start, end, evaluation))
    chain = _chain(maker.signer, maker.root)
    return Collateral(
        pck_crl_issuer_chain=_chain(maker.authority, maker.root),
        root_ca_crl=_revocation_list(maker.root, start, end, gone),
        pck_crl=_revocation_list(maker.authority, start, end, gone),
        tcb_info_issuer_chain=chain,
        tcb_info=tcb_info,
        tcb_info_signature=sign_raw(maker.signer.key, tcb_info.encode()),
        qe_identity_issuer_chain=chain,
        qe_identity=qe_identity,
        qe_identity_signature=sign_raw(maker.signer.key, qe_identity.encode()),
    )


def sign_raw(key: ec.EllipticCurvePrivateKey, data: bytes) -> bytes:
    """ECDSA with SHA-256, r ‖ s, 64 bytes."""
    r, s = decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def _chain(leaf: Issuer, root: Issuer) -> str:
    return (certificate_pem(leaf.certificate) + certificate_pem(root.certificate)).decode()


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _revocation_list(issuer: Issuer, start: datetime, end: datetime, gone: list[x509.Certificate]) -> bytes:
    name = issuer.certificate.subject
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(name)
        .last_update(start)
        .next_update(end)
        .add_extension(x509.CRLNumber(int(start.timestamp())), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key()), critical=False)
    )
    for certificate in gone:
        if certificate.issuer == name:
            entry = x509.RevokedCertificateBuilder().serial_number(certificate.serial_number).revocation_date(start)
            builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(issuer.key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def _issued(kind: str, version: int, start: datetime, end: datetime, evaluation: int) -> dict[str, Any]:
    return {
        "id": kind,
        "version": version,
        "issueDate": start.strftime(TIME_FORMAT),
        "nextUpdate": end.strftime(TIME_FORMAT),
        "tcbEvaluationDataNumber": evaluation,
    }


def _tcb_info(start: datetime, end: datetime, evaluation: int) -> dict[str, Any]:
    module = {"mrsigner": MRSIGNER_SEAM.hex().upper(), "attributes": "00" * 8, "attributesMask": "FF" * 8}
    return {
        **_issued("TDX", 3, start, end, evaluation),
        "fmspc": FMSPC.hex().upper(),
        "pceId": PCE_ID.hex().upper(),
        "tcbType": 0,
        "tdxModule": module,
        "tdxModuleIdentities": [{"id": "TDX_01", **module, "tcbLevels": [_level(v) for v in MODULE_LEVELS]}],
        "tcbLevels": [_level(level) for level in PLATFORM_LEVELS],
    }


def _qe_identity(start: datetime, end: datetime, evaluation: int) -> dict[str, Any]:
    return {
        **_issued("TD_QE", 2, start, end, evaluation),
        "miscselect": "00" * 4,
        "miscselectMask": "FF" * 4,
        "attributes": "11" + "00" * 15,  # INIT and PROVISION_KEY; MODE64BIT is outside the mask, DEBUG inside
        "attributesMask": "FB" + "FF" * 7 + "00" * 8,
        "mrsigner": QE_MR_SIGNER.hex().upper(),
        "isvprodid": QE_PRODUCT,
        "tcbLevels": [_level(level) for level in QE_LEVELS],
    }


def _level(level: Level) -> dict[str, Any]:
    tcb: dict[str, Any] = {"isvsvn": level.svn}
    if level.components:
        tcb = {
            "sgxtcbcomponents": [{"svn": svn} for svn in level.components],
            "pcesvn": level.pce,
            "tdxtcbcomponents": [{"svn": svn} for svn in level.tdx],
        }
    value = {"tcb": tcb, "tcbDate": level.date, "tcbStatus": level.status}
    return value | ({"advisoryIDs": list(level.advisories)} if level.advisories else {})
