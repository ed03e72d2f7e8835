"""Certificates, revocation lists and OCSP responses as files of unknown origin: told apart, and the pinned roots among them found.

Knows the makers' pinned fingerprints; verifies nothing. An EMULATED root is never found here: it is trusted only where a trust folder
names it, never because it came along with what it vouches for (law L10).
"""

from __future__ import annotations

import base64
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from cryptography import x509
from cryptography.x509 import ocsp

from shared.attestation.cpu_trust import INTEL_SGX_ROOT, CpuRoots
from shared.attestation.gpu_trust import NVIDIA_DEVICE_ROOT, NVIDIA_RIM_ROOT, GpuRoots
from shared.attestation.snp_certificates import LEAF_KINDS, AmdCertificate, load_certificate
from shared.attestation.snp_trust import AMD_ROOTS, SnpRoots
from shared.attestation.x509_parts import BAD_CERTIFICATE, PEM_CERTIFICATE
from shared.canonical import sha256
from shared.errors import VerificationFailed

CertificateKind = Literal["certificate", "crl", "ocsp"]
MAX_DER_BYTES: Final = 1024 * 1024


def pem_ders(data: bytes) -> tuple[bytes, ...]:
    """DER of every CERTIFICATE block; a block that is not base64 is left out."""
    found = []
    for body in PEM_CERTIFICATE.findall(data):
        try:
            found.append(base64.b64decode(b"".join(body.split()), validate=True))
        except ValueError:
            continue
    return tuple(found)


def ders_of(data: bytes) -> tuple[bytes, ...]:
    """The certificates of a file: DER itself, or every block of PEM."""
    return pem_ders(data) if b"-----BEGIN" in data else (data,)


def certificate_kind(der: bytes) -> CertificateKind | None:
    """Which of the three it is; None: none that can be read."""
    if len(der) > MAX_DER_BYTES:
        return None
    readers: dict[CertificateKind, Callable[[bytes], object]] = {
        "certificate": certificate_facts, "crl": _read_crl, "ocsp": _read_ocsp,
    }  # fmt: skip
    for kind, read in readers.items():
        try:
            read(der)
        except (VerificationFailed, *BAD_CERTIFICATE):
            continue
        return kind
    return None


def certificate_facts(der: bytes) -> dict[str, str]:
    """Subject, issuer, validity and fingerprint of one certificate, for people. Raises: VerificationFailed `certificate-malformed`."""
    # Most AMD leaves carry serial number 0, at which the library would warn: AMD's own loader knows better.
    amd = amd_certificate(der)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _facts(amd.parsed if amd is not None else x509.load_der_x509_certificate(der), sha256(der).hex())
    except BAD_CERTIFICATE:
        raise VerificationFailed("a certificate cannot be read", code="certificate-malformed") from None


def _facts(parsed: x509.Certificate, fingerprint: str) -> dict[str, str]:
    _ = parsed.extensions, parsed.serial_number  # the library parses each part only when asked
    return {
        "subject": parsed.subject.rfc4514_string(),
        "issuer": parsed.issuer.rfc4514_string(),
        "not_before": f"{parsed.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}",
        "not_after": f"{parsed.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}",
        "sha256": fingerprint,
        "pinned": PINNED.get(fingerprint, ""),
    }


def amd_certificate(der: bytes) -> AmdCertificate | None:
    """The certificate, if it is of AMD's form."""
    try:
        return load_certificate(der)
    except VerificationFailed:
        return None


def is_amd_leaf(der: bytes) -> bool:
    """Whether it is named as a VCEK or VLEK."""
    found = amd_certificate(der)
    return found is not None and found.common_name in LEAF_KINDS


def _read_crl(der: bytes) -> object:
    crl = x509.load_der_x509_crl(der)
    return crl.issuer, crl.last_update_utc


def _read_ocsp(der: bytes) -> object:
    return ocsp.load_der_ocsp_response(der).response_status


@dataclass(frozen=True)
class PinnedRoots:
    """The makers' roots that were at hand, by family; each may be empty, and then nothing of that family is believed."""

    device: GpuRoots
    rim: GpuRoots
    cpu: CpuRoots
    snp: SnpRoots


PINNED: Final = {
    NVIDIA_DEVICE_ROOT: "NVIDIA device root", NVIDIA_RIM_ROOT: "NVIDIA RIM root", INTEL_SGX_ROOT: "Intel SGX root",
    **{fingerprint: f"AMD {product} root" for fingerprint, product in AMD_ROOTS.items()},
}  # fmt: skip


def pinned_roots(ders: Iterable[bytes]) -> PinnedRoots:
    """The makers' roots among these certificates, by fingerprint; AMD's intermediates as well. Whatever else is there is passed over."""
    at_hand = {sha256(der).hex(): der for der in ders}

    def loaded(*fingerprints: str) -> dict[str, x509.Certificate]:
        return {name: x509.load_der_x509_certificate(at_hand[name]) for name in fingerprints if name in at_hand}

    device, rim, cpu = loaded(NVIDIA_DEVICE_ROOT), loaded(NVIDIA_RIM_ROOT), loaded(INTEL_SGX_ROOT)
    amd = [found for der in at_hand.values() if (found := amd_certificate(der)) is not None]
    arks = {found.fingerprint: found for found in amd if found.fingerprint in AMD_ROOTS}
    others = tuple(found for found in amd if not found.self_issued and found.common_name not in LEAF_KINDS)
    return PinnedRoots(
        GpuRoots(device, dict.fromkeys(device, "NVIDIA"), "device"),
        GpuRoots(rim, dict.fromkeys(rim, "NVIDIA"), "rim"),
        CpuRoots(cpu, dict.fromkeys(cpu, "INTEL")),
        SnpRoots(arks, dict.fromkeys(arks, "AMD"), others),
    )
