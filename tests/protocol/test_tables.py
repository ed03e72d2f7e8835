"""Walks every (phase, fact, actor) of every protocol table, and checks the graphs' laws. Knows no service."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from shared.errors import ProtocolViolation
from shared.names import Role, SessionPhase, TrainingPhase, VisitPhase
from shared.protocol.machine import Machine
from shared.protocol.session import SESSION, SessionFact
from shared.protocol.training import TRAINING, TrainingFact
from shared.protocol.visit import VISIT, VisitFact

MACHINES: list[tuple[Machine[Any, Any], Any, Any]] = [
    (SESSION, SessionPhase, SessionFact),
    (VISIT, VisitPhase, VisitFact),
    (TRAINING, TrainingPhase, TrainingFact),
]


@pytest.mark.parametrize(("machine", "phases", "facts"), MACHINES, ids=lambda value: getattr(value, "name", ""))
def test_every_cell(machine: Machine[Any, Any], phases: Any, facts: Any) -> None:
    legal = 0
    for phase, fact, actor in itertools.product(phases, facts, Role):
        move = machine.moves.get((phase, fact))
        if move is not None and move.actor is actor:
            assert machine.after(phase, fact, actor) is move.to
            legal += 1
        else:
            with pytest.raises(ProtocolViolation) as caught:
                machine.after(phase, fact, actor)
            assert caught.value.code == ("out-of-order" if move is None else "wrong-actor")
    assert legal == len(machine.moves)


@pytest.mark.parametrize(("machine", "phases", "facts"), MACHINES, ids=lambda value: getattr(value, "name", ""))
def test_every_phase_is_reached_and_every_journey_can_end(machine: Machine[Any, Any], phases: Any, facts: Any) -> None:
    assert machine.phases() == set(phases)
    assert _reachable(machine, machine.initial) == set(phases)
    for phase in phases:
        assert any(machine.final(end) for end in _reachable(machine, phase))


def _reachable(machine: Machine[Any, Any], start: Any, without: Any = None) -> set[Any]:
    seen, todo = {start}, [start]
    while todo:
        here = todo.pop()
        for (phase, fact), move in machine.moves.items():
            if phase is here and fact is not without and move.to not in seen:
                seen.add(move.to)
                todo.append(move.to)
    return seen


def test_no_verified_visit_without_a_fence() -> None:
    assert VisitPhase.VERIFIED not in _reachable(VISIT, VisitPhase.PLANNED, without=VisitFact.FENCED)


def test_no_closed_phase_without_a_scrub() -> None:
    assert TrainingPhase.CLOSED not in _reachable(TRAINING, TrainingPhase.LOADED, without=TrainingFact.SCRUBBED)


def test_nothing_runs_before_agreement() -> None:
    assert SessionPhase.RUNNING not in _reachable(SESSION, SessionPhase.DRAFT, without=SessionFact.AGREED)
