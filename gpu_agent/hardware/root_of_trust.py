"""The emulated GPU's root of trust: attestation key, chain, signed reports, the statement key of this boot. Knows no session, no HBM.

Its certificates stand on a root whose name says EMULATED (law L10); what it reports is measured from the code that really runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gpu_agent.hardware.firmware import DRIVER_VERSION, VBIOS_FIELD, Firmware, measure_firmware
from shared.attestation.gpu_chain import certified_firmware, identity_of, parse_chain, public_key
from shared.attestation.gpu_report import (
    DISABLED,
    NONCE_BYTES,
    ORDER_580,
    REQUEST_BYTES,
    STATEMENT_KEY_PROFILE,
    Opaque,
    unsigned_report,
)
from shared.attestation.p384_chain import Chain
from shared.canonical import cbor_bytes, sha256, sha384
from shared.crypto import ecc
from shared.crypto.cose import p384_point, sign1
from shared.crypto.signing import PartyKey
from shared.errors import ConfigurationError, EmulationWarning, VerificationFailed
from shared.names import Backend
from shared.wire.spdm import chain_form, parse_get_measurements

Entropy = Callable[[int], bytes]
LEAF_FILE: Final = "leaf.pem"
CHAIN_FILE: Final = "chain.pem"
_SINGLE_GPU = b"\0\0"


class RootOfTrust:
    """One booted device. `device`: permanent identity (PDI, hex); `statement_key`: Ed25519, drawn at boot, certified by the leaf.

    Args:
        leaf: the attestation key. chain: its five certificates. firmware: what this boot measured.
        entropy: statement key, boot nonce, responder nonces.
    """

    backend: Final = Backend.EMULATED

    def __init__(self, leaf: ec.EllipticCurvePrivateKey, chain: Chain, firmware: Firmware, entropy: Entropy) -> None:
        warnings.warn("this GPU is EMULATED: its evidence proves nothing", EmulationWarning, stacklevel=3)
        if ecc.point(leaf.public_key()) != ecc.point(public_key(chain.certificates[0])):
            raise ConfigurationError("the device's leaf key is not that of its chain", code="bad-device")
        self._leaf, self._firmware, self._entropy = leaf, firmware, entropy
        der = [certificate.public_bytes(serialization.Encoding.DER) for certificate in reversed(chain.certificates)]
        self.chain_spdm = chain_form(sha384(der[0]), der)
        self.chain_pem = "".join(link.public_bytes(serialization.Encoding.PEM).decode() for link in chain.certificates)
        self.device = identity_of(chain).pdi
        self.statement_key = PartyKey.generate(entropy)
        self.statement_certificate = self._certify_statement_key()

    @classmethod
    def load(cls, folder: Path, entropy: Entropy) -> RootOfTrust:
        """Boot the device whose identity lies in `folder`: measure the firmware, draw a statement key.

        Raises:
            ConfigurationError: the identity is absent, open to other users, damaged, or certified for other firmware.
        """
        leaf = load_private(folder / LEAF_FILE)
        try:
            chain = parse_chain((folder / CHAIN_FILE).read_text())
            certified = certified_firmware(chain)
        except (OSError, UnicodeDecodeError, VerificationFailed) as error:
            raise ConfigurationError(
                f"device identity {folder / CHAIN_FILE} cannot be used: {error}",
                code="bad-device",
                remedy="restore it from a backup",
            ) from None
        firmware = measure_firmware()
        if (
            certified != firmware.fwid
        ):  # every verifier would refuse its evidence: better here, where somebody can do something about it
            raise ConfigurationError(
                f"device identity {folder / CHAIN_FILE} is certified for other firmware than is installed: a release came since",
                code="bad-device",
                expected=certified.hex(),
                got=firmware.fwid.hex(),
                remedy="manufacture again under this release: python -m gpu_agent.platform manufacture; it keeps the device's identity",
            )
        return cls(leaf, chain, firmware, entropy)

    def sign(self, data: bytes) -> bytes:
        """ECDSA P-384 over SHA-384(data) by the leaf key, r ‖ s (96 bytes)."""
        return ecc.sign(self._leaf, data)

    def sign_statement(self, payload: bytes) -> bytes:
        """COSE_Sign1 by the statement key of this boot, which it names by SHA-256 of its raw public half."""
        return sign1(payload, self.statement_key, kid=sha256(self.statement_key.public))

    def measurements(self, request: bytes) -> bytes:
        """The signed MEASUREMENTS response to a GET_MEASUREMENTS of 37 bytes. Raises: BadRequest `malformed-spdm`."""
        return self.report(request)[REQUEST_BYTES:]

    def report(self, request: bytes) -> bytes:
        """The attestation report, request ‖ response (4130 bytes), in the 580 form. Raises: BadRequest `malformed-spdm`."""
        parse_get_measurements(request)
        unsigned = unsigned_of(self._firmware, request, self._entropy(NONCE_BYTES))
        return unsigned + self.sign(unsigned)

    def _certify_statement_key(self) -> bytes:
        payload = [STATEMENT_KEY_PROFILE, self._entropy(32), self.statement_key.public]
        return sign1(cbor_bytes(payload), self._leaf, kid=sha256(p384_point(self._leaf.public_key())))

    def __repr__(self) -> str:
        return f"RootOfTrust({self.device}, {self.backend})"


def unsigned_of(firmware: Firmware, request: bytes, responder_nonce: bytes) -> bytes:
    """What a device with this firmware reports, up to the signature."""
    return unsigned_report(request, firmware.measurements, responder_nonce, _opaque(firmware))


def load_private(path: Path) -> ec.EllipticCurvePrivateKey:
    """A device's P-384 key (PKCS8 PEM, readable by its owner only). Raises: ConfigurationError."""
    try:
        mode, pem = path.stat().st_mode, path.read_bytes()
        key = serialization.load_pem_private_key(pem, None)
    except OSError as error:
        raise ConfigurationError(
            f"device key {path} cannot be read: {error.strerror}",
            code="bad-device",
            remedy="manufacture the device first: python -m gpu_agent.platform manufacture",
        ) from None
    except (ValueError, TypeError):
        key, mode = None, 0
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP384R1):
        raise ConfigurationError(
            f"device key {path} is not P-384", code="bad-device", remedy="restore it from a backup"
        )
    if mode & 0o077:
        raise ConfigurationError(
            f"device key {path} is open to other users",
            code="bad-device",
            remedy=f"chmod 600 {path}",
        )
    return key


