"""The emulated quoting enclave: quotes and sealing keys for CVMs as they were measured. Knows no HTTP, no file and no session.

It lives in the platform's process, outside every guest: a bug in a guest cannot forge evidence. What a quote says of a CVM comes
from its measurement and its registers, never from the caller, who chooses the 64 bytes of report data and nothing else.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gpu_agent.platform.collateral_maker import sign_raw
from gpu_agent.platform.machine import (
    MR_SEAM,
    MRSIGNER_SEAM,
    QE_AUTH,
    QE_MR_ENCLAVE,
    QE_MR_SIGNER,
    QE_PRODUCT,
    QE_SVN,
    TD_ATTRIBUTES,
    TEE_TCB_SVN,
    XFAM,
)
from gpu_agent.platform.pki import QuotingKeys
from gpu_agent.platform.quote_packing import pack_qe_report, pack_quote, pack_signed
from shared.attestation.quote import SignatureData, TdReport, parse_qe_report
from shared.canonical import cbor_bytes, sha256, sha384
from shared.claims.event_log import ZERO
from shared.crypto.derived_key import DERIVED_KEY_BYTES, derived_key_info
from shared.crypto.hpke import seal
from shared.crypto.schedule import hkdf
from shared.crypto.secret import Secret
from shared.errors import BadRequest, ConfigurationError, EmulationWarning

MAX_LABEL = 120


@dataclass(frozen=True)
class Cvm:
    """One confidential VM: `mr_td` 48 bytes as measured at launch, `rtmrs` as extended since. Its name is measured into MRCONFIGID."""

    name: str
    mr_td: bytes
    rtmrs: tuple[bytes, bytes, bytes, bytes] = (ZERO, ZERO, ZERO, ZERO)

    @property
    def mr_config_id(self) -> bytes:
        """SHA-384("gput/cvm" 00 name): tells CVMs of the same code apart."""
        return sha384(b"gput/cvm\x00" + self.name.encode())


class QuotingEnclave:
    """Signs quotes under the installation's emulated PKI, and derives sealing keys from its secret.

    Args:
        keys: PCK key and chain.
        secret: the installation's secret, 32 bytes.
        version: of the quotes, 4 or 5; 5 carries a TD report 1.5.
    """

    def __init__(self, keys: QuotingKeys, secret: Secret, version: int = 4) -> None:
        warnings.warn("the quoting enclave is EMULATED: its quotes prove nothing", EmulationWarning, stacklevel=2)
        if len(secret) != 32:
            raise ConfigurationError("the installation secret has 32 bytes", code="installation-secret")
        try:
            pck = serialization.load_pem_private_key(keys.pck_key, password=None)
        except (ValueError, TypeError):
            pck = None
        if not isinstance(pck, ec.EllipticCurvePrivateKey):
            raise ConfigurationError("the PCK key is not an elliptic-curve key", code="quoting-keys")
        self._secret, self._chain, self._version = secret, keys.chain, version
        self._key = ec.generate_private_key(ec.SECP256R1())
        point = self._key.public_key().public_bytes(
            serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
        )
        self._public = point[1:]
        self._qe_report = pack_qe_report(
            mr_enclave=QE_MR_ENCLAVE,
            mr_signer=QE_MR_SIGNER,
            isv_prod_id=QE_PRODUCT,
            isv_svn=QE_SVN,
            report_data=sha256(self._public + QE_AUTH) + bytes(32),
        )
        self._qe_signature = sign_raw(pck, self._qe_report)

    def quote(self, cvm: Cvm, report_data: bytes) -> bytes:
        """A TDX quote of one CVM over 64 bytes. Raises: BadRequest."""
        if len(report_data) != 64:
            raise BadRequest(f"report data has 64 bytes, got {len(report_data)}", code="bad-report-data")
        signed = pack_signed(self._version, self._report(cvm, report_data))
        return pack_quote(
            signed,
            SignatureData(
                signature=sign_raw(self._key, signed),
                attestation_key=self._public,
                qe_report=parse_qe_report(self._qe_report),
                qe_signature=self._qe_signature,
                qe_auth=QE_AUTH,
                certification=self._chain,
            ),
        )

    def derived_key(self, cvm: Cvm, label: str, recipient: bytes) -> bytes:
        """HKDF(installation secret, CBOR["gput/derived-key", measurement, name, label]), 32 bytes, sealed to `recipient`.

        Other code, another CVM, another installation or another label gives another key, as SNP's MSG_KEY_REQ does.

        Raises:
            BadRequest: the label or the recipient's HPKE key is malformed.
        """
        if not 1 <= len(label) <= MAX_LABEL:
            raise BadRequest(f"a label has 1 to {MAX_LABEL} characters", code="bad-label")
        info = cbor_bytes(["gput/derived-key", cvm.mr_td, cvm.name, label])
        key = hkdf(self._secret.reveal(), info, DERIVED_KEY_BYTES)
        return seal(recipient, key, derived_key_info(cvm.name, label, recipient))

    def _report(self, cvm: Cvm, report_data: bytes) -> TdReport:
        return TdReport(
            tee_tcb_svn=TEE_TCB_SVN,
            mr_seam=MR_SEAM,
            mrsigner_seam=MRSIGNER_SEAM,
            seam_attributes=bytes(8),
            td_attributes=TD_ATTRIBUTES,
            xfam=XFAM,
            mr_td=cvm.mr_td,
            mr_config_id=cvm.mr_config_id,
            mr_owner=ZERO,
            mr_owner_config=ZERO,
            rtmr0=cvm.rtmrs[0],
            rtmr1=cvm.rtmrs[1],
            rtmr2=cvm.rtmrs[2],
            rtmr3=cvm.rtmrs[3],
            report_data=report_data,
            tail=b"" if self._version == 4 else TEE_TCB_SVN + bytes(48),  # the same module still runs; no service TD
        )
