"""The SEV-SNP attestation report, byte for byte: versions 2 to 5. Knows no key, no root and no policy: parsing is not believing.

Layout: SEV Secure Nested Paging Firmware ABI Specification (AMD 56860), table ATTESTATION_REPORT. Integers are little-endian, the
signature's too. Version 3 added the CPUID bytes, version 5 the mitigation vectors.

    000 version, guest SVN   008 policy 8   010 family id 16   020 image id 16   030 VMPL, signature algorithm   038 current TCB 8
    040 platform info 8      048 key info 4, 0 x4              050 report data 64          090 measurement 48    0C0 host data 32
    0E0 id key digest 48     110 author key digest 48          140 report id 32            160 report id MA 32   180 reported TCB 8
    188 CPUID 3 (v3)         1A0 chip id 64                    1E0 committed TCB 8         1E8 current, committed firmware 3 + 0 each
    1F0 launch TCB 8         1F8 mitigation vectors 8 + 8 (v5)                             2A0 R 72, S 72, 0 x368
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

from shared.claims.snp_rules import Product
from shared.errors import BadRequest

REPORT_BYTES: Final = 0x4A0
SIGNED_BYTES: Final = 0x2A0
VERSIONS: Final = range(2, 6)
ECDSA_P384_SHA384: Final = 1
COMPONENT_BYTES: Final = 72  # of R and of S
MAX_VMPL: Final = 3


class SigningKey(IntEnum):
    """Key info bits 4:2. Values between are reserved."""

    VCEK = 0
    VLEK = 1
    NONE = 7


class GuestPolicy(IntFlag):
    """What the guest's owner allows the host (ABI table GUEST_POLICY); bits 15:0 are the least firmware ABI."""

    SMT = 1 << 16
    RESERVED_ONE = 1 << 17
    MIGRATE_MA = 1 << 18
    DEBUG = 1 << 19
    SINGLE_SOCKET = 1 << 20
    CXL_ALLOW = 1 << 21
    MEM_AES_256_XTS = 1 << 22
    RAPL_DIS = 1 << 23
    CIPHERTEXT_HIDING_DRAM = 1 << 24
    PAGE_SWAP_DISABLE = 1 << 25


_POLICY_KNOWN = (1 << 26) - 1
_AUTHOR_KEY, _MASK_CHIP, _KEY_INFO_KNOWN = 1 << 0, 1 << 1, 0x1F


@dataclass(frozen=True)
class Tcb:
    """Security patch levels of one TCB_VERSION, each 0 to 255; `fmc` exists from Turin on."""

    bootloader: int
    tee: int
    snp: int
    microcode: int
    fmc: int | None = None

    def __str__(self) -> str:
        fmc = "" if self.fmc is None else f"fmc {self.fmc}, "
        return f"{fmc}bootloader {self.bootloader}, tee {self.tee}, snp {self.snp}, microcode {self.microcode}"


def parse_tcb(raw: bytes, product: Product) -> Tcb:
    """Eight bytes in the product's layout. Raises: BadRequest `malformed-snp-report`: reserved bytes are not zero."""
    turin = product == "Turin"
    if any(raw[4:7] if turin else raw[2:6]):
        raise _malformed(f"reserved bytes of a TCB version are not zero in the layout of {product}")
    if turin:
        return Tcb(fmc=raw[0], bootloader=raw[1], tee=raw[2], snp=raw[3], microcode=raw[7])
    return Tcb(bootloader=raw[0], tee=raw[1], snp=raw[6], microcode=raw[7])


@dataclass(frozen=True)
class SnpReport:
    """A well-formed report; nothing in it is believed yet.

    TCB versions are raw (8 bytes): their layout depends on the product, which versions below 3 do not state. `r` and `s` are the
    72-byte little-endian fields; `signed` is what they cover.
    """

    version: int
    guest_svn: int
    policy: GuestPolicy
    family_id: bytes
    image_id: bytes
    vmpl: int
    platform_info: int
    signing_key: SigningKey
    author_key_enabled: bool
    chip_masked: bool
    report_data: bytes
    measurement: bytes
    host_data: bytes
    id_key_digest: bytes
    author_key_digest: bytes
    report_id: bytes
    report_id_ma: bytes
    current_tcb: bytes
    reported_tcb: bytes
    committed_tcb: bytes
    launch_tcb: bytes
    cpuid: tuple[int, int, int] | None
    chip_id: bytes
    current_firmware: tuple[int, int, int]
    committed_firmware: tuple[int, int, int]
    mitigations: tuple[int, int] | None
    r: bytes
    s: bytes
    signed: bytes

    @property
    def product(self) -> Product | None:
        """What the CPUID bytes say; None where there are none, or none that we know."""
        return None if self.cpuid is None else product_of(*self.cpuid[:2])


