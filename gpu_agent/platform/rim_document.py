"""Reference integrity manifests of the emulated GPU, in NVIDIA's SWID form. Knows no file and no firmware.

The same elements, attributes, namespaces, order and signature as in published ones (reference h100.md 3.1); the maker's name says EMULATED
and its enterprise number is 0, which IANA reserves.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from lxml import etree

from gpu_agent.platform.device_pki import Issued
from shared.attestation.gpu_report import BLOCKS, DIGEST_BYTES
from shared.attestation.gpu_rim import HASHES, SWID, TCG_RIM
from shared.attestation.rim_xml import C14N, DS, ECDSA_SHA384, ENVELOPED, SHA384, canonical, parse_document
from shared.canonical import sha384
from shared.crypto import ecc

MAKER = "GPU Travelling, EMULATED"
MAKER_NUMBER = "0"


def make_rim(
    *, product: str, version: str, golden: Mapping[int, bytes], signer: Issued, above: Sequence[x509.Certificate]
) -> bytes:
    """A signed manifest.

    Args:
        golden: RIM index (0-63) -> the one admissible SHA-384 value, of the entries that are to be active.
        above: the signer's issuers up to the root, all of which travel inside.
    """
    root = parse_document(_tag(product, version, golden).encode())
    digest = b64encode(sha384(canonical(root))).decode()
    signature = etree.fromstring(_signature(digest, [signer.certificate, *above]))
    root.append(signature)
    value = signature.find(f"{{{DS}}}SignatureValue")
    info = signature.find(f"{{{DS}}}SignedInfo")
    if value is None or info is None:
        raise ValueError("a signature without its parts")
    value.text = b64encode(ecc.sign(signer.key, canonical(info))).decode()
    return etree.tostring(root) + b"\n"


def _tag(product: str, version: str, golden: Mapping[int, bytes]) -> str:
    resources = "\n".join(_resource(index, golden.get(index)) for index in range(BLOCKS))
    tag_id = sha384(f"{product} {version}\n{resources}".encode()).hex()
    return f"""<SoftwareIdentity xmlns="{SWID}" xmlns:ns0="{SWID}" xmlns:ns2="{HASHES}" corpus="false" name="{product}" \
patch="false" supplemental="false" tagId="{tag_id}" version="1.0" tagVersion="0">
    <ns0:Entity name="{MAKER}" role="softwareCreator tagCreator"/>
    <ns0:Meta xmlns:ns1="{TCG_RIM}" colloquialVersion="{version}" edition="GPU" product="{product}" revision="r1" \
PayloadType="direct" ns1:BindingSpec="RIMIM" ns1:BindingSpecVersion="1.01" ns1:PlatformManufacturerId="{MAKER_NUMBER}" \
ns1:PlatformManufacturerStr="{MAKER}" ns1:PlatformModel="{product}" ns1:FirmwareManufacturer="{MAKER}" \
ns1:FirmwareManufacturerId="{MAKER_NUMBER}"/>
    <ns0:Payload xmlns:SHA384="{HASHES}">
{resources}
    </ns0:Payload>
</SoftwareIdentity>"""


def _resource(index: int, value: bytes | None) -> str:
    active, shown = value is not None, value or bytes(DIGEST_BYTES)
    return (
        f'        <ns0:Resource type="Measurement" index="{index}" active="{active}" alternatives="1" '
        f'ns2:Hash0="{shown.hex()}" name="Measurement_{index}" size="{DIGEST_BYTES}"/>'
    )


def _signature(digest: str, chain: Sequence[x509.Certificate]) -> str:
    certificates = "".join(
        f"<ds:X509Certificate>{b64encode(link.public_bytes(serialization.Encoding.DER)).decode()}</ds:X509Certificate>"
        for link in chain
    )
    return (
        f'<ds:Signature xmlns:ds="{DS}"><ds:SignedInfo><ds:CanonicalizationMethod Algorithm="{C14N}"/>'
        f'<ds:SignatureMethod Algorithm="{ECDSA_SHA384}"/><ds:Reference URI=""><ds:Transforms>'
        f'<ds:Transform Algorithm="{ENVELOPED}"/><ds:Transform Algorithm="{C14N}"/></ds:Transforms>'
        f'<ds:DigestMethod Algorithm="{SHA384}"/><ds:DigestValue>{digest}</ds:DigestValue></ds:Reference></ds:SignedInfo>'
        f"<ds:SignatureValue/><ds:KeyInfo><ds:X509Data>{certificates}</ds:X509Data></ds:KeyInfo></ds:Signature>"
    )
