"""The holder's way to a bounce buffer: an agent that does not answer costs one visit its patience, and not each one."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from data_holder import bounce
from data_holder.bounce import ASK_AGAIN_S, BounceLink
from gpu_agent.bounce import BounceBuffers
from shared.service.unix_socket import bound
from tests.gpu.bell_world import Gpu


def connections(listener: socket.socket) -> int:
    """How many wait to be accepted; they are."""
    count = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


async def test_an_agent_that_did_not_answer_is_asked_again_after_some_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounce, "PATIENCE_S", 0.01)
    path, now = tmp_path / "agent.sock", [100.0]
    link = BounceLink(path, 4096, timer=lambda: now[0])
    with bound(path) as listener:  # and nobody accepts
        await link.ready()
        assert connections(listener) == 1
        now[0] += ASK_AGAIN_S - 1
        await link.ready()
        assert connections(listener) == 0
        now[0] += 1
        await link.ready()
        assert connections(listener) == 1
    now[0] += ASK_AGAIN_S
    await link.ready()  # refused, which takes no time
    monkeypatch.undo()
    async with BounceBuffers(1 << 20, os.urandom).served(path, Gpu()):
        await link.ready()
        with link.lend() as buffer:
            assert buffer is not None
        link.close()
