"""Manifests as hostile XML: what the parser refuses, what a signature covers, how wrapping fails. Knows no device."""

from __future__ import annotations

import re
from base64 import b64encode

import pytest
from cryptography.hazmat.primitives import serialization
from lxml import etree

from gpu_agent.platform import rim_document
from shared.attestation.gpu_rim import check_signature, parse_rim
from shared.attestation.rim_xml import DS, MAX_RIM_BYTES, canonical
from shared.canonical import sha384
from shared.crypto import ecc
from shared.errors import VerificationFailed
from tests.attestation.gpu_evidence_world import RimAuthority
from tests.attestation.gpu_samples import DRIVER_RIM, content, needs_samples
from tests.cpu_time import cpu_seconds

AUTHORITY = RimAuthority()
GOOD = AUTHORITY.make("driver")


def refused(data: bytes) -> str:
    """Code of the refusal by the parser or by the signature's check."""
    with pytest.raises(VerificationFailed) as caught:
        check_signature("driver", parse_rim("driver", data))
    return caught.value.code


def changed(old: str, new: str, data: bytes = GOOD, count: int = 1) -> bytes:
    assert old.encode() in data
    return data.replace(old.encode(), new.encode(), count)


def signed(body: str) -> bytes:
    """Any document with a genuine signature of our authority over it, whatever the builder would have refused."""
    root = etree.fromstring(body.encode(), etree.XMLParser(huge_tree=True))
    digest = b64encode(sha384(canonical(root))).decode()
    signature = etree.fromstring(rim_document._signature(digest, [AUTHORITY.signer.certificate, *AUTHORITY.above]))
    root.append(signature)
    value, info = signature.find(f"{{{DS}}}SignatureValue"), signature.find(f"{{{DS}}}SignedInfo")
    assert value is not None
    assert info is not None
    value.text = b64encode(ecc.sign(AUTHORITY.signer.key, canonical(info))).decode()
    return etree.tostring(root)


BODY = rim_document._tag("GH100", "580.000.01", {7: b"\x07" * 48, 21: b"\x15" * 48})


def test_a_manifest_of_our_making() -> None:
    rim = parse_rim("driver", GOOD)
    check_signature("driver", rim)
    assert (rim.product, rim.version, len(rim.golden), len(rim.inactive)) == ("GH100", "580.000.01", 21, 43)
    check_signature("driver", parse_rim("driver", signed(BODY)))


# ------------------------------------------------------------------ XML


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"no xml",
        b"<a>",
        b"\xff\xfe" + GOOD.decode().encode("utf-16-le"),
        b'<?xml version="1.0" encoding="UTF-16"?>' + GOOD.decode().encode("utf-16"),
        GOOD + b"<more/>",
        b"<?target instruction?>" + GOOD,
        GOOD + b"<?target instruction?>",
        b'<!DOCTYPE a [<!ENTITY b "c">]>' + GOOD,
        b'<!DOCTYPE a SYSTEM "file:///etc/passwd">' + GOOD,
        changed("<ns0:Entity ", "<!-- hidden --><ns0:Entity "),
        changed("<ns0:Entity ", "<![CDATA[ ]]><ns0:Entity "),
        changed("<ns0:Entity ", "<?pi?><ns0:Entity "),
        changed('role="', 'xml:base="http://elsewhere.invalid/" role="'),
        changed('Version="580', 'Version="&undefined;580'),
        changed("<ns0:Entity ", '<ns0:Entity xmlns:q="relative" '),  # has no canonical form
        changed("</ns0:Payload>", " " * MAX_RIM_BYTES + "</ns0:Payload>"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_plain_document(data: bytes) -> None:
    assert refused(data) == "gpu-rim-malformed"


def entity_bomb() -> bytes:
    levels = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 20))
    return f'<!DOCTYPE a [<!ENTITY e0 "ha">{levels}]><a>&e19;</a>'.encode()


