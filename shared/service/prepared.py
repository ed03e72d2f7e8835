"""Statements compiled once by SQLAlchemy and run by the driver itself. Knows no table.

For the few statements of a visit's commits: the database spends some microseconds on each, SQLAlchemy's way to it twenty. Here are
the same text and the same conversion of parameters, without the layers that a statement of one known form does not need. Errors are
SQLAlchemy's, as for any other statement; and where somebody listens to an engine's statements, they go SQLAlchemy's way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError

MOST_ROWS = 64
"""Of one statement that inserts several."""
_NAME = re.compile(r"%\((\w+)\)s")
_Convert = Callable[[Any], Any]
_Act = Callable[[Any], Any]


@dataclass(frozen=True)
class _Form:
    """A statement as one dialect says it; `fixed`: what it says itself; `order`: of its parameters where they have no names."""

    text: str
    fixed: Mapping[str, Any]
    converts: tuple[tuple[str, _Convert], ...]
    order: tuple[str, ...] | None

    def bound(self, values: Mapping[str, Any]) -> Any:
        """The driver's parameters. Raises: KeyError: there is a value too few."""
        converted = {**self.fixed, **values}
        for name, convert in self.converts:
            converted[name] = convert(converted[name])
        return converted if self.order is None else tuple([converted[name] for name in self.order])

    def repeated(self, count: int) -> str:
        """The same INSERT of so many rows; the parameters of the first end in `__0`. Only where parameters have names."""
        before, row, behind = _split(self.text)
        return before + ", ".join(_NAME.sub(rf"%(\1__{number})s", row) for number in range(count)) + behind

    def bound_together(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What `repeated` takes."""
        return {f"{name}__{n}": value for n, row in enumerate(rows) for name, value in self.bound(row).items()}


class Prepared:
    """An INSERT, UPDATE, DELETE or SELECT, whose every parameter is given at each run, by name."""

    def __init__(self, statement: sa.Executable, columns: Sequence[str] | None = None) -> None:
        """`columns`: which ones an INSERT fills, in a parameter of the same name each."""
        self._statement, self._columns = statement, columns
        self._forms: dict[str, _Form] = {}
        self._repeated: dict[int, str] = {}

    def run(self, connection: sa.Connection, values: Mapping[str, Any]) -> int:
        """How many rows it changed. Raises: sqlalchemy.exc.DBAPIError."""
        form = self._form(connection.dialect)
        parameters = form.bound(values)
        if _is_watched(connection):
            return connection.exec_driver_sql(form.text, parameters).rowcount

        def act(cursor: Any) -> int:
            cursor.execute(form.text, parameters)
            changed: int = cursor.rowcount
            return changed

        return int(_by_driver(connection, form.text, act))

    def insert_all(self, connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """An INSERT of `rows`, at least one and no two of the same key. Raises: sqlalchemy.exc.DBAPIError."""
        form = self._form(connection.dialect)
        if len(rows) == 1:
            self.run(connection, rows[0])
        elif form.order is None:
            # In one statement: what psycopg makes of `executemany` stops the clock by which PostgreSQL ends an idle transaction (`engine`).
            for first in range(0, len(rows), MOST_ROWS):
                self._insert_together(connection, form, rows[first : first + MOST_ROWS])
        else:
            parameters = [form.bound(row) for row in rows]
            _run(connection, form.text, parameters, lambda cursor: cursor.executemany(form.text, parameters))

    def _insert_together(self, connection: sa.Connection, form: _Form, rows: Sequence[Mapping[str, Any]]) -> None:
        if len(rows) not in self._repeated:
            self._repeated[len(rows)] = form.repeated(len(rows))
        text, parameters = self._repeated[len(rows)], form.bound_together(rows)
        _run(connection, text, parameters, lambda cursor: cursor.execute(text, parameters))

    def first(self, connection: sa.Connection, values: Mapping[str, Any]) -> Sequence[Any] | None:
        """The first row, if there is one, as the driver gives it: for numbers, texts and byte strings.

        Raises:
            sqlalchemy.exc.DBAPIError
        """
        form = self._form(connection.dialect)
        parameters = form.bound(values)
        if _is_watched(connection):
            return connection.exec_driver_sql(form.text, parameters).first()

        def act(cursor: Any) -> Sequence[Any] | None:
            cursor.execute(form.text, parameters)
            row: Sequence[Any] | None = cursor.fetchone()
            return row

        found: Sequence[Any] | None = _by_driver(connection, form.text, act)
        return found

    def _form(self, dialect: Dialect) -> _Form:
        form = self._forms.get(dialect.name)
        if form is None:
            form = self._forms[dialect.name] = _compiled(self._statement, self._columns, dialect)
        return form


def run_text(connection: sa.Connection, text: str) -> None:
    """Run `text`, which has no parameters and no answer, also where a transaction only begins. Raises: sqlalchemy.exc.DBAPIError."""
    if _is_watched(connection):
        connection.exec_driver_sql(text)
    else:
        _on_cursor(connection, text, lambda cursor: cursor.execute(text))


def _run(connection: sa.Connection, text: str, parameters: Any, act: _Act) -> None:
    if _is_watched(connection):
        connection.exec_driver_sql(text, parameters)
    else:
        _by_driver(connection, text, act)


def _split(text: str) -> tuple[str, str, str]:
    """An INSERT before its row of values, the row in its parentheses, and what follows."""
    first = text.index(" VALUES (") + len(" VALUES ")
    depth, last = 0, first
    while not (text[last] == ")" and depth == 1):
        depth += {"(": 1, ")": -1}.get(text[last], 0)
        last += 1
    return text[:first], text[first : last + 1], text[last + 1 :]


def _compiled(statement: sa.Executable, columns: Sequence[str] | None, dialect: Dialect) -> _Form:
    assert isinstance(statement, sa.ClauseElement)
    compiled: Any = statement.compile(dialect=dialect, column_keys=None if columns is None else list(columns))
    at_run_time = (
        compiled.insert_prefetch, compiled.update_prefetch, compiled.literal_execute_params, compiled.post_compile_params,
        compiled.escaped_bind_names,
    )  # fmt: skip
    if any(at_run_time) or any(bind.callable is not None for bind in compiled.bind_names):
        raise ValueError("a statement for which SQLAlchemy adds values when it runs cannot be run without it")
    fixed = {name: bind.value for bind, name in compiled.bind_names.items() if not bind.required}
    found = [
        (name, bind.type.dialect_impl(dialect).bind_processor(dialect)) for bind, name in compiled.bind_names.items()
    ]
    order = None if compiled.positiontup is None else tuple(compiled.positiontup)
    return _Form(compiled.string, fixed, tuple((name, way) for name, way in found if way is not None), order)


def _is_watched(connection: sa.Connection) -> bool:
    """Whether somebody counts or traces statements."""
    hooks = connection.dispatch
    return bool(hooks.before_cursor_execute) or bool(hooks.after_cursor_execute)


def _by_driver(connection: sa.Connection, text: str, act: _Act) -> Any:
    if not connection.in_transaction():
        connection.begin()  # as any statement of SQLAlchemy's would
    return _on_cursor(connection, text, act)


def _on_cursor(connection: sa.Connection, text: str, act: _Act) -> Any:
    driver, dialect = connection.connection, connection.dialect
    # What `Dialect.dbapi` is: the driver's module, whose errors all have one base.
    errors: type[Exception] = dialect.loaded_dbapi.Error
    cursor: Any = None
    try:
        cursor = driver.cursor()
        return act(cursor)
    except errors as error:
        lost = dialect.is_disconnect(error, driver, cursor)  # type: ignore[arg-type]  # wants a Protocol of the driver's errors
        if lost:
            connection.invalidate(error)
        raise DBAPIError.instance(
            text, None, error, errors, hide_parameters=True, connection_invalidated=lost, dialect=dialect
        ) from error
    finally:
        if cursor is not None:
            cursor.close()
