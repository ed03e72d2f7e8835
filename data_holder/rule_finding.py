"""One rule's verdict on a request, and what a row keeps of all. Knows no rule."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from pydantic import TypeAdapter

from data_holder.tables.legible import legible


@dataclass(frozen=True)
class RuleFinding:
    """One rule's verdict; `expected` and `got` are public text."""

    rule: str
    ok: bool
    expected: str
    got: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


DAMAGED: Final = RuleFinding(
    "what is kept of the findings", ok=False, expected="as this holder wrote it", got="damaged"
)
_KEPT: TypeAdapter[list[RuleFinding]] = TypeAdapter(list[RuleFinding])


def kept_findings(text: str) -> list[RuleFinding]:
    """What a row keeps of them, for the operator to see; nothing is decided by it."""
    found = legible(_KEPT, text)
    return [DAMAGED] if found is None else found