def many(text: str, size: int = MAX_RIM_BYTES - 60_000) -> str:
    """As many different copies of `text` (with a number in it) as fit."""
    return "".join(text.format(number) for number in range(size // (len(text) + 4)))


@pytest.mark.parametrize(
    "data",
    [
        entity_bomb(),
        changed('role="', many('a{}="" ') + 'role="'),
        changed('role="', many('xmlns:n{}="u" ') + 'role="'),
        changed("<ns0:Entity ", "<a>" * 100_000 + "<ns0:Entity "),
        changed("</ns0:Payload>", "<ns0:Resource/>" * 50_000 + "</ns0:Payload>"),
        changed("<ds:KeyInfo>", "<ds:KeyInfo>" + "<ds:KeyValue/>" * 60_000),
    ],
    ids=["entities", "attributes", "namespaces", "depth", "entries", "key values"],
)
def test_bombs_are_refused_soon(data: bytes) -> None:
    codes: list[str] = []
    assert cpu_seconds(lambda: codes.append(refused(data)), 2.0) < 2.0
    assert set(codes) == {"gpu-rim-malformed"}


# ------------------------------------------------------------------ SWID


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SoftwareIdentity", "SoftwareIdentityX"),
        ('corpus="false"', 'corpus="true"'),
        ('supplemental="false"', 'supplemental="true"'),
        ('edition="GPU"', 'edition="SWITCH"'),
        ('colloquialVersion="580.000.01"', ""),
        ('name="GH100"', 'name="GB100"'),
        ("<ns0:Payload ", "<ns0:Meta/><ns0:Payload "),
        ('index="7"', 'index="8"'),  # twice
        ('index="7"', 'index="64"'),
        ('index="7"', 'index="-1"'),
        ('index="7"', 'index="07"'),
        ('index="7"', 'index="٧"'),
        ('index="7" active="True"', 'index="7" active="true"'),
        ('index="7" active="True" alternatives="1"', 'index="7" active="True" alternatives="0"'),
        ('index="7" active="True" alternatives="1"', 'index="7" active="True" alternatives="2"'),
        ('type="Measurement" index="7"', 'type="Opaque" index="7"'),
        ('name="Measurement_7" size="48"', 'name="Measurement_7" size="32"'),
        ('name="Measurement_7"', 'name="Measurement_7" more=""'),
        ("ns2:Hash0", "Hash0"),
        ('ns2:Hash0="0', 'ns2:Hash0="g'),
        ('ns2:Hash0="00', 'ns2:Hash0="'),
    ],
)
def test_a_signed_tag_that_is_not_as_published(old: str, new: str) -> None:
    body = (
        BODY.replace("SoftwareIdentity", new)
        if old == "SoftwareIdentity"
        else changed(old, new, BODY.encode()).decode()
    )
    assert refused(signed(body)) == "gpu-rim-malformed"


def test_a_manifest_that_approves_of_nothing() -> None:
    assert refused(signed(BODY.replace('active="True"', 'active="False"'))) == "gpu-rim-malformed"


def test_alternatives() -> None:
    value = f'ns2:Hash0="{"07" * 48}"'
    body = BODY.replace(f'alternatives="1" {value}', f'alternatives="2" {value} ns2:Hash1="{"AB" * 48}"')
    rim = parse_rim("driver", signed(body))
    assert rim.golden[7] == (b"\x07" * 48, b"\xab" * 48)


# ------------------------------------------------------------------ signature


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('URI=""', 'URI="#part"'),
        ('URI=""', 'URI="" Id="x"'),
        ('URI=""', ""),
        ("<ds:Signature ", '<ds:Signature Id="x" '),
        ('xml-c14n11"/><ds:SignatureMethod', 'xml-c14n11#WithComments"/><ds:SignatureMethod'),
        ("xmldsig-more#ecdsa-sha384", "xmldsig-more#ecdsa-sha256"),
        ("xmldsig-more#ecdsa-sha384", "xmldsig-more#hmac-sha384"),
        ("xmldsig-more#sha384", "xmldsig-more#sha512"),
        (
            'enveloped-signature"/>',
            'enveloped-signature"/><ds:Transform Algorithm="http://www.w3.org/TR/1999/REC-xslt-19991116"/>',
        ),
        ("enveloped-signature", "base64"),
        ("<ds:KeyInfo>", "<ds:Object/><ds:KeyInfo>"),
        ("<ds:KeyInfo>", '<ds:KeyInfo Id="x">'),
        ("<ds:X509Data>", "<ds:X509Data/><ds:X509Data>"),
        ("<ds:X509Data>", "<ds:RetrievalMethod/><ds:X509Data>"),
        ("<ds:X509Data>", "<ds:X509Data><ds:X509CRL/>"),
        ("<ds:X509Certificate>", "<ds:X509Certificate>*"),
        ("<ds:DigestValue>", "<ds:DigestValue>AAAA"),
        ("<ds:DigestMethod", "words<ds:DigestMethod"),
    ],
)
def test_a_signature_of_another_form(old: str, new: str) -> None:
    assert refused(changed(old, new)) == "gpu-rim-malformed"


