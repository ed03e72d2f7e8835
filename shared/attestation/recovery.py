"""Giving a share of a session's key to an orchestrator that was attested for exactly that. Knows no store, no clock and no HTTP.

    report_data = SHA-512("gput/recovery/1 orchestrator" 00 ‖ runtime_data)
    sealed      = HPKE(the runtime data's key, share of 33 bytes, info = SHA-512("gput/recovery/1 seal" 00 ‖ runtime_data))

The runtime data names purpose, session, holder, manifest, the holder's nonce, the orchestrator's identity and its one-time key, so an
offer for anything else, or an older one, opens nothing.
"""

from __future__ import annotations

import base64
from dataclasses import InitVar, dataclass

from pydantic import ValidationError

from shared.attestation.cpu_trust import CpuTrust
from shared.attestation.cpu_verifier import VerifiedCvm
from shared.attestation.cvm_verifier import Cvm, verify_cvm_evidence
from shared.attestation.one_time_keys import decoded
from shared.attestation.session_events import RECOVERY_EVENT, check_event
from shared.canonical import json_bytes, json_value, sha512
from shared.claims.event_log import Content
from shared.claims.shape import first_fault
from shared.crypto.hpke import PUBLIC_BYTES, OneTimeKey, seal
from shared.crypto.secret import Secret
from shared.crypto.sharing import SHARE_BYTES
from shared.errors import BadRequest, VerificationFailed
from shared.wire.recovery import RecoveryRuntime, ShareOffer

LABEL = b"gput/recovery/1 orchestrator\x00"
SEAL_CONTEXT = b"gput/recovery/1 seal\x00"
_MINT = object()


@dataclass(frozen=True)
class RecoveryExpectation:
    """What a holder insists on: its own nonce (hex), and the identity (raw key) that the session's orchestrator has had so far."""

    session: str
    holder: str
    manifest: str
    nonce: str
    enrolled_key: bytes


@dataclass(frozen=True)
class VerifiedRecovery:
    """An orchestrator whose measured code may have this holder's share. `measurement` in hex. Only `verify_recovery` makes it."""

    runtime: RecoveryRuntime
    runtime_data: bytes
    measurement: str
    cvm: Cvm
    _mint: InitVar[object] = None  # kept nowhere, so that `replace` cannot carry it into a changed copy

    def __post_init__(self, _mint: object) -> None:
        if _mint is not _MINT:
            raise TypeError("VerifiedRecovery is made by verify_recovery only")


def recovery_runtime(
    *, session: str, holder: str, manifest: str, peer_nonce: str, enrolled_key: bytes, key: bytes
) -> bytes:
    """The orchestrator's runtime data, canonical JSON; keys are raw."""
    runtime = RecoveryRuntime(
        session=session, holder=holder, manifest=manifest, peer_nonce=peer_nonce, enrolled_key=enrolled_key.hex(),
        key=base64.b64encode(key).decode(),
    )  # fmt: skip
    return json_bytes(runtime.model_dump(mode="json"))


def recovery_event(session: str, manifest: str) -> Content:
    """What the CVM measures before it asks for shares."""
    return {"session": session, "manifest": manifest, "role": "orchestrator"}


def recovery_report_data(runtime_data: bytes) -> bytes:
    """The 64 bytes that the quote covers."""
    return sha512(LABEL + runtime_data)


def verify_recovery(offer: ShareOffer, *, expected: RecoveryExpectation, cpu: CpuTrust, at: float) -> VerifiedRecovery:
    """The holder's check, in this order: structure, session, holder, manifest, nonce, identity, quote, event.

    Raises:
        BadRequest: `malformed-runtime-data`, `malformed-base64`.
        VerificationFailed: `recovery-…` for the runtime data, the CPU verifier's codes, `channel-event`.
    """
    raw = decoded(offer.runtime_data)
    try:
        runtime = RecoveryRuntime.model_validate(json_value(raw))
    except ValidationError as error:
        raise BadRequest(f"runtime data: {first_fault(error)}", code="malformed-runtime-data") from None
    _require("session", expected.session, runtime.session)
    _require("holder", expected.holder, runtime.holder)
    _require("manifest", expected.manifest, runtime.manifest)
    _require("nonce", expected.nonce, runtime.peer_nonce)
    _require("identity", expected.enrolled_key.hex(), runtime.enrolled_key)
    if len(decoded(runtime.key)) != PUBLIC_BYTES:
        raise BadRequest(f"a one-time key has {PUBLIC_BYTES} bytes", code="malformed-one-time-key")
    report_data = recovery_report_data(raw)
    cvm = verify_cvm_evidence(offer.evidence, report_data=report_data, role="orchestrator", trust=cpu, at=at)
    if isinstance(cvm, VerifiedCvm):  # SEV-SNP has no register that a guest could measure an event into
        check_event(cvm, RECOVERY_EVENT, recovery_event(runtime.session, runtime.manifest))
    measurement = cvm.mr_td if isinstance(cvm, VerifiedCvm) else cvm.measurement
    return VerifiedRecovery(runtime, raw, measurement, cvm, _MINT)


def give_share(share: Secret, to: VerifiedRecovery) -> bytes:
    """The share, sealed to the verified orchestrator."""
    return seal(decoded(to.runtime.key), share.reveal(), _info(to.runtime_data))


def take_share(sealed: bytes, *, key: OneTimeKey, runtime_data: bytes) -> Secret:
    """The share that answers our own runtime data; spends the key.

    Raises:
        ProtocolViolation: `one-time-key-used`. VerificationFailed: `hpke-open`, `share-malformed`.
    """
    share = Secret(key.open(sealed, _info(runtime_data)))
    if len(share) != SHARE_BYTES:
        raise VerificationFailed(f"a share has {SHARE_BYTES} bytes", code="share-malformed", got=str(len(share)))
    return share


def _info(runtime_data: bytes) -> bytes:
    return sha512(SEAL_CONTEXT + runtime_data)


def _require(what: str, expected: str, got: str) -> None:
    if expected != got:
        raise VerificationFailed(
            f"the request for a share is for another {what}", code=f"recovery-{what}", expected=expected, got=got
        )
