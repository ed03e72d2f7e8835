"""The TDX quote, byte for byte: versions 4 and 5, strictly parsed. Knows no key, no root and no policy: parsing is not believing.

Layout: Intel TDX DCAP Quoting Library API, appendix A.3 and A.4. Integers are little-endian; ECDSA numbers big-endian.

    header 48 | [v5: body type 2, body size 4] | TD report | length 4 | signature data | zero padding (unsigned)
    signature data: signature 64, attestation key 64, type 6: 2, size 4, then
        QE report 384, its signature 64, auth data 2 + 32, type 5: 2, size 4, PEM chain (leaf, platform CA, root)
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields

from shared.errors import BadRequest

HEADER = struct.Struct("<HHIHH16s20s")
TDX_TEE = 0x81
ECDSA_P256 = 2
INTEL_QE_VENDOR = bytes.fromhex("939a7233f79c4ca9940a0db3957f0607")
QE_CERTIFICATION, PEM_CHAIN = 6, 5
QE_REPORT_BYTES = 384
MAX_QUOTE_BYTES = 64 * 1024
BODY_SIZES = {2: 584, 3: 648, 4: 885}  # version 5 body types: TD report 1.0, 1.5, 1.5 extended
QE_AUTH_BYTES = 32  # what every quoting enclave writes; other lengths are known from no machine


@dataclass(frozen=True)
class TdReport:
    """TD report body. Lengths in bytes: measurements 48, report data 64, SVNs 16, attributes and XFAM 8 (little-endian).

    `tail` holds what TD report 1.5 and its extension append (tee_tcb_svn2 16, mr_servicetd 48, …); empty in 1.0.
    """

    tee_tcb_svn: bytes
    mr_seam: bytes
    mrsigner_seam: bytes
    seam_attributes: bytes
    td_attributes: bytes
    xfam: bytes
    mr_td: bytes
    mr_config_id: bytes
    mr_owner: bytes
    mr_owner_config: bytes
    rtmr0: bytes
    rtmr1: bytes
    rtmr2: bytes
    rtmr3: bytes
    report_data: bytes
    tail: bytes = b""

    @property
    def tee_tcb_svn2(self) -> bytes:
        """SVNs of the TDX module that runs now, not of the one that launched the TD; empty in TD report 1.0."""
        return self.tail[:16]

    @property
    def mr_servicetd(self) -> bytes:
        """Measurement of a bound service TD; empty in TD report 1.0."""
        return self.tail[16:64]

    @property
    def extension(self) -> dict[str, bytes]:
        """What TD report 1.5 extended adds, by published name and in order; empty in the others."""
        reader, found = _Reader(self.tail[64:], "the extended TD report"), {}
        if len(self.tail) > _TD15_TAIL:
            found = {name: reader.take(length, name) for name, length in _EXTENSION}
        return found

    def pack(self) -> bytes:
        """The body's bytes. Raises: BadRequest when a field has a wrong length."""
        return b"".join(
            _sized(getattr(self, field.name), size, field.name)
            for field, size in zip(fields(self), (*_BODY_LENGTHS, len(self.tail)), strict=True)
        )


_BODY_LENGTHS = (16, 48, 48, 8, 8, 8, 48, 48, 48, 48, 48, 48, 48, 48, 64)
_TD15_TAIL = 64
_EXTENSION = (
    ("vmid", 1),
    ("td_id", 32),
    ("dev_info", 48),
    ("init_servicetd_hash", 48),
    ("init_servicetd_attributes", 8),
    ("init_cpu_svn", 16),
    ("init_tee_tcb_svn", 16),
    ("init_tee_fmspc", 12),
    ("cur_servicetd_hash", 48),
    ("cur_servicetd_attributes", 8),
)


@dataclass(frozen=True)
class QeReport:
    """The quoting enclave's SGX report body, 384 bytes in `raw`; `report_data` 64, `attributes` 16, `misc_select` a bit field."""

    raw: bytes
    misc_select: int
    attributes: bytes
    mr_enclave: bytes
    mr_signer: bytes
    isv_prod_id: int
    isv_svn: int
    report_data: bytes


@dataclass(frozen=True)
class SignatureData:
    """`signature` r ‖ s (64) over `TdxQuote.signed`; `attestation_key` x ‖ y (64); `certification` the PEM chain, leaf first."""

    signature: bytes
    attestation_key: bytes
    qe_report: QeReport
    qe_signature: bytes
    qe_auth: bytes
    certification: bytes


@dataclass(frozen=True)
class TdxQuote:
    """One parsed quote. `signed` is header and body as received; `exact` the quote without its zero padding.

    `body_type`: 2, 3 or 4 (TD report 1.0, 1.5, 1.5 extended); a version 4 quote is of type 2.
    """

    version: int
    body_type: int
    user_data: bytes
    body: TdReport
    signature: SignatureData
    signed: bytes
    exact: bytes


