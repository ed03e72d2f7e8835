"""Reference integrity manifests of GPUs: strict SWID parser, signature, file names. Knows no report, no policy, no folder.

A SWID tag (ISO/IEC 19770-2:2015) with TCG RIM attributes (reference h100.md 3.1): who made it, for which version of what product, and up
to 64 golden values. The signer is the first certificate only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Literal

from cryptography import x509
from lxml import etree

from shared.attestation.gpu_report import BLOCKS, DIGEST_BYTES, GpuReport, Opaque
from shared.attestation.p384_chain import Chain, public_key
from shared.attestation.rim_xml import Signature, malformed, parse_document, take_signature
from shared.attestation.x509_parts import BAD_CERTIFICATE, readable
from shared.crypto import ecc
from shared.errors import VerificationFailed

RimKind = Literal["driver", "vbios"]
SWID: Final = "http://standards.iso.org/iso/19770/-2/2015/schema.xsd"
TCG_RIM: Final = "https://trustedcomputinggroup.org/resource/tcg-reference-integrity-manifest-rim-information-model/"
HASHES: Final = "http://www.w3.org/2001/04/xmlenc#sha384"
RIM_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,119}")
_MAX_ALTERNATIVES: Final = 16
_RESOURCE = {"type", "index", "active", "alternatives", "name", "size"}
_HEX = re.compile(rf"[0-9a-fA-F]{{{2 * DIGEST_BYTES}}}")
_NUMBER = re.compile(r"0|[1-9][0-9]?")
_WORDS: Final[dict[RimKind, str]] = {"driver": "the driver RIM", "vbios": "the VBIOS RIM"}


@dataclass(frozen=True)
class Rim:
    """A well-formed manifest; nothing in it is believed yet.

    Attributes:
        version, product: what it is for, for instance "550.90.07" and "GH100". manufacturer: its IANA enterprise number.
        golden: RIM index (0-63; report block minus 1) -> admissible SHA-384 values, of active entries only.
        inactive: the other indices that it names.
        chain: the signer's certificates, signer first.
    """

    version: str
    product: str
    manufacturer: str
    golden: Mapping[int, tuple[bytes, ...]]
    inactive: frozenset[int]
    chain: Chain
    signature: Signature = field(repr=False)


def rim_name(kind: RimKind, report: GpuReport, product: str) -> str:
    """The name under which NVIDIA publishes the manifest for this report (reference h100.md 3.2).

    Args:
        product: the certified device's, for instance "GH100".

    Raises:
        VerificationFailed: `gpu-rim-name`: a field that cannot be part of a name.
    """
    if kind == "vbios":
        parts = (report.text(part) for part in (Opaque.PROJECT, Opaque.PROJECT_SKU, Opaque.CHIP_SKU))
        return "_".join(["NV_GPU_VBIOS", *parts, report.vbios_version.replace(".", "")])
    if product.startswith("GH"):
        return f"NV_GPU_DRIVER_GH100_{report.driver_version}"
    chip = report.text(Opaque.CHIP_INFO) if Opaque.CHIP_INFO in report.opaque else "GB100"
    return f"NV_GPU_CC_DRIVER_{chip}_{report.driver_version}"


@lru_cache(maxsize=16)
def parse_rim(kind: RimKind, data: bytes) -> Rim:
    """Strict parse. Raises: VerificationFailed `gpu-rim-malformed`."""
    root = parse_document(data)
    signature = take_signature(root)
    _check_root(root)
    _, meta, payload = root
    golden, inactive = _resources(payload)
    if meta.get("edition") != "GPU" or root.get("name") != meta.get("product"):
        raise malformed("it is not for a GPU, or names two products")
    chain = Chain(_loaded(signature.certificates), f"the chain of {_WORDS[kind]}", f"gpu-{kind}-rim-chain")
    return Rim(
        version=_text(meta, "colloquialVersion"),
        product=_text(meta, "product"),
        manufacturer=_text(meta, f"{{{TCG_RIM}}}FirmwareManufacturerId"),
        golden=MappingProxyType(golden),
        inactive=frozenset(inactive),
        chain=chain,
        signature=signature,
    )


# What the signature is over does not change with time; chain and validity are judged elsewhere.
@lru_cache(maxsize=16)
def _check_signature(signature: Signature, chain: Chain, what: str) -> None:
    if signature.content != signature.stated:
        raise VerificationFailed(
            f"{what} was changed after it was signed", code="gpu-rim-signature", expected=signature.stated.hex(),
            got=signature.content.hex(),
        )  # fmt: skip
    key = public_key(chain.certificates[0], chain)
    try:
        ecc.verify(key, signature.signed_info, signature.value, what)
    except VerificationFailed:
        raise VerificationFailed(f"{what} is not signed by its first certificate", code="gpu-rim-signature") from None


def check_signature(kind: RimKind, rim: Rim) -> None:
    """Content as signed, and signed by the first certificate. Raises: VerificationFailed `gpu-rim-signature`."""
    _check_signature(rim.signature, rim.chain, _WORDS[kind])


def _check_root(root: etree._Element) -> None:
    names = [f"{{{SWID}}}{name}" for name in ("Entity", "Meta", "Payload")]
    if root.tag != f"{{{SWID}}}SoftwareIdentity" or [node.tag for node in root] != names:
        raise malformed("it is not a SWID tag of Entity, Meta, Payload and Signature")
    if any(root.get(flag, "false") != "false" for flag in ("corpus", "patch", "supplemental")):
        raise malformed("it is a corpus, patch or supplemental tag")
    if len(root[0]) or len(root[1]) or any((node.text or "").strip() for node in root):
        raise malformed("Entity and Meta have content, or Payload has text")


def _resources(payload: etree._Element) -> tuple[dict[int, tuple[bytes, ...]], set[int]]:
    golden: dict[int, tuple[bytes, ...]] = {}
    inactive: set[int] = set()
    for node in payload:
        index, active, values = _resource(node)
        if index in golden or index in inactive:
            raise malformed(f"index {index} stands in it twice")
        if active:
            golden[index] = values
        else:
            inactive.add(index)
    if not golden:
        raise malformed("no entry is active, so it would approve of anything")
    return golden, inactive


def _resource(node: etree._Element) -> tuple[int, bool, tuple[bytes, ...]]:
    """(index, active, admissible values) of one entry. A kind of entry that is not known is refused: it may limit what is good."""
    if node.tag != f"{{{SWID}}}Resource" or len(node) or node.get("type") != "Measurement":
        raise malformed("Payload has an entry that is no measurement")
    index, count = (int(_matching(node, name, _NUMBER)) for name in ("index", "alternatives"))
    hashes = [f"{{{HASHES}}}Hash{number}" for number in range(count)]
    if set(map(str, node.attrib)) != {*_RESOURCE, *hashes} or not 1 <= count <= _MAX_ALTERNATIVES or index >= BLOCKS:
        raise malformed(f"entry {index} has other attributes, alternatives or index than published")
    active = node.get("active")
    if active not in ("True", "False") or node.get("size") != str(DIGEST_BYTES):
        raise malformed(f"entry {index} is neither active nor not, or of another size")
    return index, active == "True", tuple(bytes.fromhex(_matching(node, name, _HEX)) for name in hashes)


def _matching(node: etree._Element, name: str, pattern: re.Pattern[str]) -> str:
    value = _text(node, name)
    if not pattern.fullmatch(value):
        raise malformed(f"{etree.QName(name).localname} is {value[:100]!r}")
    return value


def _text(node: etree._Element, name: str) -> str:
    value = node.get(name)
    if not value or len(value) > 200:
        raise malformed(f"{etree.QName(node).localname} has no {etree.QName(name).localname}")
    return value


def _loaded(ders: tuple[bytes, ...]) -> tuple[x509.Certificate, ...]:
    try:
        return readable(x509.load_der_x509_certificate(der) for der in ders)
    except BAD_CERTIFICATE:
        raise malformed("a certificate in it cannot be read") from None