def _opaque(firmware: Firmware) -> dict[int, bytes]:
    fields: dict[int, bytes] = {
        Opaque.VBIOS_VERSION: VBIOS_FIELD,
        Opaque.BOARD_ID: bytes(4),
        Opaque.CHIP_SKU: b"EMULATED\0",
        Opaque.CHIP_SKU_MOD: b"0".ljust(5, b"\0"),
        Opaque.PROJECT: b"GPUT\0",
        Opaque.PROJECT_SKU: b"0001\0",
        Opaque.PROJECT_SKU_MOD: bytes(2),
        Opaque.DRIVER_VERSION: DRIVER_VERSION.encode() + b"\0",
        Opaque.GPU_INFO: bytes.fromhex("8001000000000000"),
        Opaque.MSRSCNT: firmware.extensions,
        Opaque.CPRINFO: bytes.fromhex("00c00100"),
        Opaque.NVDEC0_STATUS: DISABLED,
        Opaque.FWID: firmware.fwid,
        Opaque.PROTECTED_PCIE_STATUS: DISABLED,
        Opaque.OPAQUE_DATA_VERSION: b"\x01\0",
        Opaque.FEATURE_FLAG: _SINGLE_GPU,
    }
    return {kind: fields[kind] for kind in ORDER_580}
