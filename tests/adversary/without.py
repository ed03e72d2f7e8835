"""A pytest plugin that takes a defence away for a whole run: `-p tests.adversary.without --without NAME`. Knows mutants, no test."""

from __future__ import annotations

import pytest

from tests.adversary.mutants import MUTANTS


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option."""
    parser.addoption("--without", choices=sorted(MUTANTS), help="the mutant to run as")


def pytest_configure(config: pytest.Config) -> None:
    """Remove it, for this process."""
    MUTANTS[config.getoption("--without")].remove(pytest.MonkeyPatch())
