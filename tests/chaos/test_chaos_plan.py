"""The plan of a chaos run: repeatable, bounded, never two faults on one container at once, and everything is hit sooner or later."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.plan import AWAY_S, GAP_S, Fault, Kind, plan

NETWORKS = {"database": ["database"], "orchestrator": ["control", "database", "city"], "city": ["city"]}


@given(st.integers(0, 10**6), st.floats(0, 600))
def test_the_same_seed_gives_the_same_bounded_plan(seed: int, seconds: float) -> None:
    faults = plan(seed, seconds, NETWORKS)
    assert faults == plan(seed, seconds, NETWORKS)
    assert all(0 < fault.at_s < seconds and AWAY_S[0] <= fault.away_s <= AWAY_S[1] for fault in faults)
    assert all(GAP_S[0] <= after.at_s - before.at_s for before, after in pairwise(faults))
    for fault in faults:
        assert (fault.network in NETWORKS[fault.target]) is (fault.kind is Kind.CUT)
    for name in NETWORKS:
        own = [fault for fault in faults if fault.target == name]
        assert all(before.back_s <= after.at_s for before, after in pairwise(own))


def test_every_container_meets_every_kind() -> None:
    met = {(fault.target, fault.kind) for seed in range(40) for fault in plan(seed, 120, NETWORKS)}
    assert met == {(name, kind) for name in NETWORKS for kind in Kind}
    assert plan(1, 120, NETWORKS) != plan(2, 120, NETWORKS)


def test_a_fault_is_said_in_words() -> None:
    assert str(Fault(3.0, Kind.CUT, "city", 1.25, "control")) == "cut city from network control for 1.2 s"
    assert str(Fault(3.0, Kind.KILL, "city", 2.0)) == "kill city for 2.0 s"
