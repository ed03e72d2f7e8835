"""A byte string that must not be seen: no repr, no log, no pickle. Knows nothing of what it opens."""

from __future__ import annotations

import hmac
from typing import NoReturn


class Secret:
    """Secret bytes. Only `reveal()` gives them out, so that every use is a word one can search for.

    Memory is not locked or wiped: CPython gives no such promise, so lifetimes are kept short instead.
    """

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = bytes(value)

    def reveal(self) -> bytes:
        """The bytes themselves."""
        return self._value

    def __len__(self) -> int:
        return len(self._value)

    def __eq__(self, other: object) -> bool:
        """Constant-time in the content."""
        return isinstance(other, Secret) and hmac.compare_digest(self._value, other._value)

    __hash__ = None  # type: ignore[assignment]  # a hash of a secret would leak it into tables

    def __repr__(self) -> str:
        return f"Secret({len(self._value)} bytes)"

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")
