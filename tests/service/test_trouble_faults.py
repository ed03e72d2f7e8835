"""What is done again and again goes on whatever one turn met, and a fault of the program is told once with its frames."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import pytest

from shared.errors import Unavailable
from shared.service import retention
from shared.service.trouble import Trouble


def test_a_fault_is_told_once_with_its_frames_and_then_it_is_an_outage() -> None:
    log = Mock()
    trouble = Trouble(log, "not done yet", session="s")
    for _ in range(2):
        try:
            raise RuntimeError("as a bug would")
        except RuntimeError as error:
            trouble.fault(error)
    log.exception.assert_called_once_with("a fault in this program", session="s")
    assert isinstance(trouble.error, Unavailable)
    assert "as a bug would" not in str(log.warning.call_args_list), "what a bug says is nobody's to repeat"
    trouble.over()
    log.info.assert_called_once()


async def test_what_was_kept_long_enough_is_removed_after_a_fault_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    log, sweeps, done = Mock(), list[int](), asyncio.Event()
    monkeypatch.setattr(retention, "_log", log)

    async def sweep() -> None:
        sweeps.append(1)
        if len(sweeps) < 3:
            raise RuntimeError("as a bug would")
        done.set()

    sweeping = asyncio.create_task(retention.again_and_again(sweep, every_s=0))
    async with asyncio.timeout(60):
        await asyncio.wait([sweeping, asyncio.create_task(done.wait())], return_when=asyncio.FIRST_COMPLETED)
    assert done.is_set()
    sweeping.cancel()
    log.exception.assert_called_once()
