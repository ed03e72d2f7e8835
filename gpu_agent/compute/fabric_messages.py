"""What the agent and the keeper of a device's memory say to one another: one JSON datagram each way per request, answered in order.

Bytes of memory never travel here; they lie in staging slots that both have mapped. Knows no process and no tensor.
"""

from __future__ import annotations

import json
from typing import Any, Final

from shared.errors import ConfigurationError, GputError, Unavailable, VerificationFailed
from shared.wire.gpu import MAX_BULK_RECORD

MAX_MESSAGE: Final = 64 * 1024
PARTS: Final = 32
"""Parts of a digest in a message: a name and a shape are some hundred bytes at most (`shared.claims.program`), in hex."""
CARD_BYTES: Final = 1 << 20
"""Up to here a digest is made of what is read back: a card has its own of so little no sooner than in 0.2 ms."""
MAX_FILES: Final = 253  # SCM_MAX_FD, Linux
SLOT_BYTES: Final = MAX_BULK_RECORD
SLOTS: Final = 4
STAGING_BYTES: Final = SLOTS * SLOT_BYTES
_KINDS: Final[dict[str, type[GputError]]] = {
    kind.__name__: kind for kind in (ConfigurationError, Unavailable, VerificationFailed)
}


def pack(message: dict[str, Any]) -> bytes:
    """One datagram."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode()


def unpack(data: bytes) -> dict[str, Any]:
    """Inverse of `pack`; both ends are ours."""
    message: dict[str, Any] = json.loads(data)
    return message


def fault(error: Exception) -> dict[str, Any]:
    """A failure as an answer. Foreign texts may quote memory, so of them only the type is named."""
    if isinstance(error, GputError):
        return {"fault": type(error).__name__, "code": error.code, "detail": error.detail, "remedy": error.remedy}
    detail = f"the device's memory failed ({type(error).__name__})"
    return {"fault": "Unavailable", "code": "gpu-memory-failed", "detail": detail, "remedy": None}


def require_done(answer: dict[str, Any]) -> dict[str, Any]:
    """Raises: what the keeper said went wrong."""
    if "fault" in answer:
        kind = _KINDS.get(answer["fault"], Unavailable)
        raise kind(answer["detail"], code=answer["code"], remedy=answer["remedy"])
    return answer
