"""Server-sent events of a session: the journal's facts once they are durable, and losses while they come. Knows no GPU.

Event ids are `journal seq × SPREAD + n`: n = 0 for the fact itself, 1… for losses that came after it and before the next fact. So
ids grow, and a reader that comes back with Last-Event-ID misses no fact; losses of the past are in `GET …/losses`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from orchestrator.api import examples as ex
from orchestrator.api.deps import Anybody, Orchestrator, Parts, sees_losses, visible
from orchestrator.sessions.book import Book
from orchestrator.visit_steps import in_order
from shared.service.event_reader import Event
from shared.service.journal import EMPTY, Fact
from shared.service.signatures import Caller
from shared.service.sse import event_stream

router = APIRouter(tags=["events"])
SPREAD = 1_000_000
BATCH = 200
KEEP_ALIVE_S = 4.0
_SHOWN = (
    "visit", "visits", "phase", "holder", "round", "index", "attempt", "epoch", "fence_epoch", "life", "boot_counter",
    "reason", "stepped", "again", "code", "detail", "step", "position", "validation_before", "validation_after", "records",
    "length", "bytes_sent", "steps", "seconds", "timers", "gpu", "backend", "sha256",
    "size_bytes", "party", "log_size",
)  # fmt: skip
_FINAL = {"completed", "failed", "cancelled"}


def _event(fact: Fact) -> Event:
    machine, _, what = fact.kind.partition(".")
    body = fact.body
    data = {"seq": fact.seq, "at": fact.at, "kind": machine, "fact": what, "session": fact.stream}
    data.update({name: body[name] for name in _SHOWN if name in body})
    data.update({name: in_order(body[name]) for name in ("durations", "tour_durations") if name in body})
    if body.get("validation_after") is not None:
        data["validation_loss"] = body["validation_after"]
    return Event(fact.seq * SPREAD, machine, data)


class _Source:
    def __init__(self, parts: Orchestrator, caller: Caller, book: Book) -> None:
        self._parts, self._caller, self._session = parts, caller, book.durable.id
        self._owner, self._head = book.durable.owner, EMPTY

    async def __call__(self, after: int) -> Sequence[Event]:
        book = await self._parts.catalogue.open(self._session)
        # Never beyond what the session's page shows: whoever hears of a fact and then looks must find it there.
        last = book.durable.seq
        facts, self._head = await book.told.after(after // SPREAD, last, BATCH, self._head)
        if len(facts) == BATCH:
            last = facts[-1].seq
        return sorted([*map(_event, facts), *self._losses(after, last)], key=lambda event: event.id)

    def _losses(self, after: int, last: int) -> list[Event]:
        """Those after the event `after`, as far as they came before the fact that follows the one numbered `last`."""
        runner = self._parts.supervisor.runner(self._session)
        if runner is None or runner.run is None:
            return []
        return [
            Event(fact * SPREAD + number, "loss", loss)
            for fact, number, loss in list(runner.run.losses)
            if fact <= last
            and fact * SPREAD + number > after
            and sees_losses(self._caller, self._owner, str(loss["holder"]))
        ]


@router.get(
    "/v1/sessions/{session}/events", summary="Events, live and from any point (Last-Event-ID)", response_class=Response,
    responses=ex.stream("Server-sent events; each `data` is a JSON object.", ex.EVENT),
)  # fmt: skip
async def events(
    session: str,
    request: Request,
    caller: Anybody,
    parts: Parts,
    after: Annotated[int | None, Query(ge=0, le=2**60)] = None,
) -> Response:
    book = await visible(parts, caller, session)
    return await event_stream(
        request, _Source(parts, caller, book), book.changes, after=after, keep_alive_s=KEEP_ALIVE_S,
        until=lambda event: event.event == "session" and event.data["fact"] in _FINAL, ended=lambda: book.durable.ended,
        caller=caller,
    )  # fmt: skip
