"""A session's events, followed over whatever breaks, each read as what it must be. Knows no command and no other path."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from http import HTTPStatus

from pydantic import BaseModel, ConfigDict

from gput.answers import object_of, read_as
from gput.lull import Lull
from shared.errors import Unavailable
from shared.service.event_reader import NO_EVENT, Event, iter_sse
from shared.service.http import PeerClient

ENDED = ("COMPLETED", "FAILED", "CANCELLED")


class _Reckoned(BaseModel):
    """What somebody reckons with in an event's data, where it is there; all else is shown as it came."""

    model_config = ConfigDict(strict=True)

    seq: int = 0
    at: float = 0.0
    fact: str = ""
    visit: str | None = None
    visits: list[str] = []
    holder: str | None = None
    round: int | None = None
    position: int | None = None
    step: int | None = None
    loss: float | None = None
    validation_after: float | None = None
    durations: dict[str, float] | None = None
    tour_durations: dict[str, float] | None = None


async def follow(
    peer: PeerClient, path: str, ended: Callable[[], Awaitable[bool]], *, after: int, patience_s: float
) -> AsyncGenerator[Event, None]:
    """The events behind the id `after` until the session's final one, resumed where they broke off.

    Args:
        ended: whether the session has ended, as an answer says that can be believed.
        patience_s: for how long to sit out a stream that brings nothing: that it opens is no sign of life.

    Raises:
        Unavailable: the stream stayed away for that long; `peer-unintelligible`: what came is no event. As `ended`.
    """
    last, lull = after, Lull(patience_s)
    while True:
        had, broke, began = last, None, False
        try:
            async with peer.stream("GET", path, headers={"Last-Event-ID": str(last)}) as response:
                began = True
                # 204 says that there is nothing more, and is no stream.
                if response.status_code != HTTPStatus.NO_CONTENT:
                    async for event in iter_sse(response, lull.answered):
                        last = event.id or last
                        lull.news()
                        yield (told := _checked(event))
                        if told.event == "session" and str(told.data.get("fact")).upper() in ENDED:
                            return
        except Unavailable as error:
            if began and error.code == NO_EVENT:
                raise  # nothing broke off: it would say so again
            broke = error
        # That the session has ended says nothing of a stream that broke off before it told so.
        over, silent = await ended(), last == had
        if over and broke is None and silent:
            return  # whoever asked knows the final one already
        await lull.after(_silent() if broke is None and silent else broke)


def _checked(event: Event) -> Event:
    data = object_of(event.data)
    read_as(_Reckoned, data)
    return replace(event, data=data)


def _silent() -> Unavailable:
    return Unavailable(
        "the event stream ended without an event, and the session goes on", code="peer-unreachable",
        remedy="Connect again with Last-Event-ID; nothing is lost.",
    )  # fmt: skip
