"""The journal: streams of facts, only ever appended, each row chained to the one before by a MAC. Knows no fact's meaning.

The platform owns the disk (design 4.3, "Storage is hostile"): a changed, inserted, swapped or missing row breaks the chain.
A stream cut short at its end still chains; who must notice that remembers a `Head` elsewhere and gives it as `anchor`.

    chain_0 = 32 zero bytes
    chain_n = HMAC-SHA-256(key, chain_{n-1} ‖ CBOR[stream, seq, kind, at, body])      CBOR frames the fields unambiguously
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from shared.canonical import cbor_bytes, json_bytes
from shared.errors import Conflict, VerificationFailed
from shared.service.prepared import Prepared
from shared.service.tables import JOURNAL
from shared.service.vocabulary import Vocabulary

CHAIN_BYTES = 32
_MOST = 2**31 - 1
"""Facts that the column can number."""
KEY_BYTES = 32
_MISFORMED = (ValueError, TypeError, ArithmeticError, MemoryError)
"""What reading a row raises whose cells are of other types than were written."""


@dataclass(frozen=True)
class NewFact:
    """Something to be written down: what kind of fact, and its content as a JSON value."""

    kind: str
    body: Any


@dataclass(frozen=True)
class Fact:
    """Something written down and verified. `seq` counts from 1 within its stream; `at` is seconds since the epoch."""

    stream: str
    seq: int
    kind: str
    at: float
    body: Any


@dataclass(frozen=True)
class Head:
    """The end of a stream: number of its last fact and the chain value there (32 bytes)."""

    seq: int
    chain: bytes


EMPTY = Head(0, bytes(CHAIN_BYTES))


class Journal:
    """Appends and verifies, each stream under its MAC key. Its methods are called inside `store.write` and `store.read`."""

    def __init__(
        self, key: Callable[[str], bytes], vocabulary: Vocabulary | None = None, table: sa.Table = JOURNAL
    ) -> None:
        """`key` returns at least 32 bytes for a stream; it is asked at each call and its answer is not kept. A stream written under one
        key never verifies under another. Without a vocabulary every kind is taken as it is. `table`: has the columns of `JOURNAL`."""
        self._key, self._vocabulary, self._table = key, vocabulary, table
        columns, of_stream = table.c, table.c.stream == sa.bindparam("stream")
        self._insert = Prepared(sa.insert(table).inline(), columns.keys())
        self._end = Prepared(
            sa.select(columns.seq, columns.chain)
            .where(of_stream)
            .order_by(columns.seq.desc())
            .limit(sa.literal_column("1"))
        )
        self._all = sa.select(table).where(of_stream).order_by(columns.seq)
        self._part = self._all.where(columns.seq > sa.bindparam("after"), columns.seq <= sa.bindparam("last"))

    def append(
        self, connection: Connection, stream: str, facts: Sequence[NewFact], *, expected_seq: int, at: float
    ) -> Head:
        """Writes `facts` after fact `expected_seq`, all of them or none; returns the new head.

        Raises:
            Conflict: code `stale-journal`; the stream does not end at `expected_seq`.
            BadRequest: a body has no canonical JSON form.
        """
        head = self.head(connection, stream)
        if head.seq != expected_seq:
            raise _stale(stream, expected_seq, head.seq)
        key = self._mac_key(stream)
        rows = []
        for fact in facts:
            body = json_bytes(fact.body).decode()
            seq, kind = head.seq + 1, self._stored(fact.kind)
            head = Head(seq, _link(key, head.chain, stream, seq, kind, float(at), body))
            rows.append(
                {"stream": stream, "seq": seq, "kind": kind, "at": float(at), "body": body, "chain": head.chain}
            )
        if rows:
            try:
                self._insert.insert_all(connection, rows)
            except IntegrityError as error:  # another process was faster; the primary key is the compare-and-set
                raise _stale(stream, expected_seq, None) from error
        return head

    def head(self, connection: Connection, stream: str) -> Head:
        """Where the stream ends, as stored: not verified, good for `expected_seq` only."""
        row = self._end.first(connection, {"stream": stream})
        return EMPTY if row is None else Head(row[0], bytes(row[1]))

    def load(self, connection: Connection, stream: str, *, anchor: Head | None = None) -> list[Fact]:
        """Every fact of the stream, in order, after the whole chain was verified.

        Args:
            anchor: a head known from elsewhere that must lie on this chain.

        Raises:
            VerificationFailed: code `journal-tampered`; names the first bad row.
            ConfigurationError: code `newer-journal`; a newer version of the program wrote on.
        """
        facts: list[Fact] = []
        anchored = anchor is None or anchor == EMPTY
        for fact, head in self.verified(connection, stream):
            facts.append(fact)
            anchored = anchored or anchor == head
        if not anchored:
            assert anchor is not None
            raise _tampered(
                stream, min(anchor.seq, len(facts) + 1), "the stream does not contain the head remembered elsewhere"
            )
        return facts

    def verified(
        self, connection: Connection, stream: str, after: Head = EMPTY, last: int | None = None
    ) -> Iterator[tuple[Fact, Head]]:
        """Fact by fact, in order, each with the head that it is; nothing comes after a bad row.

        Args:
            after: a head of the stream that was verified before, or that this process wrote: it is begun behind it.
            last: the fact to end with, which is known to be there; all that are there without one.

        Raises: as `load`.
        """
        key, head = self._mac_key(stream), after
        try:
            for row in self._rows(connection, stream, after, last):
                seq = head.seq + 1
                if row.seq != seq:
                    raise _tampered(stream, seq, "the row is missing")
                expected = _link(key, head.chain, stream, seq, row.kind, row.at, row.body)
                if not hmac.compare_digest(expected, bytes(row.chain)):
                    raise _tampered(stream, seq, "its chain value does not verify")
                kind, body = self._read(row.kind, json.loads(row.body))
                head = Head(seq, expected)
                yield Fact(stream, seq, kind, row.at, body), head
        except _MISFORMED as error:
            raise _tampered(stream, head.seq + 1, "the row has another form than was written") from error
        if last is not None and head.seq < last:
            raise _tampered(stream, head.seq + 1, "the row is missing")

    def _rows(self, connection: Connection, stream: str, after: Head, last: int | None) -> Iterable[sa.Row[Any]]:
        if last is None and after == EMPTY:
            return connection.execute(self._all, {"stream": stream})
        bounds = {"after": after.seq, "last": _MOST if last is None else last}
        return connection.execute(self._part, {"stream": stream, **bounds})

    def _mac_key(self, stream: str) -> bytes:
        key = self._key(stream)
        if len(key) < KEY_BYTES:
            raise ValueError(f"a journal key has at least {KEY_BYTES} bytes")
        return key

    def _stored(self, kind: str) -> str:
        return kind if self._vocabulary is None else self._vocabulary.stored(kind)

    def _read(self, stored: str, body: Any) -> tuple[str, Any]:
        return (stored, body) if self._vocabulary is None else self._vocabulary.read(stored, body)

    def streams(self, connection: Connection) -> list[str]:
        """Names of all streams, sorted; not verified."""
        stream = self._table.c.stream
        return list(connection.execute(sa.select(stream).distinct().order_by(stream)).scalars())


def _link(key: bytes, chain: bytes, stream: str, seq: int, kind: str, at: float, body: str) -> bytes:
    return hmac.digest(key, chain + cbor_bytes([stream, seq, kind, at, body]), "sha256")


def _stale(stream: str, expected: int, got: int | None) -> Conflict:
    return Conflict(
        f"journal {stream} has moved on",
        code="stale-journal",
        remedy="Load the stream again and decide anew.",
        expected=str(expected),
        got=None if got is None else str(got),
    )


def misplaced(stream: str) -> VerificationFailed:
    """What is to be said of a stream that `streams` names and that has no rows: the name of one was changed into no text at all."""
    return _tampered(stream, 1, "the row that bears this name is not found by it")


def _tampered(stream: str, seq: int, why: str) -> VerificationFailed:
    return VerificationFailed(
        f"journal {stream}, fact {seq}: {why}",
        code="journal-tampered",
        remedy="Somebody changed the database behind this service: restore it from a backup, and ask who had access.",
    )
