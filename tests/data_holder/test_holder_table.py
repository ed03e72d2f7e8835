"""Walks every cell of the holder's table. Knows no service."""

from __future__ import annotations

import itertools

import pytest

from data_holder.protocol.visit import HOLDER_VISIT, HolderFact, HolderPhase
from shared.errors import ProtocolViolation
from shared.names import Role


def test_every_cell() -> None:
    legal = 0
    for phase, fact, actor in itertools.product(HolderPhase, HolderFact, Role):
        move = HOLDER_VISIT.moves.get((phase, fact))
        if move is not None and move.actor is actor:
            assert HOLDER_VISIT.after(phase, fact, actor) is move.to
            legal += 1
        else:
            with pytest.raises(ProtocolViolation):
                HOLDER_VISIT.after(phase, fact, actor)
    assert legal == len(HOLDER_VISIT.moves)


def test_every_phase_is_reached_and_every_journey_can_end() -> None:
    assert HOLDER_VISIT.phases() == set(HolderPhase)
    assert _reachable(HolderPhase.IDLE) == set(HolderPhase)
    for phase in HolderPhase:
        assert any(HOLDER_VISIT.final(end) for end in _reachable(phase))


def test_nothing_is_written_without_verification() -> None:
    assert HolderPhase.ATTACHED not in _reachable(HolderPhase.IDLE, without=HolderFact.VERIFIED)
    assert HolderPhase.DONE not in _reachable(HolderPhase.IDLE, without=HolderFact.PROVISIONED)


def test_one_fact_has_one_actor() -> None:
    for fact in HolderFact:
        assert len({move.actor for (_, f), move in HOLDER_VISIT.moves.items() if f is fact}) == 1


def _reachable(start: HolderPhase, without: HolderFact | None = None) -> set[HolderPhase]:
    seen, todo = {start}, [start]
    while todo:
        here = todo.pop()
        for (phase, fact), move in HOLDER_VISIT.moves.items():
            if phase is here and fact is not without and move.to not in seen:
                seen.add(move.to)
                todo.append(move.to)
    return seen
