"""The synchronous client's thread: what nobody waits for any more ends there, too."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from gput.loop import Work

PATIENCE_S = 10


@pytest.fixture
def work() -> Iterator[Work]:
    work = Work()
    yield work
    work.end()


class Call:
    """A call that goes on until it is ended."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()

    async def download(self) -> None:
        self.begun.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            self.ended.set()
            raise


def test_an_interrupted_call_does_not_go_on_behind_ones_back(work: Work) -> None:
    call = Call()

    def interrupt() -> None:
        call.begun.wait(PATIENCE_S)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        work.done(call.download())
    assert call.ended.wait(PATIENCE_S)


def test_who_is_interrupted_before_the_call_is_under_way_ends_it_too(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between handing it over and waiting for it, where a signal may come as well."""
    call, submit = Call(), asyncio.run_coroutine_threadsafe

    def interrupted(coroutine: Any, loop: asyncio.AbstractEventLoop) -> Any:
        submit(coroutine, loop)
        assert call.begun.wait(PATIENCE_S)
        raise KeyboardInterrupt

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        work.done(call.download())
    monkeypatch.undo()
    assert call.ended.wait(PATIENCE_S)


def test_a_stream_that_is_read_no_further_is_let_go(work: Work) -> None:
    ended = threading.Event()

    async def events() -> AsyncIterator[int]:
        try:
            for number in range(10):
                yield number
        finally:
            ended.set()

    source = events()  # held: nothing of it goes by itself
    for number in work.each(source):
        assert number == 0
        break
    assert ended.wait(PATIENCE_S)
