"""A visit through a bounce buffer is the same visit; and where there is no buffer, or the agent forgets it, the records come over HTTP."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np

from gpu_agent.bounce import BounceBuffers
from tests.data_holder.conftest import Running, Start
from tests.data_holder.test_holder_visits import visit


def records(running: Running) -> bytes:
    return bytes(np.load(running.holder.foundation.settings.datasets["ehr"])["x"][:20].tobytes())


@asynccontextmanager
async def beside_an_agent(
    start: Start, folder: Path, prepare_bytes: int
) -> AsyncIterator[tuple[Running, BounceBuffers]]:
    """A holder on the machine of an agent that gives bounce buffers."""
    buffers, path = BounceBuffers(1 << 20, os.urandom), folder / "agent.sock"
    async with buffers.served(path), start(bounce_socket=path, prepare_bytes=prepare_bytes) as running:
        yield running, buffers


async def test_records_lie_in_the_buffer_and_no_socket_carries_them(start: Start, tmp_path: Path) -> None:
    async with beside_an_agent(start, tmp_path, 65536) as (running, buffers):
        running.gpu.buffers = buffers
        await running.approved_with_channel()
        await visit(running, chunk_bytes=96)
        await running.until(lambda: running.orchestrator.reports)
        report = running.orchestrator.reports[0]
        assert bytes(running.gpu.plain) == records(running)
        assert (report.link, report.length) == ("bounce", len(records(running)))
        assert sum(running.gpu.batches) == len(running.gpu.transcript) == 15
        assert len(running.gpu.batches) == running.gpu.calls < 15  # several records a request
        running.gpu.one_ciphertext_per_counter()
        assert (await running.get("/v1/links"))["dataset_bytes_to_gpu"] == len(records(running))


async def test_what_the_agent_forgot_comes_over_http(start: Start, tmp_path: Path) -> None:
    async with beside_an_agent(start, tmp_path, 65536) as (running, _):
        running.gpu.buffers = BounceBuffers(0, os.urandom)  # as if it had begun anew meanwhile
        await running.approved_with_channel()
        await visit(running, chunk_bytes=96)
        await running.until(lambda: running.orchestrator.reports)
        assert running.orchestrator.reports[0].link == "http"
        assert bytes(running.gpu.plain) == records(running)
        assert len(running.gpu.batches) == 1
        running.gpu.one_ciphertext_per_counter()


async def test_without_an_agent_at_the_socket_records_come_over_http(start: Start, tmp_path: Path) -> None:
    async with start(bounce_socket=tmp_path / "nobody.sock") as running:
        await running.approved_with_channel()
        await visit(running)
        await running.until(lambda: running.orchestrator.reports)
        assert running.orchestrator.reports[0].link == "http"


async def test_a_buffer_too_small_for_two_records_is_not_used(start: Start, tmp_path: Path) -> None:
    async with beside_an_agent(start, tmp_path, 4096) as (running, buffers):
        running.gpu.buffers = buffers
        await running.approved_with_channel()
        await visit(running)
        await running.until(lambda: running.orchestrator.reports)
        assert (running.orchestrator.reports[0].link, running.gpu.batches) == ("http", [])
