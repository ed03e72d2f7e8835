"""The journal on both databases: append-only, compare-and-set, every kind of tampering named."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.errors import BadRequest, Conflict, VerificationFailed
from shared.service.journal import EMPTY, Fact, Head, Journal, NewFact
from shared.service.store import Store
from shared.service.tables import JOURNAL, METADATA
from tests.adversary.rows import attack

JOURNAL_OF_A = Journal(lambda _: b"k" * 32)
FACTS = [NewFact("opened", {"n": index, "x": 0.1}) for index in range(5)]


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    store = Store(database_url)
    await store.open()
    await store.write(METADATA.create_all)
    await store.write(lambda c: JOURNAL_OF_A.append(c, "s", FACTS, expected_seq=0, at=1700000000.123456))
    await store.write(lambda c: JOURNAL_OF_A.append(c, "other", FACTS, expected_seq=0, at=1.0))
    yield store
    await store.close()


async def load(store: Store, journal: Journal = JOURNAL_OF_A, anchor: Head | None = None) -> list[Fact]:
    return await store.read(lambda c: journal.load(c, "s", anchor=anchor))


async def test_comes_back_as_written(store: Store) -> None:
    facts = await load(store)
    assert [(fact.seq, fact.kind, fact.body) for fact in facts] == [
        (index + 1, "opened", {"n": index, "x": 0.1}) for index in range(5)
    ]
    assert facts[0].at == 1700000000.123456
    assert await store.read(JOURNAL_OF_A.streams) == ["other", "s"]
    assert await store.read(lambda c: JOURNAL_OF_A.load(c, "none")) == []
    assert await store.read(lambda c: JOURNAL_OF_A.head(c, "none")) == EMPTY


async def test_append_is_compare_and_set(store: Store) -> None:
    for wrong in (0, 4, 6):
        with pytest.raises(Conflict) as caught:
            await store.write(lambda c, wrong=wrong: JOURNAL_OF_A.append(c, "s", FACTS, expected_seq=wrong, at=2.0))
        assert caught.value.code == "stale-journal"
    head = await store.write(lambda c: JOURNAL_OF_A.append(c, "s", FACTS[:1], expected_seq=5, at=2.0))
    assert head.seq == 6
    assert len(await load(store)) == 6


async def test_a_bad_body_writes_nothing(store: Store) -> None:
    with pytest.raises(BadRequest):
        await store.write(
            lambda c: JOURNAL_OF_A.append(c, "s", [FACTS[0], NewFact("x", float("nan"))], expected_seq=5, at=2.0)
        )
    assert len(await load(store)) == 5


def change(column: str, value: object, seq: int = 3) -> Callable[[sa.Connection], object]:
    return lambda c: c.execute(
        sa.update(JOURNAL).where(JOURNAL.c.stream == "s", JOURNAL.c.seq == seq).values({column: value})
    )


def swap(c: sa.Connection) -> None:
    for old, new in ((2, 99), (3, 2), (99, 3)):
        change("seq", new, old)(c)


def transplant(c: sa.Connection) -> None:
    c.execute(sa.delete(JOURNAL).where(JOURNAL.c.stream == "s"))
    c.execute(sa.update(JOURNAL).where(JOURNAL.c.stream == "other").values(stream="s"))


TAMPERINGS = {
    "kind": (change("kind", "closed"), 3),
    "at": (change("at", 1700000000.1234562), 3),
    "body": (change("body", '{"n":3,"x":0.1}'), 3),
    "chain": (change("chain", bytes(32)), 3),
    "last body": (change("body", "{}", seq=5), 5),
    "deleted": (lambda c: c.execute(sa.delete(JOURNAL).where(JOURNAL.c.stream == "s", JOURNAL.c.seq == 2)), 2),
    "first deleted": (lambda c: c.execute(sa.delete(JOURNAL).where(JOURNAL.c.stream == "s", JOURNAL.c.seq == 1)), 1),
    "swapped": (swap, 2),
    "another stream's rows": (transplant, 1),
}


@attack("V22", any="stopped: rows are chained by their MACs")
@pytest.mark.parametrize("name", TAMPERINGS)
async def test_tampering_is_found_and_the_first_bad_row_named(store: Store, name: str) -> None:
    act, seq = TAMPERINGS[name]
    await store.write(act)
    with pytest.raises(VerificationFailed, match=f"journal s, fact {seq}:") as caught:
        await load(store)
    assert caught.value.code == "journal-tampered"


MISFORMED = {
    "no text": "body = CAST(x'7bff7d' AS TEXT)", "a number": "body = 7", "chain text": "chain = 'abc'", "no chain": "chain = 1e9",
    "a chain too long": "chain = 9223372036854775807", "kind no text": "kind = CAST(x'ff' AS TEXT)", "at text": "at = 'x'",
}  # fmt: skip


@pytest.mark.parametrize("name", MISFORMED)
async def test_a_cell_of_another_form_is_tampering_and_repeated_nowhere(sqlite_url: str, name: str) -> None:
    """The driver read no text that is no UTF-8, refused the statement, and quoted the cell in its error."""
    store = Store(sqlite_url)
    await store.open()
    await store.write(METADATA.create_all)
    for stream in ("s", "other"):
        await store.write(lambda c, stream=stream: JOURNAL_OF_A.append(c, stream, FACTS, expected_seq=0, at=1.0))
    damage = sa.text(f"UPDATE journal SET {MISFORMED[name]} WHERE stream = 's' AND seq = 3")
    await store.write(lambda c: c.execute(damage))
    with pytest.raises(VerificationFailed, match="journal s, fact 3:") as caught:
        await load(store)
    assert caught.value.code == "journal-tampered"
    assert len(await store.read(lambda c: JOURNAL_OF_A.load(c, "other"))) == len(FACTS)
    await store.close()


async def test_another_key_verifies_nothing(store: Store) -> None:
    with pytest.raises(VerificationFailed):
        await load(store, Journal(lambda _: b"j" * 32))
    with pytest.raises(ValueError, match="32 bytes"):
        await load(store, Journal(lambda _: b"short"))


async def test_an_anchor_finds_what_was_cut_off(store: Store) -> None:
    head = await store.read(lambda c: JOURNAL_OF_A.head(c, "s"))
    await load(store, anchor=head)
    await store.write(lambda c: c.execute(sa.delete(JOURNAL).where(JOURNAL.c.stream == "s", JOURNAL.c.seq == 5)))
    assert len(await load(store)) == 4
    with pytest.raises(VerificationFailed, match="remembered elsewhere"):
        await load(store, anchor=head)
    with pytest.raises(VerificationFailed):
        await load(store, anchor=Head(4, bytes(32)))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    fields=st.tuples(st.text(max_size=3), st.text(max_size=3), st.text(max_size=3)),
    others=st.tuples(st.text(max_size=3), st.text(max_size=3), st.text(max_size=3)),
)
def test_fields_cannot_be_shifted_into_one_another(fields: tuple[str, str, str], others: tuple[str, str, str]) -> None:
    from shared.service.journal import _link

    first = _link(b"k" * 32, bytes(32), fields[0], 1, fields[1], 1.0, fields[2])
    second = _link(b"k" * 32, bytes(32), others[0], 1, others[1], 1.0, others[2])
    assert (first == second) == (fields == others)
