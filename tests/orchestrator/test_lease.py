"""The lease on a real PostgreSQL does what its table says: one leader at a time, tokens that only grow, no commit without it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.lease import rows
from orchestrator.lease.fence import Fence
from orchestrator.lease.keeper import SharedLease
from orchestrator.lease.table import LEASE, LeaseFact, LeasePhase, LeaseRow
from orchestrator.tables import LEASES, PARTIES
from shared.errors import ConfigurationError, ProtocolViolation, Unavailable
from shared.names import Role
from shared.service.engine import create_engine, parse_url
from shared.service.store import Store
from tests.orchestrator.lease_world import LEASE_S, Timer, pass_time, who

NAMES = ("a", "b", "c")


@dataclass
class Model:
    """The row as `LeaseRow` has it, and what each process believes."""

    row: LeaseRow = field(default_factory=lambda: LeaseRow(0, "", None))
    tokens: dict[str, int] = field(default_factory=dict)

    def take(self, name: str, reclaim: bool) -> int | None:
        if not self.row.may_take(name, reclaim=reclaim):
            return None
        self.row = LeaseRow(self.row.token + 1, name, LEASE_S)
        self.tokens[name] = self.row.token
        return self.row.token

    def renew(self, name: str) -> bool:
        """What has expired is not renewed, even if nobody has taken it."""
        own = (self.row.holder, self.row.token) == (name, self.tokens.get(name))
        if not own or self.row.left_s is None or self.row.left_s <= 0:
            return False
        self.row = LeaseRow(self.row.token, name, LEASE_S)
        return True

    def end(self, name: str, released: bool) -> None:
        if (self.row.holder, self.row.token) == (name, self.tokens.get(name)):
            self.row = LeaseRow(self.row.token, name, None if released else 0.0)

    def pass_time(self, seconds: float) -> None:
        if self.row.left_s is not None:
            self.row = LeaseRow(self.row.token, self.row.holder, self.row.left_s - seconds)


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["take", "reclaim", "renew", "release", "give back"]), st.sampled_from(NAMES)
    ) | st.tuples(st.just("pass"), st.sampled_from([1.0, 10.0])),
    max_size=25,
)  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=ACTS)
def test_the_row_does_what_the_table_says(engine: sa.Engine, acts: list[tuple[str, str | float]]) -> None:
    with engine.begin() as connection:
        connection.execute(sa.delete(LEASES))
    model, given_out = Model(), [0]
    for act, argument in acts:
        if act == "pass":
            pass_time(engine, float(argument))
            model.pass_time(float(argument))
            continue
        name = str(argument)
        token = model.tokens.get(name, -1)
        with engine.begin() as connection:
            if act in ("take", "reclaim"):
                found = rows.take(connection, who(name), reclaim=act == "reclaim")
                expected = model.take(name, act == "reclaim")
                assert (found if isinstance(found, int) else None) == expected
                if expected is not None:
                    assert expected > given_out[-1], "a token is never given twice"
                    given_out.append(expected)
            elif act == "renew":
                assert rows.renew(connection, who(name), token) == model.renew(name)
            else:
                rows.end(connection, who(name), token, released=act == "release")
                model.end(name, act == "release")


@given(facts=st.lists(st.sampled_from(list(LeaseFact)), max_size=12))
def test_who_was_deposed_leads_only_after_taking_the_lease_anew(facts: list[LeaseFact]) -> None:
    phase, taken = LEASE.initial, False
    for fact in facts:
        try:
            phase = LEASE.after(phase, fact, Role.ORCHESTRATOR)
        except ProtocolViolation:
            continue
        taken = fact is LeaseFact.TAKEN or (taken and fact is LeaseFact.RENEWED)
        assert (phase is LeasePhase.LEADER) == taken


def test_of_those_who_take_at_once_one_gets_it(engine: sa.Engine, postgres_url: str) -> None:
    other = create_engine(parse_url(postgres_url), "write")
    with engine.begin() as connection:
        rows.take(connection, who("x"), reclaim=False)
    pass_time(engine, 10)
    with engine.connect() as first, first.begin(), other.connect() as second:
        assert rows.take(first, who("a"), reclaim=False) == 2
        with second.begin():  # the row is locked: not free
            assert isinstance(rows.take(second, who("b"), reclaim=False), LeaseRow)
    with other.begin() as second:
        standing = rows.take(second, who("b"), reclaim=False)
    assert isinstance(standing, LeaseRow)
    assert (standing.holder, standing.token) == ("a", 2)
    other.dispose()


def test_another_deployment_is_refused_by_name(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        rows.take(connection, who("a"), reclaim=False)
    stranger = who("b", identity="another")
    for seconds in (0.0, 10.0):  # also when it has expired: only who let go has left
        pass_time(engine, seconds)
        with engine.begin() as connection, pytest.raises(ConfigurationError, match="identity") as caught:
            rows.take(connection, stranger, reclaim=False)
        assert caught.value.code == "standby-differs"
    with engine.begin() as connection:
        rows.end(connection, who("a"), 1, released=True)
        assert rows.take(connection, stranger, reclaim=False) == 2


def test_another_measurement_is_refused_unless_the_last_one_let_go(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        rows.take(connection, who("a"), reclaim=False)
        rows.seal(connection, b"m" * 32, recover=False)
    pass_time(engine, 10)
    with engine.begin() as connection:
        assert rows.take(connection, who("b"), reclaim=False) == 2
        with pytest.raises(ConfigurationError, match="measurement"):
            rows.seal(connection, b"n" * 32, recover=False)
        rows.seal(connection, b"m" * 32, recover=False)
        rows.end(connection, who("b"), 2, released=True)
        rows.take(connection, who("c"), reclaim=False)
        rows.seal(connection, b"n" * 32, recover=False)


def enrol(name: str) -> sa.Insert:
    return sa.insert(PARTIES).values(name=name, role="holder", public_key=name, fingerprint=name, enrolled_at=0.0)


async def parties(store: Store) -> list[str]:
    return await store.read(lambda c: list(c.execute(sa.select(PARTIES.c.name).order_by(PARTIES.c.name)).scalars()))


async def test_nothing_is_committed_without_the_lease(store: Store, engine: sa.Engine) -> None:
    timer = Timer()
    lease = SharedLease(store, who("a"), timer)
    with pytest.raises(Unavailable) as caught:
        await store.write(lambda c: c.execute(enrol("before")))
    assert caught.value.code == "not-leader"
    assert await lease.take() is None
    await store.write(lambda c: c.execute(enrol("during")))
    pass_time(engine, 10)  # a standby has not even come yet: expired is expired
    for name in ("after", "again"):
        with pytest.raises(Unavailable, match="expired") as caught:
            await store.write(lambda c, name=name: c.execute(enrol(name)))
        assert caught.value.code == "not-leader"
        assert caught.value.retry_after_s
    assert await parties(store) == ["during"]
    assert lease.fence.phase is LeasePhase.DEPOSED
    async with asyncio.timeout(20):
        assert "expired" in await lease.lost()
    await lease.end(released=False)
    assert await lease.take() is None
    assert lease.fence.token == 2
    await store.write(lambda c: c.execute(enrol("next")))
    assert await parties(store) == ["during", "next"]


async def test_a_transaction_of_before_is_refused_after_a_take_over(store: Store, engine: sa.Engine) -> None:
    """The zombie knows nothing: its own timer has not moved."""
    zombie = SharedLease(store, who("a"), Timer())
    assert await zombie.take() is None
    pass_time(engine, 10)
    with engine.begin() as connection:
        assert rows.take(connection, who("b"), reclaim=False) == 2
    with pytest.raises(Unavailable) as caught:
        await store.write(lambda c: c.execute(enrol("late")))
    assert caught.value.code == "not-leader"
    assert await parties(store) == []


def test_a_process_stops_by_its_own_timer_when_no_word_comes(engine: sa.Engine) -> None:
    timer, told = Timer(), []
    fence = Fence(who("a"), timer, lambda: told.append(1))
    fence.taken(1, timer.now)
    timer.now += LEASE_S - 0.1
    assert fence.left_s() > 0
    assert not told
    with engine.begin() as connection:
        rows.take(connection, who("a"), reclaim=False)
        fence.write(connection)
    fence.settle(committed=False)
    timer.now += 0.2
    assert (fence.left_s(), told) == (0.0, [1]), "a renewal that was not committed is none"
    assert fence.phase is LeasePhase.DEPOSED
    with engine.begin() as connection, pytest.raises(Unavailable, match="could not be renewed"):
        fence.write(connection)
