"""Canonical JSON (RFC 8785) of the values that documents consist of, sooner; all else as `rfc8785` has it. Knows no meaning.

Every signed body, every fact and every claim is written this way, most of them on a visit's critical path. What `rfc8785` takes apart
piece by piece is what Python's own JSON writes for strings, for whole numbers and for the floats that need no exponent.
"""

from __future__ import annotations

from json.encoder import encode_basestring
from typing import Any, Final

import rfc8785

_LARGEST: Final = (1 << 53) - 1
_NAMED: Final = {None: "null", True: "true", False: "false"}


def plain_json(value: Any) -> str:
    """The canonical text of `value`. A lone surrogate stays in it, and is found when the text is encoded.

    Raises:
        rfc8785.CanonicalizationError, ValueError: the value has no canonical form.
    """
    kind = type(value)
    if kind is str:
        return encode_basestring(value)
    if kind is dict:
        return "{" + ",".join([f"{encode_basestring(key)}:{plain_json(value[key])}" for key in _ordered(value)]) + "}"
    if kind is float:
        return _number(value)
    if kind is int and -_LARGEST <= value <= _LARGEST:
        return str(value)
    if value is None or kind is bool:
        return _NAMED[value]
    if kind is list or kind is tuple:
        return "[" + ",".join([plain_json(item) for item in value]) + "]"
    return rfc8785.dumps(value).decode()  # it decides on subclasses, and says what is wrong with the rest


def _ordered(value: dict[Any, Any]) -> list[str]:
    """The keys in the order of their UTF-16 code units (RFC 8785 section 3.2.3), which for ASCII is Python's own."""
    for key in value:
        if type(key) is not str or not key.isascii():
            return sorted(value, key=_units)
    return sorted(value)


def _units(key: Any) -> bytes:
    if not isinstance(key, str):
        raise rfc8785.CanonicalizationError("object keys must be strings")
    return key.encode("utf-16be")


def _number(value: float) -> str:
    """Python and ECMAScript choose the same shortest digits, and write them alike between 1e-4 and 1e16."""
    shown = repr(value)
    if "e" in shown or "n" in shown or value == 0:  # n: nan, inf
        return rfc8785.dumps(value).decode()
    return shown.removesuffix(".0")
