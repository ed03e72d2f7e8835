"""What an orchestrator says it relied on: taken from its signed results, and refused where it says something else beside them.

The API shows a result's claims to be read; nobody signed them there. Knows no service and no output; judges no key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from shared.attestation.appraisal import CHECKS, ROOT_SET, STATUS, VERDICT
from shared.attestation.ear import AttestationResult, read_result
from shared.errors import VerificationFailed

_TEXTS = ("name", "status", "code", "reason", "expected", "got", "remedy")


def borne_out(session: str, items: Sequence[Mapping[str, Any]], *, at: float) -> list[dict[str, Any]]:
    """The same results, every member as its token has it; what no token has is left out.

    Args:
        at: the reader's own time, seconds since 1970.

    Raises:
        BadRequest, VerificationFailed: as `read_result`; `result-contradicts`: it is about another session, or the item says something else
            than its token.
    """
    return [_borne_out(session, item, at) for item in items]


def _borne_out(session: str, item: Mapping[str, Any], at: float) -> dict[str, Any]:
    subject, token, key = (str(item.get(name)) for name in ("subject", "token", "signing_key"))
    try:
        public = bytes.fromhex(key)
    except ValueError:
        _contradicts(session, subject, "signing_key")
    result = read_result(token, public, at=at)
    if result.about.get("session") != session or subject not in result.submodules:
        _contradicts(session, subject, "result")
    found = _signed(result, subject, token, key)
    for name, value in found.items():
        if name not in item or item[name] != value:
            _contradicts(session, subject, name)
    return found


def _signed(result: AttestationResult, subject: str, token: str, key: str) -> dict[str, Any]:
    """Under the names, and in the order, of the API."""
    part, life = result.submodules[subject], result.about.get("life", "")
    checks = part[CHECKS]
    if not all(isinstance(check.get(name), str) for check in checks for name in _TEXTS) or not all(
        isinstance(check.get("indices"), list) for check in checks
    ):
        _contradicts(result.about["session"], subject, "checks")
    return {
        "subject": subject, "life": int(life) if life.isdecimal() and len(life) < 10 else None, "at": result.issued_at,
        "verdict": part[VERDICT], "status": part[STATUS], "root_set": part[ROOT_SET], "backend": part.get("gput.backend"),
        "kind": part.get("gput.kind"), "checks": checks, "signing_key": key, "token": token,
    }  # fmt: skip


def _contradicts(session: str, subject: str, what: str) -> NoReturn:
    raise VerificationFailed(
        f"{session}: the orchestrator shows a {what} of {subject} that its own signature does not bear out",
        code="result-contradicts",
    )
