"""Leaves hashed on several threads are those that one thread finds, in the same order, whatever does not divide."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gpu_agent import leaf_crew
from gpu_agent.crew import Crew
from gpu_agent.leaf_crew import LEAST_BYTES, SHORT_RECORD, LeafCrew
from shared.protocol.membership import leaf_hashes

SALT = bytes(range(32))


@pytest.fixture
def crew() -> Iterator[LeafCrew]:
    made = Crew(threads=3)
    yield LeafCrew(made)
    made.close()


def _threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The name of the thread of each call."""
    names: list[str] = []

    def hashed(*arguments: Any) -> list[bytes]:
        names.append(threading.current_thread().name)
        time.sleep(0.001)  # as long as others need to come
        return leaf_hashes(*arguments)

    monkeypatch.setattr(leaf_crew, "leaf_hashes", hashed)
    return names


@pytest.mark.parametrize("count", [1, 127, 128, 257, 500, 1001])
@pytest.mark.parametrize("size", [SHORT_RECORD - 1, SHORT_RECORD, SHORT_RECORD + 7])
def test_the_same_leaves_in_the_same_order(crew: LeafCrew, count: int, size: int) -> None:
    indexes = [(7 * number) % count for number in range(count)]
    records = memoryview(os.urandom(count * size))
    assert crew(SALT, indexes, records) == leaf_hashes(SALT, indexes, records)


def test_much_is_hashed_by_several_calls_and_little_by_one(crew: LeafCrew, monkeypatch: pytest.MonkeyPatch) -> None:
    names, size = _threads(monkeypatch), SHORT_RECORD
    crew(SALT, range(64), memoryview(bytes(64 * size)))
    assert names == [threading.current_thread().name]  # as much as one thread is worth
    names.clear()
    crew(SALT, range(30 * LEAST_BYTES // size), memoryview(bytes(30 * LEAST_BYTES)))
    assert len(names) == 30
    assert len(set(names)) > 1


def test_short_records_stay_on_one_thread(crew: LeafCrew, monkeypatch: pytest.MonkeyPatch) -> None:
    names = _threads(monkeypatch)
    crew(SALT, range(8 * LEAST_BYTES // 1024), memoryview(bytes(8 * LEAST_BYTES)))
    assert names == [threading.current_thread().name]


def test_a_fault_in_a_thread_is_the_callers(crew: LeafCrew) -> None:
    with pytest.raises(ValueError, match="salt"):
        crew(bytes(31), range(1024), memoryview(bytes(8 << 20)))
