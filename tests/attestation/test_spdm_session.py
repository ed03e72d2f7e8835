"""Requester and responder against each other: the handshake whole, every message changed, every order. Knows no HTTP."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from gpu_agent.hardware.spdm import _HANDLERS, SpdmResponder, State
from shared.attestation.spdm_requester import SpdmRequester, SpdmSession
from shared.canonical import sha384
from shared.crypto import ecc, schedule
from shared.errors import BadRequest, GputError, ProtocolViolation, VerificationFailed
from shared.wire import spdm


def entropy(seed: int) -> Callable[[int], bytes]:
    source = random.Random(seed)
    return source.randbytes


class Hooks:
    def __init__(self) -> None:
        self.opened: list[tuple[spdm.VendorElement, int, bytes, bytes]] = []
        self.faults: list[BaseException] = []

    def check_resume(self, vendor: spdm.VendorElement, request_random: bytes, public_key: bytes) -> None:
        expected = schedule.resume_proof(b"r" * 32, vendor.life, 1, request_random, public_key)
        if vendor.resume and vendor.resume != expected:
            raise VerificationFailed("wrong resume proof")

    def session_opened(self, vendor: spdm.VendorElement, session_id: int, export: bytes, th2: bytes) -> None:
        self.opened.append((vendor, session_id, export, th2))


def device(seed: int = 1) -> tuple[SpdmResponder, Hooks]:
    """A responder over a one-certificate chain: the handshake does not judge the chain, `gpu_verifier` does."""
    import datetime

    key = ecc.private_key(entropy(seed))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "EMULATED test leaf")])
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 7, start, start + datetime.timedelta(days=9999))
    der = builder.sign(key, SHA384()).public_bytes(Encoding.DER)
    rot = SimpleNamespace(
        chain_spdm=spdm.chain_form(sha384(der), [der]),
        sign=lambda data: ecc.sign(key, data),
        measurements=lambda request: bytes((0x11, spdm.MEASUREMENTS, 0, 0)) + request[4:36],
    )
    hooks = Hooks()
    return SpdmResponder(rot, entropy=entropy(seed + 1), hooks=hooks, report=hooks.faults.append), hooks


def requester(**options: Any) -> SpdmRequester:
    return SpdmRequester(entropy=entropy(9), signing_key_digest=b"d" * 32, **options)


def shake(
    ours: SpdmRequester, theirs: SpdmResponder, change: Callable[[int, str, bytes], bytes] = lambda _n, _w, data: data
) -> SpdmSession:
    message: bytes | None = ours.start()
    number = 0
    while message is not None:
        answer = theirs.message(change(number, "request", message))
        message = ours.feed(change(number, "response", answer))
        number += 1
    return ours.session


def test_both_ends_share_everything() -> None:
    theirs, hooks = device()
    session = shake(requester(), theirs)
    (vendor, session_id, export, th2) = hooks.opened[0]
    assert (vendor.key, vendor.life, vendor.resume) == (b"d" * 32, 0, b"")
    assert (session.session_id, session.th2) == (session_id, th2)
    assert session.take_export_master_secret() == export
    with pytest.raises(ProtocolViolation):
        session.take_export_master_secret()
    report = session.parse_measurements(theirs.message(session.request_measurements(b"n" * 32)))
    assert report[4:36] == b"n" * 32 == report[-32:]
    assert "BEGIN CERTIFICATE" in session.chain_pem


@pytest.mark.parametrize("which", ["request", "response"])
@pytest.mark.parametrize("number", range(6))
def test_any_changed_byte_ends_the_handshake(which: str, number: int) -> None:
    source = random.Random(number)
    for _ in range(12):

        def change(n: int, w: str, data: bytes) -> bytes:
            if (n, w) != (number, which):
                return data
            at = source.randrange(len(data))
            return data[:at] + bytes((data[at] ^ (1 << source.randrange(8)),)) + data[at + 1 :]

        theirs, hooks = device()
        if (number, which) == (3, "request"):
            # GET_CERTIFICATE is not in the transcript: another portion size is harmless, the chain's hash decides.
            with contextlib.suppress(GputError):
                assert shake(requester(), theirs, change).th2 == hooks.opened[0][3]
            continue
        with pytest.raises(GputError):
            shake(requester(), theirs, change)
        # A changed FINISH_RSP is seen by us only; every earlier change keeps the device's session closed too.
        assert len(hooks.opened) == (1 if (number, which) == (5, "response") else 0)


def test_order_is_the_table() -> None:
    ours = requester()
    path = [ours.start()]
    theirs, _ = device()
    while (following := ours.feed(theirs.message(path[-1]))) is not None:
        path.append(following)
    states = [State.START, State.VERSIONED, State.CAPABLE, State.NEGOTIATED]
    for depth, state in enumerate(states):
        for message in path[:5]:
            fresh, _ = device()
            for earlier in path[:depth]:
                fresh.message(earlier)
            legal = (state, message[1]) in _HANDLERS or (None, message[1]) in _HANDLERS
            assert (fresh.message(message)[1] != spdm.ERROR) == legal, (state, hex(message[1]))


def test_a_pending_handshake_leaves_the_session_alone() -> None:
    theirs, hooks = device()
    session = shake(requester(), theirs)
    intruder = SpdmRequester(entropy=entropy(77), signing_key_digest=b"x" * 32)
    message: bytes | None = intruder.start()
    for _ in range(5):
        assert message is not None
        message = intruder.feed(theirs.message(message))
    assert len(hooks.opened) == 1
    assert session.parse_measurements(theirs.message(session.request_measurements(b"m" * 32)))[4:36] == b"m" * 32


def test_resume_proof_is_judged_before_anything_happens() -> None:
    def proof(secret: bytes) -> Callable[[bytes, bytes], bytes]:
        return lambda rnd, point: schedule.resume_proof(secret, 2, 1, rnd, point)

    theirs, hooks = device()
    shake(requester(life=2, resume=proof(b"r" * 32)), theirs)
    assert hooks.opened[0][0].life == 2
    with pytest.raises(BadRequest) as caught:
        shake(requester(life=2, resume=proof(b"q" * 32)), theirs)
    assert caught.value.code == "spdm-error"
    assert len(hooks.opened) == 1


def test_records_of_a_session_are_not_replayed() -> None:
    theirs, _ = device()
    session = shake(requester(), theirs)
    record = session.request_measurements(b"n" * 32)
    session.parse_measurements(theirs.message(record))
    assert theirs.message(record)[1] == spdm.ERROR
