"""The orchestrator's end of an SPDM 1.1 session, sans I/O: bytes in, bytes out. Knows no transport and no trust policy.

TH1, from which the handshake secrets come, ends with the signature: verify data cannot be in what its own key is made of (so does
libspdm). FINISH and TH2 cover the complete KEY_EXCHANGE_RSP.

It proves that the device holds the leaf key of the chain it showed (KEY_EXCHANGE_RSP signature, DSP0274 1.1) and that both ends
share one transcript (verify data). Whether that chain is to be trusted is decided by `gpu_verifier` over the same chain.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Callable

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from shared.attestation.gpu_chain import public_key
from shared.attestation.x509_parts import BAD_CERTIFICATE, readable
from shared.canonical import sha384
from shared.crypto import ecc, schedule
from shared.crypto.secret import Secret
from shared.crypto.spdm_record import SpdmRecords
from shared.errors import ProtocolViolation, VerificationFailed
from shared.wire import spdm

Entropy = Callable[[int], bytes]
ResumeProof = Callable[[bytes, bytes], bytes]
MAX_CHAIN_BYTES = 0x2000


class SpdmSession:
    """An established session: hashes of TH1 and TH2 (48 bytes), the device's chain, records in both directions."""

    def __init__(self, session_id: int, th1: bytes, th2: bytes, master: bytes, chain: list[bytes]) -> None:
        self.session_id, self.th1, self.th2 = session_id, th1, th2
        self.chain_pem = "".join(_pem(der) for der in reversed(chain))
        request, response = schedule.app_secrets(master, th2)
        self._seal, self._open = SpdmRecords(session_id, request), SpdmRecords(session_id, response)
        self._export: Secret | None = Secret(schedule.export_master_secret(master, th2))
        self._asked = b""

    def take_export_master_secret(self) -> bytes:
        """48 bytes, once; afterwards it is gone (as in NVIDIA's driver). Raises: ProtocolViolation."""
        if self._export is None:
            raise ProtocolViolation("the export master secret was fetched already", code="secret-taken")
        value, self._export = self._export, None
        return value.reveal()

    def request_measurements(self, nonce: bytes) -> bytes:
        """The record that asks for a signed report over `nonce` (32 bytes)."""
        self._asked = spdm.get_measurements(nonce)
        return self._seal.seal(self._asked)

    def parse_measurements(self, record: bytes) -> bytes:
        """The report, request ‖ response, as NVML returns it. Raises: VerificationFailed, BadRequest."""
        response = self._open.open(record)
        if spdm.code_of(response) != spdm.MEASUREMENTS:
            raise VerificationFailed("the device gave no measurements", code="no-measurements")
        return self._asked + response