class _Reader:
    """Takes bytes off the front and never reads past the end."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data, self._at, self._what = data, 0, what

    @property
    def position(self) -> int:
        return self._at

    def take(self, count: int, name: str) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise _malformed(f"{self._what} ends within {name}")
        piece, self._at = self._data[self._at : end], end
        return piece

    def number(self, size: int, name: str) -> int:
        return int.from_bytes(self.take(size, name), "little")

    def rest(self) -> bytes:
        return self._data[self._at :]


def parse_quote(data: bytes) -> TdxQuote:
    """Strict parse of a TDX quote, version 4 or 5.

    Raises:
        BadRequest: `malformed-quote`: any length, type or constant that does not fit, or unsigned bytes other than zero at the end.
    """
    if len(data) > MAX_QUOTE_BYTES:
        raise _malformed(f"{len(data)} bytes are too many")
    reader = _Reader(data, "the quote")
    version, user_data = _parse_header(reader.take(HEADER.size, "the header"))
    body_type, size = 2, BODY_SIZES[2]
    if version == 5:
        body_type, size = reader.number(2, "the body type"), reader.number(4, "the body size")
        if BODY_SIZES.get(body_type) != size:
            raise _malformed(f"body type {body_type} of {size} bytes is not a TD report")
    body = parse_body(reader.take(size, "the TD report"))
    signed = data[: reader.position]
    signature = reader.take(reader.number(4, "the signature length"), "the signature data")
    if any(reader.rest()):
        raise _malformed("unsigned bytes follow the signature data")
    return TdxQuote(version, body_type, user_data, body, _parse_signature(signature), signed, data[: reader.position])


def parse_body(raw: bytes) -> TdReport:
    """A TD report of a known length. Raises: BadRequest `malformed-quote`."""
    if len(raw) not in BODY_SIZES.values():
        raise _malformed(f"no TD report has {len(raw)} bytes")
    reader = _Reader(raw, "the TD report")
    parts = [reader.take(length, field.name) for field, length in zip(fields(TdReport), _BODY_LENGTHS, strict=False)]
    parts.append(reader.rest())
    return TdReport(*parts)


def parse_qe_report(raw: bytes) -> QeReport:
    """An SGX report body. Raises: BadRequest `malformed-quote`."""
    if len(raw) != QE_REPORT_BYTES:
        raise _malformed(f"a QE report has {QE_REPORT_BYTES} bytes, got {len(raw)}")
    return QeReport(
        raw=raw,
        misc_select=int.from_bytes(raw[16:20], "little"),
        attributes=raw[48:64],
        mr_enclave=raw[64:96],
        mr_signer=raw[128:160],
        isv_prod_id=int.from_bytes(raw[256:258], "little"),
        isv_svn=int.from_bytes(raw[258:260], "little"),
        report_data=raw[320:384],
    )


def _parse_header(raw: bytes) -> tuple[int, bytes]:
    version, key_type, tee_type, _svn, _pce, vendor, user_data = HEADER.unpack(raw)
    if version not in (4, 5):
        raise _malformed(f"version {version} is not 4 or 5")
    if tee_type != TDX_TEE:
        raise _malformed(f"TEE type {tee_type:#x} is not TDX")
    if key_type != ECDSA_P256:
        raise _malformed(f"attestation key type {key_type} is not ECDSA P-256")
    if vendor != INTEL_QE_VENDOR:
        raise _malformed("the quoting enclave's vendor is unknown")
    return version, user_data


def _parse_signature(raw: bytes) -> SignatureData:
    reader = _Reader(raw, "the signature data")
    signature, key = reader.take(64, "the signature"), reader.take(64, "the attestation key")
    kind, size = reader.number(2, "the certification type"), reader.number(4, "the certification size")
    if kind != QE_CERTIFICATION or size != len(reader.rest()):
        raise _malformed(f"certification data of type {kind} and {size} bytes does not fill the signature data")
    qe_report = parse_qe_report(reader.take(QE_REPORT_BYTES, "the QE report"))
    qe_signature = reader.take(64, "the QE report's signature")
    auth = reader.take(reader.number(2, "the QE authentication size"), "the QE authentication data")
    if len(auth) != QE_AUTH_BYTES:
        raise _malformed(f"the QE authentication data has {len(auth)} bytes, not {QE_AUTH_BYTES}")
    kind, size = reader.number(2, "the inner certification type"), reader.number(4, "the inner certification size")
    if kind != PEM_CHAIN or size != len(reader.rest()):
        raise _malformed(f"inner certification data of type {kind} and {size} bytes is not the PEM chain")
    return SignatureData(signature, key, qe_report, qe_signature, auth, reader.rest())


def _sized(value: bytes, size: int, name: str) -> bytes:
    if len(value) != size:
        raise BadRequest(f"{name} has {size} bytes, got {len(value)}", code="malformed-quote")
    return value


def _malformed(why: str) -> BadRequest:
    return BadRequest(f"TDX quote: {why}", code="malformed-quote")
