"""What tests leave behind in a worker's memory. Knows no test.

Python's collector goes over all that lives, again and again: with what 6,500 tests had left, 2.8 million objects, that took each worker
0.8 s a time and 36 s of a run, and once 3 s in the middle of what a test measured. So: it rests while tests are collected and leaves out
what that made, it comes less often, and what holds on to services that have ended lets go of them.
"""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest
from fastapi.dependencies import models

THRESHOLDS = (5000, 20, 20)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All modules of tests and what they import stay as long as the run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)
        gc.enable()


def pytest_runtest_teardown() -> None:
    """FastAPI remembers the functions of the last 30 services, and with each the whole service: tables, logs, models."""
    for kept in vars(models).values():
        if hasattr(kept, "cache_clear"):
            kept.cache_clear()
