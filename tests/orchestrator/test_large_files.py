"""What takes disk or processor long is a thread's: on the event loop it would cost an orchestrator its lease, and the next one its."""

from __future__ import annotations

import asyncio
import os
import threading
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator import files
from orchestrator.files import atomic_file, large_file
from orchestrator.gpu_session import export
from orchestrator.gpu_session.export import export_model
from orchestrator.model_file import ModelFile
from shared.claims.layout import Placed, RegionPlan, region_digest
from shared.claims.program import TensorSpec
from shared.crypto.secret import Secret
from shared.errors import Unavailable, VerificationFailed
from shared.service.threads import aside

LONG_S = 20.0
WEIGHTS = bytes(range(16))


def plan() -> RegionPlan:
    return RegionPlan((Placed(TensorSpec(name="w", dtype="float32", shape=(4,)), 0, len(WEIGHTS)),), len(WEIGHTS))


class Life:
    """A GPU that exports these weights."""

    async def batch(self, commands: list[Any]) -> Any:
        return SimpleNamespace(bulk=[WEIGHTS])


class LoopGoesOn:
    """In place of a function: waits until the event loop has had a turn, which on its own thread it never has."""

    def __init__(self, act: Any) -> None:
        self._act, self._loop, self.waited = act, asyncio.get_running_loop(), list[bool]()

    def __call__(self, *arguments: Any) -> Any:
        turn = threading.Event()
        self._loop.call_soon_threadsafe(turn.set)
        self.waited.append(threading.current_thread() is not threading.main_thread() and turn.wait(LONG_S))
        return self._act(*arguments)


def model(folder: Path) -> ModelFile:
    return ModelFile(folder, Secret(bytes(32)), "s_a", os.urandom)


async def test_the_loop_goes_on_while_an_export_is_read_back_and_reaches_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, sync = LoopGoesOn(export._digest), LoopGoesOn(os.fsync)
    monkeypatch.setattr(export, "_digest", digest)
    monkeypatch.setattr(files.os, "fsync", sync)
    expected = region_digest(plan(), lambda offset, length: WEIGHTS[offset : offset + length]).hex()
    exported = await export_model(Life(), plan(), model(tmp_path), expected)  # type: ignore[arg-type]
    assert exported.digest == expected
    assert (digest.waited, sync.waited) == ([True], [True, True])
    assert model(tmp_path).open().file.read().endswith(WEIGHTS)


async def test_an_export_of_another_model_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(VerificationFailed):
        await export_model(Life(), plan(), model(tmp_path), "00" * 32)  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []


async def test_a_large_file_that_was_given_up_does_not_appear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    with pytest.raises(asyncio.CancelledError):
        async with large_file(path):
            raise asyncio.CancelledError
    assert os.listdir(tmp_path) == []

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(Unavailable) as refusal:
        async with large_file(path) as file:
            file.write(b"x")
    assert refusal.value.code == "disk-full"
    assert os.listdir(tmp_path) == []


def test_who_gives_up_takes_nobody_elses_draft_away(tmp_path: Path) -> None:
    """Two containers that share a folder have the same process id."""
    path = tmp_path / "file"
    with atomic_file(path) as newer:
        with pytest.raises(ZeroDivisionError), atomic_file(path):
            raise ZeroDivisionError
        newer.write(b"newer")
    assert path.read_bytes() == b"newer"


async def test_what_runs_aside_knows_for_whom() -> None:
    """Logs say it, and so do the tests' witnesses of who uses which key."""
    whom: ContextVar[str] = ContextVar("whom", default="nobody")
    whom.set("a session")
    assert await aside(whom.get) == "a session"


async def test_what_runs_aside_has_ended_before_whoever_was_cancelled_goes_on() -> None:
    begun, may_end, ends = threading.Event(), threading.Event(), list[str]()

    def act() -> None:
        begun.set()
        may_end.wait(LONG_S)
        ends.append("act")
        raise ValueError("nobody asks for this")

    async def caller() -> None:
        try:
            await aside(act)
        finally:
            ends.append("caller")

    task = asyncio.create_task(caller())
    await asyncio.to_thread(begun.wait, LONG_S)
    task.cancel()
    await asyncio.sleep(0)
    assert ends == []
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ends == ["act", "caller"]
