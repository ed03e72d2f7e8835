"""What a mutant is: a defence that is taken away, and the test that must then fail. Knows no defence and no test by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from shared.names import TravelMode

Remove = Callable[[pytest.MonkeyPatch], None]
AT, GPU = "tests/adversary/test_", "tests/gpu/test_gpu_"
SCOPED, DIRECT, PAPER = ({"mode": mode} for mode in (TravelMode.SCOPED, TravelMode.DIRECT, TravelMode.PAPER))


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
    """A row of a table: named as what takes the defence away."""
    return remove.__name__, Mutant(tuple(rows.split()), what, test, remove, params)
