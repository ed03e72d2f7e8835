"""Reading and writing the projections: one function per question. Synchronous; runs inside store.read / store.write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from pydantic import FiniteFloat, TypeAdapter
from sqlalchemy import Column, Connection, Select, delete, insert, select, tuple_

from data_holder.tables.legible import legible
from data_holder.tables.schema import DATASETS, RECEIPTS, REQUESTS, VISITS
from shared.errors import Conflict, NotFound
from shared.service.statements import find_row

Row = dict[str, Any]
_TIMERS: TypeAdapter[dict[str, float]] = TypeAdapter(dict[str, FiniteFloat])


def datasets(connection: Connection, after: str | None = None, limit: int = 500) -> list[Row]:
    """Datasets by name."""
    query = select(DATASETS).order_by(DATASETS.c.name).limit(limit)
    return _all(connection, query.where(DATASETS.c.name > after) if after else query)


def all_datasets(connection: Connection) -> list[Row]:
    """Every dataset: a few."""
    return _all(connection, select(DATASETS))


def dataset(connection: Connection, name: str) -> Row:
    """Raises: NotFound."""
    return _one(connection, select(DATASETS).where(DATASETS.c.name == name), f"dataset {name!r}")


def add_dataset(connection: Connection, row: Row, keep_equal: bool) -> Row:
    """The row that is there now: the new one, or with `keep_equal` one that differs in its date only. Raises: Conflict `dataset-exists`."""
    for old in _all(connection, select(DATASETS).where(DATASETS.c.name == row["name"])):
        if keep_equal and {**old, "added_at": 0} == {**row, "added_at": 0}:
            return old
        raise Conflict(
            f"dataset {row['name']!r} exists already",
            code="dataset-exists",
            remedy="Remove it first or use another name",
        )
    connection.execute(insert(DATASETS).values(**row))
    return row


def drop_datasets(connection: Connection, name: str, *, unless: Callable[[Row], bool]) -> None:
    """Have none of this name but one that `unless` is true of, also where a session uses it."""
    for old in _all(connection, select(DATASETS).where(DATASETS.c.name == name)):
        if not unless(old):
            connection.execute(delete(DATASETS).where(DATASETS.c.name == name))


def remove_dataset(connection: Connection, name: str, spoilt: Collection[str]) -> None:
    """Raises: NotFound; Conflict `dataset-in-use` while an approved session uses it, but for `spoilt` ones, which use nothing any more."""
    dataset(connection, name)
    if (session := _used_by(connection, name, spoilt)) is not None:
        raise Conflict(
            f"dataset {name!r} is used by session {session}", code="dataset-in-use", remedy="Veto that session first"
        )
    connection.execute(delete(DATASETS).where(DATASETS.c.name == name))


def drop_unused(connection: Connection, names: Sequence[str], spoilt: Collection[str]) -> list[str]:
    """Forget those of these datasets that no approved session uses, as `remove_dataset` has it; which they were."""
    unused = [name for name in names if _used_by(connection, name, spoilt) is None]
    if unused:
        connection.execute(delete(DATASETS).where(DATASETS.c.name.in_(unused)))
    return unused


def _used_by(connection: Connection, name: str, spoilt: Collection[str]) -> str | None:
    """An approved session of this dataset that is none of the spoilt ones."""
    used = select(REQUESTS.c.session).where(REQUESTS.c.dataset == name, REQUESTS.c.state == "approved")
    return next((session for session in connection.execute(used).scalars() if session not in spoilt), None)


def requests(connection: Connection, state: str | None, after: str | None, limit: int) -> list[Row]:
    """Requests by session id."""
    query = select(REQUESTS).order_by(REQUESTS.c.session).limit(limit)
    if state:
        query = query.where(REQUESTS.c.state == state)
    return _all(connection, query.where(REQUESTS.c.session > after) if after else query)


def undelivered(connection: Connection) -> list[str]:
    """Sessions whose decision is not delivered. Asked every second: by an index, and no bytes of a request are read."""
    open_ones = select(REQUESTS.c.session).where(REQUESTS.c.delivered.is_(False), REQUESTS.c.decided_by.is_not(None))
    return list(connection.execute(open_ones).scalars())


def unconsidered(connection: Connection, *, with_program: bool) -> list[str]:
    """Sessions that wait for a decision; `with_program`: also those whose program is here already. Asked as `undelivered`."""
    waiting = select(REQUESTS.c.session).where(REQUESTS.c.state == "waiting")
    return list(connection.execute(waiting if with_program else waiting.where(REQUESTS.c.program.is_(None))).scalars())


def waiting_since(connection: Connection, at: float) -> list[str]:
    """Sessions that wait for a decision, and asked for it then or before; a damaged time is none."""
    asked = select(REQUESTS.c.session).where(REQUESTS.c.state == "waiting", REQUESTS.c.received_at <= at)
    return list(connection.execute(asked).scalars())


def request(connection: Connection, session: str) -> Row:
    """Raises: NotFound."""
    return _one(connection, select(REQUESTS).where(REQUESTS.c.session == session), f"session {session!r}")


def visits(connection: Connection, session: str | None, after: Sequence[Any] | None, limit: int) -> list[Row]:
    """Attempts by (session, epoch)."""
    query = select(VISITS).order_by(VISITS.c.session, VISITS.c.epoch).limit(limit)
    return _all(connection, _after(query, VISITS.c.session, VISITS.c.epoch, session, after))


def attempt(connection: Connection, session: str, epoch: int) -> Row | None:
    """One attempt, if it was ever offered."""
    return find_row(connection, VISITS, {"session": session, "epoch": epoch})


def attempts(connection: Connection, visit: str) -> list[Row]:
    """Every attempt of one visit, oldest first. Raises: NotFound."""
    found = _all(connection, select(VISITS).where(VISITS.c.visit == visit).order_by(VISITS.c.epoch))
    if not found:
        raise NotFound(f"no visit {visit!r} here")
    return found


def receipts(connection: Connection, session: str | None, after: Sequence[Any] | None, limit: int) -> list[Row]:
    """Receipts by (session, leaf index)."""
    query = select(RECEIPTS).order_by(RECEIPTS.c.session, RECEIPTS.c.index).limit(limit)
    return _all(connection, _after(query, RECEIPTS.c.session, RECEIPTS.c.index, session, after))


def receipts_of(connection: Connection, session: str, visit: str) -> list[Row]:
    """Receipts of one visit: of its attempts, and false ones."""
    return _all(connection, select(RECEIPTS).where(RECEIPTS.c.visit == visit, RECEIPTS.c.session == session))


def receipt(connection: Connection, session: str, index: int) -> Row:
    """Raises: NotFound."""
    query = select(RECEIPTS).where(RECEIPTS.c.session == session, RECEIPTS.c.index == index)
    return _one(connection, query, f"receipt {index} of session {session!r}")


def visit_row(attempt: Mapping[str, Any]) -> Row:
    """The API's view of one attempt row."""
    row = {name: attempt[name] for name in VISIT_FIELDS}
    row["records"] = attempt["count"]
    row["timers"] = legible(_TIMERS, attempt["timers"]) if attempt["timers"] else None
    code = attempt["refusal_code"]
    row["refusal"] = {"code": code, "detail": attempt["refusal_detail"]} if code else None
    return row


VISIT_FIELDS = (
    "visit", "session", "round", "index", "attempt", "epoch", "phase", "length", "commitment", "start", "count",
    "bytes_sent", "at",
)  # fmt: skip


def _after(
    query: Select[Any], named: Column[str], number: Column[int], session: str | None, after: Sequence[Any] | None
) -> Select[Any]:
    """Of one session or all, what comes after (session, number); in a form that lets the index find the place at once."""
    if session:
        query = query.where(named == session)
    if after is None:
        return query
    return query.where(number > after[1] if session == after[0] else tuple_(named, number) > tuple_(after[0], after[1]))


def _all(connection: Connection, query: Any) -> list[Row]:
    return [dict(row) for row in connection.execute(query).mappings()]


def _one(connection: Connection, query: Any, what: str) -> Row:
    row = connection.execute(query).mappings().first()
    if row is None:
        raise NotFound(f"no {what} here")
    return dict(row)
