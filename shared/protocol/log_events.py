"""Events in a session's log: the leaves that are no receipts, in their one form. Knows no signature, no proof and no storage."""

from __future__ import annotations

from typing import Any, Final

from shared.canonical import cbor_bytes, cbor_value
from shared.errors import VerificationFailed
from shared.protocol.session import SessionFact

LABEL: Final = "gput/log-event/1"
_COSE_SIGN1 = b"\xd2"


def is_receipt(leaf: bytes) -> bool:
    """Whether a leaf is a receipt (tagged COSE_Sign1, RFC 9052 section 2) and no event (an array): its bytes say so, not who shows it."""
    return leaf[:1] == _COSE_SIGN1


def event_bytes(session: str, kind: str, details: dict[str, Any]) -> bytes:
    """The leaf: deterministic CBOR [label, session, kind, details]."""
    return cbor_bytes([LABEL, session, kind, details])


def checked_event(leaf: bytes, session: str) -> list[Any]:
    """The four parts of an event of this session, whose details are there where others read them.

    Raises:
        VerificationFailed: `malformed`; `mismatch`: of another session. BadRequest: no deterministic CBOR.
    """
    event = cbor_value(leaf)
    match event:
        case [str(label), str(of), str(), dict()] if label == LABEL:
            if of != session:
                raise VerificationFailed("an event of another session", code="mismatch", expected=session, got=of)
            restored_to(event)
            chosen(event)
            return list(event)
    raise VerificationFailed("an event that has not the form of one", code="malformed")


def restored_to(event: list[Any]) -> int | None:
    """How many stops lie behind the model that a leaf says was restored; None: it tells of no restore.

    Raises:
        VerificationFailed: `malformed`: it does not say.
    """
    _, _, kind, details = event
    if kind != SessionFact.RESTORED:
        return None
    position = details.get("position")
    if not isinstance(position, int) or isinstance(position, bool) or not 0 <= position < 2**53:
        raise VerificationFailed("a restore that does not say how many stops lie behind it", code="malformed")
    return position


def chosen(event: list[Any]) -> str | None:
    """The model (digest, hex) that a leaf says was chosen as the best; None: it tells of no choice.

    Raises:
        VerificationFailed: `malformed`: it does not say.
    """
    _, _, kind, details = event
    if kind != SessionFact.BEST_CHOSEN:
        return None
    model = details.get("model")
    if not isinstance(model, str):
        raise VerificationFailed("the choice of a model that names none", code="malformed")
    return model
