"""One rule's verdict on a request. Knows no rule."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class RuleFinding:
    """One rule's verdict; `expected` and `got` are public text."""

    rule: str
    ok: bool
    expected: str
    got: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
