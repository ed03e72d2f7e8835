"""Who follows goes on following whatever goes wrong meanwhile, and says what; a process in which nobody follows any more says that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import Mock

import pytest
import sqlalchemy as sa

from orchestrator.lease import office
from orchestrator.lease.office import Office
from shared.errors import BadRequest, Unavailable
from shared.service.changes import Stopping

ANOTHER_LEADS = 0.0
GONE = sa.exc.ProgrammingError("SELECT", {}, Exception('relation "leases" does not exist'))


class Lease:
    """`answers`: what each look at the lease finds, the last one again and again."""

    def __init__(self, *answers: float | Exception | None) -> None:
        self.answers, self.gone, self.ends = [*answers], asyncio.Event(), 0

    async def take(self, *, reclaim: bool = False) -> float | None:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def sealed(self, seal: bytes) -> None:
        """Nobody reads it."""

    async def lost(self) -> str:
        await self.gone.wait()
        self.gone.clear()
        return "it has expired"

    async def end(self, *, released: bool) -> None:
        self.ends += 1


class Term:
    """A leader of which `failures` are met, one each time that it begins or is abandoned; None: it works."""

    def __init__(self, *failures: Exception | None) -> None:
        self._failures, self.begun, self.leads = [*failures], 0, asyncio.Event()

    def _meet(self) -> None:
        if self._failures and (failure := self._failures.pop(0)) is not None:
            raise failure

    async def begin(self, _ended: Stopping) -> Term:
        self.begun += 1
        self._meet()
        self.leads.set()
        return self

    async def stop(self) -> None:
        """Nothing of it is durable."""

    async def abandon(self) -> None:
        self.leads.clear()
        self._meet()


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> Mock:
    log = Mock()
    monkeypatch.setattr(office, "AGAIN_S", 0.0)
    monkeypatch.setattr(office, "_log", log)
    return log


@asynccontextmanager
async def working(lease: Lease, term: Term) -> AsyncIterator[Office[Term]]:
    found = Office(lease, term.begin, Stopping())
    await found.start()
    yield found
    await found.stop()


async def leading(found: Office[Term], term: Term) -> None:
    """Until it leads, or nobody is there any more who could."""
    assert found._task is not None
    waiting = asyncio.create_task(term.leads.wait())
    await asyncio.wait([waiting, found._task], return_when=asyncio.FIRST_COMPLETED)
    assert not found._task.done(), "nobody waits to lead any more"
    await asyncio.sleep(0)  # it leads once it knows of its term
    await found.check()


def shown(log: Mock) -> list[Any]:
    """Errors whose frames were shown."""
    return [call.kwargs["exc_info"] for call in log.error.call_args_list if "exc_info" in call.kwargs]


LOOKS: dict[str, Callable[[Exception], tuple[Lease, Term]]] = {
    "a look at the lease": lambda error: (Lease(ANOTHER_LEADS, error, error, error, None), Term()),
    "a take-over": lambda error: (Lease(ANOTHER_LEADS, None), Term(error, error, error)),
}


@pytest.mark.parametrize("what", LOOKS)
@pytest.mark.parametrize("error", [GONE, OSError(28, "No space left on device")], ids=["table", "disk"])
async def test_who_follows_tries_again_whatever_broke_and_shows_its_frames_once(
    what: str, error: Exception, log: Mock
) -> None:
    """A table that was away for a moment, while its copy was put back, had ended it: it stood by for ever, and nothing said so."""
    lease, term = LOOKS[what](error)
    async with working(lease, term) as found:
        await leading(found, term)
    assert shown(log) == [error]
    assert [call.args[0] for call in log.warning.call_args_list] == ["cannot take over"]
    assert log.info.call_args.args == ("over: cannot take over",)


async def test_a_leader_that_was_deposed_follows_though_it_could_not_end_as_it_should(log: Mock) -> None:
    broken = RuntimeError("not abandoned")
    lease, term = Lease(None), Term(None, broken)
    async with working(lease, term) as found:
        await leading(found, term)
        term.leads.clear()
        lease.gone.set()
        await leading(found, term)
        assert (term.begun, found.losses, lease.ends) == (2, 1, 1)
    assert shown(log) == [broken]


async def test_readiness_says_of_nobody_that_it_leads_who_could_not_be_asked() -> None:
    async with working(Lease(ANOTHER_LEADS, OSError("away")), Term()) as found:
        while "another" in found._state:
            assert found._task is not None
            assert not found._task.done()
            await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="it cannot take over"):
            await found.check()


async def test_readiness_says_what_keeps_it_from_taking_over() -> None:
    """It said for ever that it was taking over, whatever it met."""
    refused = BadRequest("the address of GPU agent is not an http address")
    async with working(Lease(ANOTHER_LEADS, *[None] * 9), Term(*[refused] * 9)) as found:
        async with asyncio.timeout(60):
            while "not an http address" not in found._state:
                assert found._task is not None
                assert not found._task.done()
                await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="it cannot take over: the address of GPU agent is not"):
            await found.check()


@pytest.mark.parametrize("answer", [ANOTHER_LEADS, None], ids=["stands by", "leads"])
async def test_a_process_in_which_nobody_follows_any_more_is_not_ready(answer: float | None) -> None:
    async with working(Lease(answer), Term()) as found:
        assert found._task is not None
        found._task.cancel()
        await asyncio.wait([found._task])
        with pytest.raises(Unavailable, match="neither leads nor stands by") as caught:
            await found.check()
        assert caught.value.code == "not-leader"
