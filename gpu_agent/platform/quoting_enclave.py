"""The emulated quoting enclave: quotes and sealing keys for the CVMs it measured. Knows no HTTP, no file and no session.

It lives in the platform's process, outside every guest: a bug in a guest cannot forge evidence. What a quote says of a CVM comes
from the enclave's own measurement, never from the caller, who chooses the 64 bytes of report data and nothing else.
"""

from __future__ import annotations

import base64
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from gpu_agent.platform.pki import QuotingKeys
from shared.attestation.quote import SignatureData, TdReport, pack_header, pack_qe_report, pack_quote, parse_qe_report
from shared.canonical import cbor_bytes, sha256, sha384
from shared.crypto.derived_key import DERIVED_KEY_BYTES, derived_key_info
from shared.crypto.hpke import seal
from shared.crypto.schedule import hkdf
from shared.crypto.secret import Secret
from shared.errors import BadRequest, ConfigurationError, EmulationWarning, NotFound
from shared.wire.visit import Evidence

TD_ATTRIBUTES = (1 << 28).to_bytes(8, "little")  # SEPT_VE_DISABLE, never DEBUG
XFAM = (0xE7).to_bytes(8, "little")  # x87, SSE, AVX, AVX-512
TEE_TCB_SVN = bytes([1, 1, 1]) + bytes(13)
QE_AUTH = bytes(range(32))  # as on real machines (cpu-tee.md 1.1)
MAX_LABEL = 120


@dataclass(frozen=True)
class Cvm:
    """One confidential VM as measured at launch: `mr_td` 48 bytes. Its name is measured into MRCONFIGID."""

    name: str
    mr_td: bytes

    @property
    def mr_config_id(self) -> bytes:
        """SHA-384("gput/cvm" 00 name): tells CVMs of the same code apart."""
        return sha384(b"gput/cvm\x00" + self.name.encode())


class QuotingEnclave:
    """Signs quotes under the installation's emulated PKI, and derives sealing keys from its secret.

    Args:
        keys: PCK key and chain.
        secret: the installation's secret, 32 bytes.
        cvms: by name, as measured.
    """

    def __init__(self, keys: QuotingKeys, secret: Secret, cvms: Mapping[str, Cvm]) -> None:
        warnings.warn("the quoting enclave is EMULATED: its quotes prove nothing", EmulationWarning, stacklevel=2)
        if len(secret) != 32:
            raise ConfigurationError("the installation secret has 32 bytes", code="installation-secret")
        pck = serialization.load_pem_private_key(keys.pck_key, password=None)
        if not isinstance(pck, ec.EllipticCurvePrivateKey):
            raise ConfigurationError("the PCK key is not an elliptic-curve key", code="quoting-keys")
        self._secret, self._cvms, self._chain = secret, dict(cvms), keys.chain
        self._key = ec.generate_private_key(ec.SECP256R1())
        point = self._key.public_key().public_bytes(
            serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
        )
        self._public = point[1:]
        self._qe_report = pack_qe_report(
            mr_enclave=sha256(b"EMULATED quoting enclave"),
            mr_signer=sha256(b"EMULATED quoting enclave signer"),
            isv_prod_id=2,
            isv_svn=4,
            report_data=sha256(self._public + QE_AUTH) + bytes(32),
        )
        self._qe_signature = _sign(pck, self._qe_report)

    @property
    def cvms(self) -> tuple[str, ...]:
        """Names of the CVMs it measured."""
        return tuple(self._cvms)

    def quote(self, name: str, report_data: bytes) -> Evidence:
        """A version 4 TDX quote of one CVM over 64 bytes. Raises: NotFound, BadRequest."""
        if len(report_data) != 64:
            raise BadRequest(f"report data has 64 bytes, got {len(report_data)}", code="bad-report-data")
        signed = pack_header() + self._report(self._cvm(name), report_data).pack()
        quote = pack_quote(
            signed,
            SignatureData(
                signature=_sign(self._key, signed),
                attestation_key=self._public,
                qe_report=parse_qe_report(self._qe_report),
                qe_signature=self._qe_signature,
                qe_auth=QE_AUTH,
                certification=self._chain,
            ),
        )
        return Evidence(quote=base64.b64encode(quote).decode())

    def derived_key(self, name: str, label: str, recipient: bytes) -> bytes:
        """HKDF(installation secret, CBOR["gput/derived-key", measurement, name, label]), 32 bytes, sealed to `recipient`.

        Other code, another CVM, another installation or another label gives another key, as SNP's MSG_KEY_REQ does.

        Raises:
            NotFound: no such CVM.
            BadRequest: the label or the recipient's HPKE key is malformed.
        """
        cvm = self._cvm(name)
        if not 1 <= len(label) <= MAX_LABEL:
            raise BadRequest(f"a label has 1 to {MAX_LABEL} characters", code="bad-label")
        info = cbor_bytes(["gput/derived-key", cvm.mr_td, cvm.name, label])
        key = hkdf(self._secret.reveal(), info, DERIVED_KEY_BYTES)
        return seal(recipient, key, derived_key_info(name, label, recipient))

    def _cvm(self, name: str) -> Cvm:
        try:
            return self._cvms[name]
        except KeyError:
            raise NotFound(f"no CVM {name} was measured", code="unknown-cvm") from None

    def _report(self, cvm: Cvm, report_data: bytes) -> TdReport:
        zero = bytes(48)
        return TdReport(
            tee_tcb_svn=TEE_TCB_SVN,
            mr_seam=sha384(b"EMULATED TDX module"),
            mrsigner_seam=zero,
            seam_attributes=bytes(8),
            td_attributes=TD_ATTRIBUTES,
            xfam=XFAM,
            mr_td=cvm.mr_td,
            mr_config_id=cvm.mr_config_id,
            mr_owner=zero,
            mr_owner_config=zero,
            rtmr0=zero,
            rtmr1=zero,
            rtmr2=zero,
            rtmr3=zero,
            report_data=report_data,
        )


def _sign(key: ec.EllipticCurvePrivateKey, data: bytes) -> bytes:
    r, s = decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")
