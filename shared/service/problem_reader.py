"""A peer's problem document (RFC 9457) as the error of the family that it stands for. Knows no web framework and no service."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from shared.claims.shape import MAX_FIELDS
from shared.errors import BadRequest, GputError, LimitExceeded, NotFound, Unavailable
from shared.service.printable import printable

MAX_PROBLEM_BYTES = 64 * 1024
MAX_TEXT = 4000
MAX_RETRY_AFTER_S = 7 * 24 * 3600.0
_MOST_DIGITS = 9
PASSING = frozenset({408, 429, 502, 503, 504})
"""Statuses about now and not about the request, of a proxy, too."""
_CODE = re.compile(r"[a-z0-9-]{1,64}")


def error_of(status: int, body: bytes, peer: str) -> GputError:
    """The error of the family that a peer's answer stands for: same class where known, same code, detail and remedy.

    Whoever answers in the peer's place may say anything. A code that is none is left out, and texts are printable and bounded, so that
    the error can be stored, logged and told to others.
    """
    document = _document(body)
    title, said = document.get("title"), document.get("code")
    code = said if isinstance(said, str) and _CODE.fullmatch(said) else None
    detail = _text(document.get("detail") or f"answered {status} without a problem document")
    candidates = [kind for kind in _family(GputError) if kind.status == status and kind.title == title]
    kind = candidates[0] if candidates else _by_status(status)
    texts = {name: _text(document[name]) for name in ("remedy", "expected", "got") if name in document}
    if status >= 500 and "detail" not in document:
        texts.setdefault("remedy", f"Look into the log of {peer}, and of whatever stands before it.")
    error = kind(f"{peer}: {detail}", code=code, **texts)  # type: ignore[arg-type]  # str values only
    error.errors = _entries(document.get("errors"))
    return error


def retry_after_s(said: str) -> float | None:
    """Seconds of a Retry-After header, as far as it states some (RFC 9110, 10.2.3): at most a week, in digits as HTTP has them."""
    known = said.isascii() and said.isdigit() and len(said) <= _MOST_DIGITS
    return min(float(said), MAX_RETRY_AFTER_S) if known else None


def _entries(errors: Any) -> list[dict[str, str]] | None:
    """A peer's list of wrong fields, as far as it is one."""
    entries = [entry for entry in errors if isinstance(entry, dict)] if isinstance(errors, list) else []
    return [{_text(name): _text(value) for name, value in entry.items()} for entry in entries[:MAX_FIELDS]] or None


def _text(value: Any) -> str:
    return printable(str(value)[:MAX_TEXT], but="\n\t")


def _document(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body[:MAX_PROBLEM_BYTES])
    except (ValueError, RecursionError):  # also of whoever answers in the peer's place
        return {}
    return value if isinstance(value, dict) else {}


def _family(kind: type[GputError]) -> Iterator[type[GputError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _family(child)


def _by_status(status: int) -> type[GputError]:
    if status in PASSING:
        return Unavailable
    if status in (404, 410):
        return NotFound
    if status == 413:
        return LimitExceeded
    if not 400 <= status < 500:
        return GputError
    exact = [kind for kind in _family(GputError) if kind.status == status and kind.__base__ is GputError]
    return exact[0] if exact else BadRequest