def test_everything_signed_counts() -> None:
    for old, new in (
        ('colloquialVersion="580.000.01"', 'colloquialVersion="580.000.02"'),
        ('active="False"', 'active="True"'),
        ("    </ns0:Payload>", "   </ns0:Payload>"),
        ("</ns0:Payload>\n", "</ns0:Payload>\n\n"),
        ("</SoftwareIdentity>", "\n</SoftwareIdentity>"),
    ):
        assert refused(changed(old, new)) == "gpu-rim-signature", old
    value = re.search(rb"<ds:SignatureValue>([^<]+)<", GOOD)
    assert value is not None
    assert refused(GOOD.replace(value[1], b64encode(bytes(96)))) == "gpu-rim-signature"
    assert refused(GOOD.replace(value[1], b64encode(b"\xff" * 96))) == "gpu-rim-signature"


def test_what_canonical_form_ignores_does_not_count() -> None:
    """Order of attributes, quotes, space inside of tags: canonicalisation really runs."""
    other = changed('corpus="false" name="GH100"', "name='GH100'\n corpus = 'false'")
    check_signature("driver", parse_rim("driver", other))
    assert sha384(other) != sha384(GOOD)


def test_only_the_first_certificate_signs() -> None:
    stranger, data = RimAuthority(), AUTHORITY.make("driver")
    ours = b64encode(AUTHORITY.signer.certificate.public_bytes(serialization.Encoding.DER))
    theirs = b64encode(stranger.signer.certificate.public_bytes(serialization.Encoding.DER))
    first = b"<ds:X509Certificate>" + ours
    assert refused(data.replace(ours, theirs, 1)) == "gpu-rim-signature"
    assert (
        refused(data.replace(first, b"<ds:X509Certificate>" + theirs + b"</ds:X509Certificate>" + first))
        == "gpu-rim-signature"
    )


def test_a_key_value_beside_the_certificates_is_not_read() -> None:
    value = "<ds:KeyValue><a:ECKeyValue xmlns:a='http://www.w3.org/2009/xmldsig11#'/></ds:KeyValue>"
    check_signature("driver", parse_rim("driver", changed("<ds:X509Data>", value + "<ds:X509Data>")))


# ------------------------------------------------------------------ wrapping


def parts(data: bytes = GOOD) -> tuple[str, str]:
    """(tag without signature, signature)."""
    text = data.decode().rstrip()
    start, end = text.index("<ds:Signature"), text.index("</ds:Signature>") + len("</ds:Signature>")
    return text[:start] + text[end:], text[start:end]


def test_wrapped_signatures() -> None:
    """A genuine signed tag somewhere inside, other content where readers look."""
    tag, signature = parts()
    evil = tag.replace('active="True"', 'active="False"', 20)
    genuine = tag.replace("</SoftwareIdentity>", signature + "</SoftwareIdentity>")
    inside = signature.replace("</ds:Signature>", f"<ds:Object>{genuine}</ds:Object></ds:Signature>")
    wrapped = [
        evil.replace("</SoftwareIdentity>", genuine + "</SoftwareIdentity>"),
        evil.replace("</SoftwareIdentity>", inside + "</SoftwareIdentity>"),
        evil.replace(
            "</SoftwareIdentity>", signature.replace("<ds:KeyInfo>", f"<ds:KeyInfo>{genuine}") + "</SoftwareIdentity>"
        ),
        evil.replace("<ns0:Entity ", genuine + "<ns0:Entity ").replace(
            "</SoftwareIdentity>", signature + "</SoftwareIdentity>"
        ),
        evil.replace("<ns0:Entity ", signature + "<ns0:Entity "),
        genuine.replace("<ns0:Entity ", signature + "<ns0:Entity "),
        genuine.replace("</SoftwareIdentity>", signature + "</SoftwareIdentity>"),
        f"<Wrapper>{evil}{genuine}</Wrapper>",
        evil,
    ]
    for data in wrapped:
        assert refused(data.encode()) == "gpu-rim-malformed"
    moved = evil.replace("</SoftwareIdentity>", signature + "</SoftwareIdentity>")
    assert refused(moved.encode()) == "gpu-rim-signature"


@needs_samples
def test_wrapping_what_nvidia_signed() -> None:
    tag, signature = parts(content(DRIVER_RIM))
    evil = tag.replace('active="True"', 'active="False"', 20)
    for data in (
        evil.replace("</SoftwareIdentity>", signature + "</SoftwareIdentity>"),
        evil.replace("</SoftwareIdentity>", signature.replace("</ds:Signature>", f"<ds:Object>{tag}</ds:Object></ds:Signature>")
                     + "</SoftwareIdentity>"),
    ):  # fmt: skip
        assert refused(data.encode()) in ("gpu-rim-signature", "gpu-rim-malformed")
    check_signature("driver", parse_rim("driver", content(DRIVER_RIM)))
