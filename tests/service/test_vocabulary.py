"""Journals of other versions: older facts are brought up by a table, newer ones refused by name, and the MAC covers which it was."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from shared.errors import ConfigurationError, VerificationFailed
from shared.service.journal import Journal, NewFact
from shared.service.store import Store
from shared.service.tables import JOURNAL, METADATA
from shared.service.vocabulary import Vocabulary

KEY = b"k" * 32
FIRST = Vocabulary({"opened": 1, "closed": 1})
THIRD = Vocabulary(
    {"opened": 3, "closed": 1},
    steps={
        ("opened", 1): lambda body: {"names": [body["name"]]},
        ("opened", 2): lambda body: {"names": body["names"], "count": len(body["names"])},
    },
    added={"closed": {"why": "nobody said"}},
)


@pytest.fixture
async def store(sqlite_url: str) -> AsyncIterator[Store]:
    store = Store(sqlite_url)
    await store.open()
    await store.write(METADATA.create_all)
    yield store
    await store.close()


async def write(store: Store, vocabulary: Vocabulary, *facts: NewFact) -> None:
    journal = Journal(lambda _: KEY, vocabulary)

    def act(connection: sa.Connection) -> None:
        at = journal.head(connection, "s").seq
        journal.append(connection, "s", facts, expected_seq=at, at=1.0)

    await store.write(act)


async def read(store: Store, vocabulary: Vocabulary) -> list[tuple[str, object]]:
    facts = await store.read(lambda c: Journal(lambda _: KEY, vocabulary).load(c, "s"))
    return [(fact.kind, fact.body) for fact in facts]


async def test_older_facts_are_read_as_todays(store: Store) -> None:
    await write(store, FIRST, NewFact("opened", {"name": "a"}), NewFact("closed", {}))
    await write(store, THIRD, NewFact("opened", {"names": ["b", "c"], "count": 2}), NewFact("closed", {"why": "done"}))
    assert await read(store, THIRD) == [
        ("opened", {"names": ["a"], "count": 1}), ("closed", {"why": "nobody said"}),
        ("opened", {"names": ["b", "c"], "count": 2}), ("closed", {"why": "done"}),
    ]  # fmt: skip


@pytest.mark.parametrize("fact", [NewFact("opened", {"names": [], "count": 0}), NewFact("moved", {})])
async def test_a_newer_versions_journal_is_refused_in_words(store: Store, fact: NewFact) -> None:
    newer = Vocabulary({**THIRD.versions, "moved": 1}, THIRD.steps, THIRD.added)
    await write(store, newer, fact)
    with pytest.raises(ConfigurationError, match=fact.kind) as caught:
        await read(store, FIRST)
    assert caught.value.code == "newer-journal"
    assert caught.value.remedy


async def test_which_version_a_fact_has_cannot_be_changed_behind_the_service(store: Store) -> None:
    await write(store, THIRD, NewFact("opened", {"names": ["a"], "count": 7}))
    await store.write(lambda c: c.execute(sa.update(JOURNAL).values(kind="opened")))
    with pytest.raises(VerificationFailed) as caught:
        await read(store, THIRD)
    assert caught.value.code == "journal-tampered"


@pytest.mark.parametrize(
    "broken",
    [
        lambda: Vocabulary({"opened": 2}),
        lambda: Vocabulary({"opened": 1}, steps={("opened", 1): dict}),
        lambda: Vocabulary({"opened": 1}, added={"closed": {}}),
    ],
)
def test_a_table_with_a_hole_is_refused_when_it_is_made(broken: object) -> None:
    assert callable(broken)
    with pytest.raises(ValueError, match="does not fit"):
        broken()
