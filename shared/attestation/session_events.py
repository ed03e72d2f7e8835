"""The fact that a CVM measures before it opens a channel: for which session, manifest and role it acts. Knows no quote and no store.

The runtime register keeps it until the next launch, so that evidence says what else this very VM does, not only what this channel says.
"""

from __future__ import annotations

from collections.abc import Sequence

from shared.attestation.cpu_verifier import VerifiedCvm
from shared.canonical import json_bytes, sha256
from shared.claims.event_log import RUNTIME, ZERO, Content, Event
from shared.errors import VerificationFailed
from shared.wire.visit import RuntimeData

SESSION_EVENT = "session"
RECOVERY_EVENT = "recovery"
"""Measured before the holders of a session are asked for their shares of its key."""


def session_event(runtime: RuntimeData) -> Content:
    """What is measured for this runtime data: the orchestrator's names the session signing key, which lives as long as its session's
    life; a holder's key is new in every channel and is vouched for by the quote itself."""
    content: Content = {"session": runtime.session, "manifest": runtime.manifest, "role": runtime.role}
    if runtime.role == "holder":
        return content | {"holder": runtime.holder}
    return content | {"signing_key": sha256(bytes.fromhex(runtime.signing_key)).hex()}


def check_session_event(cvm: VerifiedCvm, runtime: RuntimeData) -> None:
    """The VM measured that it acts for this session. Raises: VerificationFailed: `channel-event`."""
    check_event(cvm, SESSION_EVENT, session_event(runtime))


def check_measured_session(register: bytes, events: Sequence[Event], runtime: RuntimeData) -> None:
    """The same of what was read and is not believed yet.

    Args:
        register: the runtime register (48 bytes). events: of a log that gives it.

    Raises:
        VerificationFailed: `channel-event`.
    """
    _check(register, events, SESSION_EVENT, session_event(runtime))


def check_event(cvm: VerifiedCvm, kind: str, expected: Content) -> None:
    """The VM measured exactly this. A machine whose runtime register nothing was measured into has none; there is nothing to ask then.

    Raises:
        VerificationFailed: `channel-event`.
    """
    _check(bytes.fromhex(cvm.rtmrs[RUNTIME]), cvm.events, kind, expected)


def _check(register: bytes, events: Sequence[Event], kind: str, expected: Content) -> None:
    if register == ZERO:
        return
    found = [event.content for event in events if event.type == kind]
    if expected not in found:
        raise VerificationFailed(
            "the VM's event log does not name this session",
            code="channel-event",
            expected=json_bytes(expected).decode(),
            got=json_bytes(found).decode()[:400],
            remedy="the peer must measure the session before it opens a channel; let both sides run the same release",
        )
