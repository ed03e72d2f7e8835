"""An EMULATED SEV-SNP platform for tests: roots, leaves and reports with chosen faults. Knows no test; nothing of it ships."""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.x509.oid import NameOID

from shared.attestation.cpu_trust import CpuPolicy
from shared.attestation.snp_certificates import ARC
from shared.attestation.snp_verifier import SnpPolicy, SnpProfile, SnpRoots, SnpTrust
from shared.wire.snp_certificates import ASK, ENTRY, VCEK, VLEK
from shared.wire.visit import Evidence
from tests.attestation.snp_primes import PRIMES

AT = 1_790_000_000.0
PSS = padding.PSS(padding.MGF1(hashes.SHA384()), 48)
MEASUREMENT, REPORT_DATA = b"\x4d" * 48, bytes(range(64))
CHIP = {"Milan": b"\xc1" * 64, "Genoa": b"\xc2" * 64, "Turin": (b"\xc3" * 8).ljust(64, b"\0")}
TCB = {"Milan": bytes([4, 0, 0, 0, 0, 0, 24, 219]), "Genoa": bytes([10, 0, 0, 0, 0, 0, 23, 84]),
       "Turin": bytes([1, 2, 0, 3, 0, 0, 0, 9])}  # fmt: skip
CPUID = {"Milan": (0x19, 1, 1), "Genoa": (0x19, 0x11, 1), "Turin": (0x1A, 2, 1)}
AGREED = CpuPolicy(roots=("EMULATED",), allow_emulated=True)


@cache
def rsa_key(which: str) -> rsa.RSAPrivateKey:
    """The 4096-bit key of an `ark`, `ask` or `asvk`: of kept primes, because to find some takes a second."""
    p, q = PRIMES[which]
    private = rsa.rsa_recover_private_exponent(65537, p, q)
    public = rsa.RSAPublicNumbers(65537, p * q)
    numbers = rsa.RSAPrivateNumbers(
        p, q, private, rsa.rsa_crt_dmp1(private, p), rsa.rsa_crt_dmq1(private, q), rsa.rsa_crt_iqmp(p, q), public
    )
    return numbers.private_key(unsafe_skip_rsa_key_validation=True)


def day(offset: float) -> datetime:
    return datetime.fromtimestamp(AT, UTC).replace(microsecond=0) + timedelta(days=offset)


def name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "EMULATED, not AMD"),
                      x509.NameAttribute(NameOID.COMMON_NAME, common)])  # fmt: skip


@dataclass
class Authority:
    """A certificate and its key; `label` picks one of the run's RSA keys."""

    certificate: x509.Certificate
    key: Any

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)


def authority(
    common: str, label: str, issuer: Authority | None = None, *, ca: bool = True, **changes: Any
) -> Authority:
    """An ARK (no issuer), ASK or ASVK. `changes`: start, end, usage (key_cert_sign), sign_padding, key."""
    key = changes.get("key") or rsa_key(label)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(common))
        .issuer_name(issuer.certificate.subject if issuer else name(common))
        .public_key(key.public_key())
        .serial_number(changes.get("serial", 65536 + len(common)))
        .not_valid_before(day(changes.get("start", -100)))
        .not_valid_after(day(changes.get("end", 1000)))
        .add_extension(x509.BasicConstraints(ca, None), True)
    )
    if "usage" in changes:
        flags = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only"), False,
        )  # fmt: skip
        builder = builder.add_extension(
            x509.KeyUsage(digital_signature=True, key_cert_sign=changes["usage"], crl_sign=False, **flags), True
        )
    signer = issuer.key if issuer else key
    if isinstance(signer, ec.EllipticCurvePrivateKey):
        return Authority(builder.sign(signer, hashes.SHA384()), key)
    return Authority(builder.sign(signer, hashes.SHA384(), rsa_padding=changes.get("sign_padding", PSS)), key)


def integer(value: int) -> bytes:
    return bytes([2, 1, value]) if value < 0x80 else bytes([2, 2, 0, value])


