"""SPDM 1.1 responder of the GPU (the GSP's part): handshake and measurements. Knows no transport, no HBM and no command.

The order of messages is a table. Errors go back as SPDM ERROR messages, never as exceptions: the requester may be anybody. A
pending handshake does not disturb the session that stands; only a FINISH that verifies replaces it (and then the hooks decide
whether the GPU is wiped or a new life opens).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from shared.canonical import sha384
from shared.crypto import ecc, schedule
from shared.crypto.spdm_record import SpdmRecords
from shared.errors import GputError
from shared.wire import spdm

Entropy = Callable[[int], bytes]


class State(StrEnum):
    """How far a handshake is."""

    START = "START"
    VERSIONED = "VERSIONED"
    CAPABLE = "CAPABLE"
    NEGOTIATED = "NEGOTIATED"
    KEYED = "KEYED"


class Attester(Protocol):
    """The root of trust as the responder needs it."""

    @property
    def chain_spdm(self) -> bytes:
        """The certificate chain in SPDM form."""

    def sign(self, data: bytes) -> bytes:
        """ECDSA P-384 by the leaf key, r ‖ s (96 bytes)."""

    def measurements(self, request: bytes) -> bytes:
        """The signed MEASUREMENTS response to a GET_MEASUREMENTS of 37 bytes."""


class SpdmHooks(Protocol):
    """What the device does at the two moments that matter."""

    def check_resume(self, vendor: spdm.VendorElement, request_random: bytes, public_key: bytes) -> None:
        """Judge the resume proof of a KEY_EXCHANGE. Raises VerificationFailed: nothing changes."""

    def session_opened(
        self, vendor: spdm.VendorElement, session_id: int, export_master_secret: bytes, th2: bytes
    ) -> None:
        """A handshake has finished: wipe, or open a new life. 48-byte secret; the callee keeps no copy.

        Raises:
            VerificationFailed `resume-refused`: it may not. Other errors are faults of the device's own.
        """


class _Pending:
    """A handshake after KEY_EXCHANGE_RSP. `transcript` ends with its verify data, TH1 before it (see the requester)."""

    def __init__(self, exchange: spdm.KeyExchange, session_id: int, handshake: bytes, signed: bytes) -> None:
        self.vendor, self.session_id, self.handshake = exchange.vendor, session_id, handshake
        th1 = sha384(signed)
        self.request_secret, response_secret = schedule.hs_secrets(handshake, th1)
        self.verify_data = schedule.verify_data(response_secret, th1)
        self.transcript = signed + self.verify_data
        self.opening = SpdmRecords(session_id, self.request_secret)
        self.sealing = SpdmRecords(session_id, response_secret)


class SpdmResponder:
    """One device's responder: at most one session stands, at most one handshake is pending.

    Args:
        report: told of faults of the device's own: of them the requester hears that there was one, and whoever runs the device which.
    """

    def __init__(
        self, root_of_trust: Attester, *, entropy: Entropy, hooks: SpdmHooks, report: Callable[[BaseException], None]
    ) -> None:
        self._rot, self._entropy, self._hooks, self._report = root_of_trust, entropy, hooks, report
        self._state = State.START
        self._vca = b""
        self._pending: _Pending | None = None
        self._session: tuple[int, SpdmRecords, SpdmRecords] | None = None

    def message(self, data: bytes) -> bytes:
        """Answer one message or secured record; a fault is answered with an ERROR message."""
        try:
            session_id = int.from_bytes(data[:4], "little")
            if self._pending is not None and session_id == self._pending.session_id:
                return self._finish(self._pending, data)
            if self._session is not None and session_id == self._session[0]:
                return self._secured(self._session, data)
            return self._clear(data)
        except GputError:
            # Which check failed stays inside: the requester is unauthenticated.
            return spdm.error(spdm.INVALID_REQUEST)

    def _clear(self, data: bytes) -> bytes:
        code = spdm.code_of(data)
        handler = _HANDLERS.get((self._state, code)) or _HANDLERS.get((None, code))
        if handler is None:
            known = any(code == known for _, known in _HANDLERS)
            return spdm.error(spdm.UNEXPECTED_REQUEST if known else spdm.UNSUPPORTED_REQUEST)
        return handler(self, data)

    # ------------------------------------------------------------- handshake

    def _version(self, data: bytes) -> bytes:
        """GET_VERSION resets a handshake; the session that stands is left alone."""
        self._pending, self._vca, self._state = None, b"", State.START
        return self._constant(data, spdm.GET_VERSION_MESSAGE, spdm.VERSION_MESSAGE, State.VERSIONED)

    def _capabilities(self, data: bytes) -> bytes:
        return self._constant(data, spdm.GET_CAPABILITIES_MESSAGE, spdm.CAPABILITIES_MESSAGE, State.CAPABLE)

    def _algorithms(self, data: bytes) -> bytes:
        return self._constant(data, spdm.NEGOTIATE_ALGORITHMS_MESSAGE, spdm.ALGORITHMS_MESSAGE, State.NEGOTIATED)

    def _constant(self, data: bytes, request: bytes, response: bytes, then: State) -> bytes:
        if data != request:
            return spdm.error(spdm.INVALID_REQUEST)
        self._vca += request + response
        self._state = then
        return response

    def _certificate(self, data: bytes) -> bytes:
        offset, length = spdm.parse_get_certificate(data)
        if offset >= len(self._rot.chain_spdm) or not length:
            return spdm.error(spdm.INVALID_REQUEST)
        return spdm.certificate(self._rot.chain_spdm, offset, length)

    def _key_exchange(self, data: bytes) -> bytes:
        exchange = spdm.parse_key_exchange(data)
        self._hooks.check_resume(exchange.vendor, exchange.random, exchange.point)
        private = ecc.private_key(self._entropy)
        handshake = schedule.handshake_secret(ecc.shared_x(private, exchange.point))
        response_id = self._response_id(exchange.request_id)
        unsigned = spdm.key_exchange_rsp_unsigned(
            response_id, self._entropy(spdm.RANDOM_BYTES), ecc.point(private.public_key())
        )
        transcript = self._vca + sha384(self._rot.chain_spdm) + data + unsigned
        signature = self._rot.sign(transcript)
        session_id = exchange.request_id | response_id << 16
        self._pending = _Pending(exchange, session_id, handshake, transcript + signature)
        self._state = State.KEYED
        return unsigned + signature + self._pending.verify_data

    def _response_id(self, request_id: int) -> int:
        """Our half of a session id, 16 bits.

        The top bit makes a record's first four bytes unlike any clear message's header (Param2 is below 0x80 there), and the id differs
        from that of the session that stands: the requester chooses its half, so neither may be left to chance.
        """
        chosen = int.from_bytes(self._entropy(2), "little") | 0x8000
        taken = self._session is not None and self._session[0] == request_id | chosen << 16
        return chosen ^ 1 if taken else chosen

    def _finish(self, pending: _Pending, data: bytes) -> bytes:
        message = pending.opening.open(data)
        given = spdm.parse_finish(message)
        expected = schedule.verify_data(pending.request_secret, sha384(pending.transcript + spdm.FINISH_HEADER))
        self._pending, self._state = None, State.START
        if not hmac.compare_digest(expected, given):
            return spdm.error(spdm.DECRYPT_ERROR)
        answer = pending.sealing.seal(spdm.FINISH_RSP_MESSAGE)
        th2 = sha384(pending.transcript + message + spdm.FINISH_RSP_MESSAGE)
        master = schedule.master_secret(pending.handshake)
        request, response = schedule.app_secrets(master, th2)
        session_id, export = pending.session_id, schedule.export_master_secret(master, th2)
        try:
            self._hooks.session_opened(pending.vendor, session_id, export, th2)
        except GputError as error:
            if error.code == "resume-refused":
                raise
            self._report(error)
            return spdm.error(spdm.UNSPECIFIED)
        self._session = session_id, SpdmRecords(session_id, request), SpdmRecords(session_id, response)
        return answer

    # --------------------------------------------------------------- session

    def _secured(self, session: tuple[int, SpdmRecords, SpdmRecords], data: bytes) -> bytes:
        _, opening, sealing = session
        message = opening.open(data)
        if spdm.code_of(message) != spdm.GET_MEASUREMENTS:
            return sealing.seal(spdm.error(spdm.UNSUPPORTED_REQUEST))
        spdm.parse_get_measurements(message)
        return sealing.seal(self._rot.measurements(message))


# The whole order: (state, or None for any) and request code -> handler.
_HANDLERS: dict[tuple[State | None, int], Callable[[SpdmResponder, bytes], bytes]] = {
    (None, spdm.GET_VERSION): SpdmResponder._version,
    (State.VERSIONED, spdm.GET_CAPABILITIES): SpdmResponder._capabilities,
    (State.CAPABLE, spdm.NEGOTIATE_ALGORITHMS): SpdmResponder._algorithms,
    (State.NEGOTIATED, spdm.GET_CERTIFICATE): SpdmResponder._certificate,
    (State.NEGOTIATED, spdm.KEY_EXCHANGE): SpdmResponder._key_exchange,
}
