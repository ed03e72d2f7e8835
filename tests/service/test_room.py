"""A volume that hangs costs one thread, however often it is asked after."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from shared.service import data_dir
from shared.service.data_dir import Room


async def test_a_volume_that_hangs_keeps_one_thread_however_many_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, over, looks = threading.Event(), threading.Event(), list[Path]()

    def hangs(folder: Path) -> None:
        looks.append(folder)
        begun.set()
        assert over.wait(60)

    monkeypatch.setattr(data_dir, "_probe", hangs)
    room = Room(tmp_path)
    try:
        for _ in range(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await room.check()
        assert begun.wait(60)
        waiting = [asyncio.ensure_future(room.check()) for _ in range(3)]
        await asyncio.sleep(0)
        assert looks == [tmp_path]
    finally:
        over.set()
    async with asyncio.timeout(60):
        await asyncio.gather(*waiting)
        await room.check()
    assert looks == [tmp_path] * 2, "once it answers it is asked anew"