def patch_levels(product: str) -> dict[str, bytes]:
    """AMD's TCB extensions of a leaf, as its product's TCB above."""
    raw = TCB[product]
    if product == "Turin":
        return {"3.9": integer(raw[0]), "3.1": integer(raw[1]), "3.2": integer(raw[2]), "3.3": integer(raw[3]),
                "3.8": integer(raw[7]), "3.5": integer(0), "3.6": integer(0), "3.7": integer(0)}  # fmt: skip
    return {"3.1": integer(raw[0]), "3.2": integer(raw[1]), "3.3": integer(raw[6]), "3.8": integer(raw[7]),
            "3.4": integer(0), "3.5": integer(0), "3.6": integer(0), "3.7": integer(0)}  # fmt: skip


@dataclass
class Chip:
    """A leaf and its key. Its serial number is 0, as on most real ones."""

    leaf: bytes
    key: ec.EllipticCurvePrivateKey


def chip(issuer: Authority, product: str = "Milan", kind: str = "VCEK", **changes: Any) -> Chip:
    """A VCEK or VLEK. `changes`: extensions (arc -> DER; None removes), common, curve, start, end, ca, serial, critical (an OID)."""
    key = ec.generate_private_key(changes.get("curve", ec.SECP384R1()))
    label = product.encode() if kind == "VLEK" or product != "Milan" else b"Milan-B0"
    values = {"1": integer(0), "2": bytes([0x16, len(label)]) + label, **patch_levels(product)}
    if kind == "VCEK":
        values["4"] = CHIP[product][:8] if product == "Turin" else CHIP[product]
    else:
        values["5"] = b"\x16\x0fCN=cloud.test.x"
    values |= changes.get("extensions", {})
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(changes.get("common", f"SEV-{kind}")))
        .issuer_name(issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(changes.get("serial", 1))
        .not_valid_before(day(changes.get("start", -10)))
        .not_valid_after(day(changes.get("end", 300)))
    )
    for arc, value in values.items():
        if value is not None:
            builder = builder.add_extension(x509.UnrecognizedExtension(x509.ObjectIdentifier(ARC + arc), value), False)
    if changes.get("ca"):
        builder = builder.add_extension(x509.BasicConstraints(True, None), True)
    if "critical" in changes:
        oid = x509.ObjectIdentifier(changes["critical"])
        builder = builder.add_extension(x509.UnrecognizedExtension(oid, b"\x05\0"), True)
    built = builder.sign(issuer.key, hashes.SHA384(), rsa_padding=PSS)
    if "serial" in changes:
        return Chip(built.public_bytes(serialization.Encoding.DER), key)
    return Chip(with_serial_zero(built, issuer.key), key)


def with_serial_zero(certificate: x509.Certificate, key: rsa.RSAPrivateKey) -> bytes:
    """The library makes no certificate with serial number 0: put it in and sign anew."""
    der, tbs = certificate.public_bytes(serialization.Encoding.DER), certificate.tbs_certificate_bytes
    assert tbs[9:12] == b"\x02\x01\x01"
    tbs = tbs[:11] + b"\0" + tbs[12:]
    return der[:4] + tbs + der[4 + len(tbs) : -512] + key.sign(tbs, PSS, hashes.SHA384())


def body(product: str = "Milan", **changes: Any) -> bytearray:
    """The signed part of a report. `changes`: version, policy, vmpl, key_info, chip_id, tcb, … or `at` (offset -> bytes)."""
    raw = bytearray(0x2A0)
    version, tcb = changes.get("version", 3), changes.get("tcb", TCB[product])
    struct.pack_into("<IIQ", raw, 0, version, changes.get("guest_svn", 7), changes.get("policy", 0x3001F))
    struct.pack_into("<II", raw, 0x30, changes.get("vmpl", 0), changes.get("algorithm", 1))
    struct.pack_into("<QI", raw, 0x40, 0x25, changes.get("key_info", 0))
    raw[0x50:0x90] = changes.get("report_data", REPORT_DATA)
    raw[0x90:0xC0] = changes.get("measurement", MEASUREMENT)
    raw[0xC0:0xE0] = changes.get("host_data", bytes(32))
    raw[0xE0:0x110] = changes.get("id_key", bytes(48))
    raw[0x110:0x140] = changes.get("author_key", bytes(48))
    raw[0x160:0x180] = b"\xff" * 32
    for at in (0x38, 0x180, 0x1E0, 0x1F0):
        raw[at : at + 8] = tcb
    if version >= 3:
        raw[0x188:0x18B] = bytes(changes.get("cpuid", CPUID[product]))
    raw[0x1A0:0x1E0] = changes.get("chip_id", CHIP[product])
    for at, value in changes.get("at", {}).items():
        raw[at : at + len(value)] = value
    return raw


