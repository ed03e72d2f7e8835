"""The system with one defence taken away, by name: what is missing, the rows it defends, the test that must then fail. Runs nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest


@dataclass(frozen=True)
class Mutant:
    """`test`: path::name from the root, of a test that carries the rows' mark; `remove` patches the product in this process."""

    rows: tuple[str, ...]
    what: str
    test: str
    remove: Callable[[pytest.MonkeyPatch], None] = field(repr=False)


MUTANTS: dict[str, Mutant] = {}