def product_of(family: int, model: int) -> Product | None:
    """Product line by CPUID family and model (extended values added). Bergamo and Siena (0x19, 0xA0…) stand on Genoa's root."""
    if family == 0x19:
        if model <= 0x0F:
            return "Milan"
        return "Genoa" if 0x10 <= model <= 0x1F or 0xA0 <= model <= 0xAF else None
    return "Turin" if family == 0x1A and model <= 0x11 else None


def parse_snp_report(data: bytes) -> SnpReport:
    """Strict parse of exactly 1184 bytes.

    Raises:
        BadRequest: `malformed-snp-report`: any length, version, algorithm or reserved bit that is not as published.
    """
    if len(data) != REPORT_BYTES:
        raise _malformed(f"{len(data)} bytes, not {REPORT_BYTES}")
    version, key_info = _checked_version(data), _key_info(data)
    _check_reserved(data, version)
    return SnpReport(
        version=version,
        guest_svn=_number(data, 0x004, 4),
        policy=_guest_policy(data),
        family_id=data[0x010:0x020],
        image_id=data[0x020:0x030],
        vmpl=_number(data, 0x030, 4),
        platform_info=_number(data, 0x040, 8),
        signing_key=SigningKey(key_info >> 2),
        author_key_enabled=bool(key_info & _AUTHOR_KEY),
        chip_masked=bool(key_info & _MASK_CHIP),
        report_data=data[0x050:0x090],
        measurement=data[0x090:0x0C0],
        host_data=data[0x0C0:0x0E0],
        id_key_digest=data[0x0E0:0x110],
        author_key_digest=data[0x110:0x140],
        report_id=data[0x140:0x160],
        report_id_ma=data[0x160:0x180],
        current_tcb=data[0x038:0x040],
        reported_tcb=data[0x180:0x188],
        committed_tcb=data[0x1E0:0x1E8],
        launch_tcb=data[0x1F0:0x1F8],
        cpuid=(data[0x188], data[0x189], data[0x18A]) if version >= 3 else None,
        chip_id=data[0x1A0:0x1E0],
        current_firmware=(data[0x1EA], data[0x1E9], data[0x1E8]),
        committed_firmware=(data[0x1EE], data[0x1ED], data[0x1EC]),
        mitigations=(_number(data, 0x1F8, 8), _number(data, 0x200, 8)) if version >= 5 else None,
        r=data[SIGNED_BYTES : SIGNED_BYTES + COMPONENT_BYTES],
        s=data[SIGNED_BYTES + COMPONENT_BYTES : SIGNED_BYTES + 2 * COMPONENT_BYTES],
        signed=data[:SIGNED_BYTES],
    )


def _checked_version(data: bytes) -> int:
    version, vmpl = _number(data, 0x000, 4), _number(data, 0x030, 4)
    if version not in VERSIONS:
        raise _malformed(f"version {version} is not known")
    if _number(data, 0x034, 4) != ECDSA_P384_SHA384:
        raise _malformed("the signature algorithm is not ECDSA P-384 with SHA-384")
    if vmpl > MAX_VMPL:
        raise _malformed(f"there is no VMPL {vmpl}")
    return version


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _check_reserved(data: bytes, version: int) -> None:
    spans = (
        (0x04C, 0x050),
        (0x18B if version >= 3 else 0x188, 0x1A0),
        (0x1EB, 0x1EC),
        (0x1EF, 0x1F0),
        (0x208 if version >= 5 else 0x1F8, SIGNED_BYTES),
        (SIGNED_BYTES + 2 * COMPONENT_BYTES, REPORT_BYTES),
    )
    for start, end in spans:
        if any(data[start:end]):
            raise _malformed(f"reserved bytes 0x{start:03X} to 0x{end - 1:03X} are not zero")


def _guest_policy(data: bytes) -> GuestPolicy:
    raw = _number(data, 0x008, 8)
    # An unknown bit may allow the host something that we cannot name, so it is refused and not passed over.
    if raw & ~_POLICY_KNOWN or not raw & GuestPolicy.RESERVED_ONE:
        raise _malformed(f"guest policy {raw:#018x} has reserved bits that are not as published")
    return GuestPolicy(raw)


def _key_info(data: bytes) -> int:
    raw = _number(data, 0x048, 4)
    if raw & ~_KEY_INFO_KNOWN or raw >> 2 not in set(SigningKey):
        raise _malformed(f"key info {raw:#010x} has reserved values")
    return raw


def _malformed(why: str) -> BadRequest:
    return BadRequest(f"SEV-SNP report: {why}", code="malformed-snp-report")