def signed(part: bytes | bytearray, key: ec.EllipticCurvePrivateKey) -> bytes:
    r, s = decode_dss_signature(key.sign(bytes(part), ec.ECDSA(hashes.SHA384())))
    return bytes(part) + r.to_bytes(72, "little") + s.to_bytes(72, "little") + bytes(368)


def table(entries: dict[UUID, bytes]) -> bytes:
    """A host's certificate table."""
    at, heads, contents = (len(entries) + 1) * ENTRY.size, b"", b""
    for guid, content in entries.items():
        heads += ENTRY.pack(guid.bytes, at + len(contents), len(content))
        contents += content
    return heads + bytes(ENTRY.size) + contents


def crl(
    *revoked: int, issuer: Authority | None = None, key: Any = None, start: float = -5, end: float | None = 5,
    critical: x509.ExtensionType | None = None,
) -> bytes:  # fmt: skip
    """A revocation list that names these serial numbers. `end` None: never."""
    signer = issuer or platform().ark
    far: datetime = day(9999)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(signer.certificate.subject)
        .last_update(day(start))
        .next_update(far if end is None else day(end))
    )
    for serial in revoked:
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(day(-6)).build()
        builder = builder.add_revoked_certificate(entry)
    if critical is not None:
        builder = builder.add_extension(critical, critical=True)
    made = builder.sign(key or signer.key, hashes.SHA384(), rsa_padding=PSS)
    return made.public_bytes(serialization.Encoding.DER)


@dataclass
class SnpPlatform:
    """One emulated installation: root, ASK, ASVK, and a chip of each product."""

    title: str = "EMULATED"
    ark: Authority = field(init=False)
    ask: Authority = field(init=False)
    asvk: Authority = field(init=False)

    def __post_init__(self) -> None:
        self.ark = authority(f"ARK-{self.title}", "ark")
        self.ask = authority(f"SEV-{self.title}", "ask", self.ark)
        self.asvk = authority(f"SEV-VLEK-{self.title}", "asvk", self.ark)

    def pem(self, *more: Authority) -> bytes:
        chain = (self.ark, *more)
        return b"".join(link.certificate.public_bytes(serialization.Encoding.PEM) for link in chain)

    @property
    def roots(self) -> SnpRoots:
        return SnpRoots.load(self.pem(self.ask, self.asvk))

    def chip(self, product: str = "Milan", kind: str = "VCEK", **changes: Any) -> Chip:
        return chip(self.asvk if kind == "VLEK" else self.ask, product, kind, **changes)

    def trust(self, policy: SnpPolicy | None = None, **profile: Any) -> SnpTrust:
        known = SnpProfile(**{"measurement": MEASUREMENT.hex(), **profile})
        return SnpTrust(self.roots, {"data_holder": (known,), "orchestrator": (known,)}, policy or SnpPolicy())

    def evidence(self, report: bytes, leaf: bytes, kind: str = "VCEK") -> Evidence:
        """As a host with a full table delivers it."""
        issuer = self.asvk if kind == "VLEK" else self.ask
        entries = {VLEK if kind == "VLEK" else VCEK: leaf, ASK: issuer.der}
        return Evidence(kind="snp-report", quote=b64(report), endorsements=b64(table(entries)))


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@cache
def platform() -> SnpPlatform:
    """The installation that most tests use."""
    return SnpPlatform()


@cache
def good_chip(product: str = "Milan", kind: str = "VCEK") -> Chip:
    """An unaltered chip of `platform()`."""
    return platform().chip(product, kind)
