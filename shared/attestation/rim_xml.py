"""XML of reference integrity manifests: hostile bytes to a tree, and its one enveloped signature. Knows no measurement, no certificate.

XML Signature as NVIDIA uses it (reference h100.md 3.1): one `Signature`, last child of the root, one Reference URI="" with
enveloped-signature and C14N 1.1, ECDSA P-384 over SHA-384 as r ‖ s. Because what is signed is the whole document but the Signature, and
readers take nothing from inside that, there is no second content to wrap. C14N 1.1 differs from 1.0 (libxml2's) only in how `xml:`
attributes are inherited; those are refused, so both give the same bytes.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from lxml import etree

from shared.canonical import sha384
from shared.errors import VerificationFailed

MAX_RIM_BYTES: Final = 1 << 20
DS: Final = "http://www.w3.org/2000/09/xmldsig#"
C14N: Final = "http://www.w3.org/2006/12/xml-c14n11"
ENVELOPED: Final = "http://www.w3.org/2000/09/xmldsig#enveloped-signature"
ECDSA_SHA384: Final = "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha384"
SHA384: Final = "http://www.w3.org/2001/04/xmldsig-more#sha384"
_XML_NAMESPACE = "{http://www.w3.org/XML/1998/namespace}"
# Real manifests have 64 resources, 20 elements of signature and 7 namespace declarations. Canonicalisation is quadratic in attributes
# and namespaces of one element, so both are bounded before it runs.
_MAX_ELEMENTS, _MAX_ATTRIBUTES, _MAX_NAMESPACES, _MAX_CERTIFICATES = 160, 40, 32, 8


@dataclass(frozen=True)
class Signature:
    """What is signed and by what, still unjudged: `content` and `stated` are SHA-384 of the document and as SignedInfo names it.

    `signed_info`: canonical bytes; `value`: r ‖ s; `certificates`: DER, signer first.
    """

    content: bytes
    stated: bytes
    signed_info: bytes
    value: bytes
    certificates: tuple[bytes, ...]


def malformed(why: str) -> VerificationFailed:
    """The one error of a manifest that is not as published."""
    return VerificationFailed(
        f"the reference integrity manifest is malformed: {why}", code="gpu-rim-malformed",
        remedy="fetch the manifest anew from the maker's RIM service",
    )  # fmt: skip


def parse_document(data: bytes) -> etree._Element:
    """The root element of at most 1 MiB of UTF-8: no DTD, entity, comment, processing instruction, `xml:` attribute.

    Raises:
        VerificationFailed: `gpu-rim-malformed`.
    """
    if len(data) > MAX_RIM_BYTES:
        raise malformed(f"{len(data)} bytes, at most {MAX_RIM_BYTES}")
    # No "<!" at all: no DTD and so no entity to expand, no comment, no CDATA.
    if b"<!" in data or b"\0" in data or data.count(b"xmlns") > _MAX_NAMESPACES:
        raise malformed("it has a declaration, comment, CDATA, zero byte or too many namespaces")
    parser = etree.XMLParser(
        encoding="utf-8", resolve_entities=False, no_network=True, load_dtd=False, dtd_validation=False, huge_tree=False,
        collect_ids=False,
    )  # fmt: skip
    try:
        root = etree.fromstring(data, parser)
    except (etree.LxmlError, ValueError) as error:
        raise malformed(f"not XML ({type(error).__name__})") from None
    if root.getprevious() is not None or root.getnext() is not None:
        raise malformed("something stands beside its root element")
    _check_nodes(root)
    return root


def _check_nodes(root: etree._Element) -> None:
    for number, node in enumerate(root.iter(), start=1):
        if number > _MAX_ELEMENTS or not isinstance(node.tag, str):
            raise malformed("too many elements, or a node that is no element")
        if len(node.attrib) > _MAX_ATTRIBUTES or any(str(name).startswith(_XML_NAMESPACE) for name in node.attrib):
            raise malformed("an element has too many attributes, or an xml: one")


def canonical(element: etree._Element) -> bytes:
    """Canonical XML of an element with the namespaces it inherits, no comments.

    Raises:
        VerificationFailed: `gpu-rim-malformed`: it has no canonical form, for instance a relative namespace name.
    """
    try:
        return etree.tostring(element, method="c14n", exclusive=False, with_comments=False)
    except etree.LxmlError:
        raise malformed("it has no canonical form") from None


def take_signature(root: etree._Element) -> Signature:
    """Remove the enveloped signature from the tree; what is left is what it signs.

    Raises:
        VerificationFailed: `gpu-rim-malformed`: none, several, elsewhere than last, or of another form.
    """
    found = [node for node in root.iter() if node.tag == f"{{{DS}}}Signature"]
    if len(found) != 1 or len(root) == 0 or root[-1] is not found[0]:
        raise malformed("it has not exactly one signature, as last element of its root")
    signature = found[0]
    info, value, key_info = _children(signature, "SignedInfo", "SignatureValue", "KeyInfo")
    stated = _reference(info)
    certificates = _certificates(key_info)
    signed_info = canonical(info)
    _remove(signature)
    return Signature(sha384(canonical(root)), stated, signed_info, _bytes(value, 96), certificates)


def _reference(info: etree._Element) -> bytes:
    """The stated digest. The algorithms and transforms may be NVIDIA's only."""
    method, algorithm, reference = _children(info, "CanonicalizationMethod", "SignatureMethod", "Reference")
    _algorithm(method, C14N)
    _algorithm(algorithm, ECDSA_SHA384)
    if _attributes(reference) != {"URI": ""}:
        raise malformed("its signature does not speak of the whole document")
    transforms, digest_method, digest = _children(reference, "Transforms", "DigestMethod", "DigestValue", of="URI")
    first, second = _children(transforms, "Transform", "Transform")
    _algorithm(first, ENVELOPED)
    _algorithm(second, C14N)
    _algorithm(digest_method, SHA384)
    return _bytes(digest, 48)


