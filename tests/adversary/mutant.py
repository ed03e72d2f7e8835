"""What a mutant is: a defence taken away, the rows that it defends, and the test that must fail without it. Knows no mutant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

Remove = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    """`test`: path::name of a test that carries the rows' mark; `params`: its parameters, or the id of them for a service's test."""

    rows: tuple[str, ...]
    what: str
    test: str
    remove: Remove = field(repr=False)
    params: dict[str, Any] | str = field(default_factory=dict)

    @property
    def inside(self) -> bool:
        """Whether the test is called inside this process."""
        return not isinstance(self.params, str)


def named(rows: str, what: str, test: str, remove: Remove, params: dict[str, Any] | str) -> tuple[str, Mutant]:
    """A mutant under its patch's name."""
    return remove.__name__, Mutant(tuple(rows.split()), what, test, remove, params)
