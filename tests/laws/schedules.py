"""Schedules that hypothesis chooses from: every act with every argument that means something. Knows no world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from hypothesis import strategies as st

from shared.names import RegionKind
from tests.laws.acts import PLACES, Act, Crash, MoveClock, Restart, Say, Veto, Visits
from tests.laws.attacks import OldKey, Replay, Stranger, Tamper
from tests.laws.wire_acts import At, Disturb, How

SERVICES = ("orchestrator", "holder-city", "holder-harbour", "platform", "agent")
TAMPERED = (RegionKind.MODEL, RegionKind.OPTIMISER, RegionKind.CODE, RegionKind.COMMITTED)
_moment = st.sampled_from(("before", "after"))


def _somewhere(kind: Callable[..., Act], /, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Act]:
    """The act at one of the messages that a session has, seldom at one that it has only when something went wrong."""

    def there(place: str) -> st.SearchStrategy[Act]:
        return st.builds(kind, place=st.just(place), nth=st.integers(1, PLACES[place][-1] + 1), **arguments)

    return st.sampled_from(sorted(PLACES)).flatmap(there)


FAULTS = (
    _somewhere(Disturb, how=st.sampled_from(get_args(How)), seed=st.integers(0, 999)),
    _somewhere(Crash, service=st.sampled_from(SERVICES), moment=_moment),
    st.builds(Restart, service=st.sampled_from(SERVICES), clean=st.booleans()),
    st.builds(Visits, count=st.integers(1, 2)),
)
WORDS = (
    st.builds(Say, word=st.sampled_from(("pause", "resume", "cancel"))),
    st.builds(Veto, holder=st.sampled_from(("city", "harbour"))),
    st.builds(MoveClock, seconds=st.sampled_from((3.0, 60.0, 4000.0))),
)
_attack = st.one_of(
    st.builds(OldKey, which=st.integers(0, 5)),
    st.builds(Replay, place=st.sampled_from(sorted(PLACES)), which=st.integers(0, 40)),
    st.just(Stranger()),
)
ATTACKS = (
    _attack,
    _somewhere(At, moment=_moment, act=_attack),
    st.builds(Tamper, kind=st.sampled_from(TAMPERED), nth=st.integers(1, 4)),
)


def schedules(*acts: st.SearchStrategy[Act], longest: int = 6) -> st.SearchStrategy[list[Act]]:
    """Lists of such acts."""
    return st.lists(st.one_of(*acts), min_size=1, max_size=longest)