def _certificates(key_info: etree._Element) -> tuple[bytes, ...]:
    """DER, signer first. A KeyValue may stand beside them; nothing reads it."""
    data = [node for node in key_info if node.tag == f"{{{DS}}}X509Data"]
    others = [node for node in key_info if node.tag not in (f"{{{DS}}}X509Data", f"{{{DS}}}KeyValue")]
    if len(data) != 1 or others or _has_text(key_info) or key_info.attrib or not 1 <= len(data[0]) <= _MAX_CERTIFICATES:
        raise malformed("its signature does not name certificates in one X509Data")
    return tuple(_bytes(node) for node in _children(data[0], *["X509Certificate"] * len(data[0])))


def _children(parent: etree._Element, *names: str, of: str | None = None) -> list[etree._Element]:
    """Exactly these children in this order, no text between, no attribute but `of`."""
    if [node.tag for node in parent] != [f"{{{DS}}}{name}" for name in names] or _has_text(parent):
        raise malformed(f"{etree.QName(parent).localname} in its signature is not as published")
    if set(parent.attrib) - {of}:
        raise malformed(f"{etree.QName(parent).localname} in its signature has attributes")
    return list(parent)


def _algorithm(element: etree._Element, name: str) -> None:
    if _attributes(element) != {"Algorithm": name} or len(element) or (element.text or "").strip():
        raise malformed(f"its signature uses {str(element.get('Algorithm'))[:80]!r} and not {name!r}")


def _bytes(element: etree._Element, size: int | None = None) -> bytes:
    text = "".join((element.text or "").split())
    try:
        value = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        value = b""
    if not value or len(element) or element.attrib or size not in (None, len(value)):
        raise malformed(f"{etree.QName(element).localname} in its signature is not base64 of the right length")
    return value


def _attributes(element: etree._Element) -> dict[str, str]:
    return {str(name): str(value) for name, value in element.attrib.items()}


def _has_text(element: etree._Element) -> bool:
    texts = [element.text, *(node.tail for node in element)]
    return any((text or "").strip() for text in texts)


def _remove(signature: etree._Element) -> None:
    """Take the element out and leave the text after it where it was."""
    parent, before, tail = signature.getparent(), signature.getprevious(), signature.tail or ""
    if parent is None or before is None:
        raise malformed("its signature stands alone")
    before.tail = (before.tail or "") + tail
    parent.remove(signature)