class SpdmRequester:
    """Drives the handshake: `start()` gives the first message, `feed()` takes each answer and gives the next.

    Args:
        signing_key_digest: SHA-256 of the orchestrator's signing key, bound into the transcript.
        life: the life to open on a full GPU, 0 for a fresh start.
        resume: (request random, request public key) -> resume proof (48 bytes), or None for a fresh start.
    """

    def __init__(
        self, *, entropy: Entropy, signing_key_digest: bytes, life: int = 0, resume: ResumeProof | None = None
    ) -> None:
        self._entropy, self._digest, self._life, self._resume = entropy, signing_key_digest, life, resume
        self._steps = iter((self._version, self._capabilities, self._algorithms))
        self._expected: Callable[[bytes], bytes | None] = next(self._steps)
        self._vca = b""
        self._sent = b""
        self._chain = b""
        self._established: SpdmSession | None = None

    @property
    def session(self) -> SpdmSession:
        """The session once it stands. Raises: ProtocolViolation before."""
        if self._established is None:
            raise ProtocolViolation("the SPDM session does not stand yet", code="no-session")
        return self._established

    def start(self) -> bytes:
        """GET_VERSION."""
        self._sent = spdm.GET_VERSION_MESSAGE
        return self._sent

    def feed(self, response: bytes) -> bytes | None:
        """Take the answer to the last message; the next message, or None when the session stands.

        Raises:
            BadRequest: the answer is malformed or an SPDM ERROR (`spdm-error`). Unavailable `spdm-device-fault`: the device has a fault.
            VerificationFailed: signature, verify data or tag do not hold.
        """
        return self._expected(response)

    def _send(self, message: bytes, then: Callable[[bytes], bytes | None]) -> bytes:
        self._sent, self._expected = message, then
        return message

    def _constant(self, response: bytes, expected: bytes) -> None:
        if response != expected:
            raise VerificationFailed("the device negotiates another protocol profile", code="spdm-profile")
        self._vca += self._sent + response

    def _version(self, response: bytes) -> bytes:
        self._constant(response, spdm.VERSION_MESSAGE)
        return self._send(spdm.GET_CAPABILITIES_MESSAGE, self._capabilities)

    def _capabilities(self, response: bytes) -> bytes:
        self._constant(response, spdm.CAPABILITIES_MESSAGE)
        return self._send(spdm.NEGOTIATE_ALGORITHMS_MESSAGE, self._algorithms)

    def _algorithms(self, response: bytes) -> bytes:
        self._constant(response, spdm.ALGORITHMS_MESSAGE)
        return self._send(spdm.get_certificate(0), self._certificate)

    def _certificate(self, response: bytes) -> bytes:
        portion, remainder = spdm.parse_certificate(response)
        self._chain += portion
        if len(self._chain) + remainder > MAX_CHAIN_BYTES:
            raise VerificationFailed("the device's certificate chain is too long", code="chain-too-long")
        if remainder:
            return self._send(spdm.get_certificate(len(self._chain)), self._certificate)
        return self._key_exchange()

    def _key_exchange(self) -> bytes:
        self._private = ecc.private_key(self._entropy)
        random, point = self._entropy(spdm.RANDOM_BYTES), ecc.point(self._private.public_key())
        proof = self._resume(random, point) if self._resume else b""
        self._request_id = int.from_bytes(self._entropy(2), "little")
        vendor = spdm.VendorElement(self._digest, self._life, proof)
        return self._send(spdm.key_exchange(self._request_id, random, point, vendor), self._finish)

    def _finish(self, response: bytes) -> bytes:
        """Numbered as DSP0274 1.1: 1 parse, 2 signature over TH, 3 verify data over TH1, 4 our verify data."""
        answer = spdm.parse_key_exchange_rsp(response)
        _, self._certificates = spdm.parse_chain_form(self._chain)
        transcript = self._vca + sha384(self._chain) + self._sent + answer.unsigned
        ecc.verify(_leaf_key(self._certificates), transcript, answer.signature, "KEY_EXCHANGE_RSP")
        handshake = schedule.handshake_secret(ecc.shared_x(self._private, answer.point))
        self._th1 = sha384(transcript + answer.signature)
        self._secrets = schedule.hs_secrets(handshake, self._th1)
        if not hmac.compare_digest(schedule.verify_data(self._secrets[1], self._th1), answer.verify_data):
            raise VerificationFailed("KEY_EXCHANGE_RSP: verify data does not hold", code="verify-data")
        self._transcript = transcript + answer.signature + answer.verify_data
        self._master = schedule.master_secret(handshake)
        self._session_id = self._request_id | answer.response_id << 16
        own = schedule.verify_data(self._secrets[0], sha384(self._transcript + spdm.FINISH_HEADER))
        self._finish_message = spdm.FINISH_HEADER + own
        record = SpdmRecords(self._session_id, self._secrets[0]).seal(self._finish_message)
        return self._send(record, self._finished)

    def _finished(self, response: bytes) -> None:
        if len(response) == spdm.HEADER_BYTES and spdm.code_of(response) == spdm.ERROR:  # a record is longer
            raise spdm.refusal(response)
        answer = SpdmRecords(self._session_id, self._secrets[1]).open(response)
        if answer != spdm.FINISH_RSP_MESSAGE:
            raise VerificationFailed("the device did not finish the handshake", code="not-finished")
        th2 = sha384(self._transcript + self._finish_message + answer)
        self._established = SpdmSession(self._session_id, self._th1, th2, self._master, self._certificates)
        del self._private, self._master, self._secrets


def _leaf_key(certificates: list[bytes]) -> ec.EllipticCurvePublicKey:
    try:
        (leaf,) = readable([x509.load_der_x509_certificate(certificates[-1])])
    except (IndexError, *BAD_CERTIFICATE):
        raise VerificationFailed("the device's leaf certificate is malformed", code="leaf-malformed") from None
    return public_key(leaf)


def _pem(der: bytes) -> str:
    body = b64encode(der).decode()
    lines = "\n".join(body[i : i + 64] for i in range(0, len(body), 64))
    return f"-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n"
