"""X.509 parts as strangers send them: read at once, or refused as one family of errors. Knows no maker, no chain and no policy."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

# What `cryptography` raises on hostile certificates; its own exceptions are no family.
BAD_CERTIFICATE = (
    ValueError, TypeError, OverflowError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)  # fmt: skip

PEM_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]*)-----END CERTIFICATE-----")
"""One block of PEM, its base64 as the group."""

# The name attributes whose length X.520 bounds and the library minds, by their encoded OIDs: bytes that each may have.
_BOUNDS: Final = {
    bytes.fromhex("0603550403"): range(1, 65),  # commonName
    bytes.fromhex("0603550406"): range(2, 3),  # countryName
    bytes.fromhex("060b2b0601040182373c020103"): range(2, 3),  # jurisdictionCountryName
}
_TEXTS: Final = b"\x0c\x13\x16"  # UTF8String, PrintableString, IA5String: bytes as the library counts them
_BOUNDED: Final = re.compile(b"(" + b"|".join(map(re.escape, _BOUNDS)) + rb")(.)(.)", re.DOTALL)


def check_names(signed: bytes) -> None:
    """Every bounded attribute of every name in `signed` (DER) is a text of a length that it may have.

    The library would only warn of another, wherever a name is first read. A warning stops nothing, and to make an error of it or to
    keep it out of the log would change the filters of the whole process: evidence is verified in threads. So it is looked for in the
    bytes, before any name is read. The bytes of an OID and a length can lie elsewhere by chance once in 2^40 places.

    Raises:
        ValueError: one is not.
    """
    for found in _BOUNDED.finditer(signed):
        if found[2] not in _TEXTS or found[3][0] not in _BOUNDS[found[1]]:
            raise ValueError("an attribute of a name is no text of the length that X.520 allows")


def readable(certificates: Iterable[x509.Certificate]) -> tuple[x509.Certificate, ...]:
    """The same, once every part that is read later could be: the library parses each only when asked, and only then finds it malformed.
    A serial number is positive (RFC 5280 4.1.2.2), of which the library only warns.

    Raises:
        One of `BAD_CERTIFICATE`.
    """
    found = tuple(certificates)
    parts: list[object] = []
    for certificate in found:
        check_names(certificate.tbs_certificate_bytes)
        parts += [certificate.subject, certificate.issuer, certificate.extensions]
        if certificate.serial_number < 1:
            raise ValueError("a certificate's serial number is not positive")
        parts += [
            certificate.not_valid_before_utc,
            certificate.not_valid_after_utc,
            certificate.signature_algorithm_oid,
        ]
    return found
