"""The matrix covers every step of the tables, every GPU command and every message of a session; a new step is in it by itself."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, get_args

from orchestrator.sessions.facts import CLAIMED, kind_of
from shared.names import Role, VisitPhase
from shared.protocol.machine import Machine, Move
from shared.protocol.session import SESSION, SessionFact
from shared.protocol.training import TRAINING, TrainingFact
from shared.protocol.visit import VISIT, VisitFact
from tests.crash.cells import (
    AGENT,
    CITY,
    DATABASE,
    NOT_HERE,
    ORCH,
    QUICK,
    REFILL,
    TABLES,
    WAYS,
    Cell,
    commands,
    matrix,
    steps,
)
from tests.crash.play import CrashPlay
from tests.laws.acts import COMMANDS, PLACES
from tests.laws.witness import Ran
from tests.world.world_faults import Moment, Point


def test_every_step_has_both_moments_or_a_reason() -> None:
    found = {
        (cell.actor, cell.step, cell.moment) for cell in matrix() if cell.kind == "commit" and cell.victim == cell.actor
    }
    for actor, names in steps().items():
        for step in names:
            for moment in get_args(Moment):
                assert ((actor, step, moment) in found) != (step in NOT_HERE), (actor, step, moment)
    known = {step for names in steps().values() for step in names} | set(commands())
    assert set(REFILL) <= known
    assert WAYS.keys() <= known, "a way to a step that no table has"
    assert NOT_HERE.keys() <= known, "a reason for a step that no table has"
    assert not WAYS.keys() & NOT_HERE.keys()


def test_every_command_may_be_anybodys_last() -> None:
    found = {(cell.step, cell.victim, cell.moment) for cell in matrix() if cell.kind == "message"}
    for command in commands():
        if command not in NOT_HERE:
            assert {(command, victim, moment) for victim in (ORCH, AGENT) for moment in get_args(Moment)} <= found


class Newer(StrEnum):
    """A step that somebody adds to the visit's table one day."""

    WEIGHED = "weighed"


def test_a_new_step_of_a_table_is_covered_by_itself() -> None:
    move = {(VisitPhase.FENCED, Newer.WEIGHED): Move(Role.ORCHESTRATOR, VisitPhase.FENCED)}
    grown: Machine[Any, Any] = Machine(VISIT.name, VISIT.initial, {**VISIT.moves, **move})
    before, after = set(matrix()), set(matrix({**TABLES, ORCH: (SESSION, grown, TRAINING)}))
    assert before < after
    new = {(cell.victim, cell.kind, cell.step, cell.moment) for cell in after - before}
    assert new == {
        (victim, "commit", "visit.weighed", moment) for victim in (ORCH, DATABASE) for moment in get_args(Moment)
    }


def test_the_quick_tier_has_a_death_of_each_who_keeps_something() -> None:
    assert set(QUICK) <= set(matrix())
    assert [cell.victim for cell in QUICK] == [ORCH, CITY, AGENT]


def test_the_matrix_knows_all_that_a_session_commits(untouched: CrashPlay) -> None:
    """A step in the journal of a session that nobody disturbs is in the table of steps; and every step without a way is in the journal."""
    known = {(actor, step) for actor, names in steps().items() for step in names}
    committed = {(CITY if service.startswith("holder-") else service, step) for service, step in untouched.reaper.seen}
    assert committed <= known
    elsewhere = {(actor, step) for actor, step in known if step in WAYS or step in NOT_HERE}
    assert sorted(known - committed) == sorted(elsewhere)


def test_the_matrix_knows_all_that_services_say_to_one_another(untouched: CrashPlay) -> None:
    """Every message of that session is at a place of the matrix, and its GPU ran each command that no way is given for."""
    places = [Point(client, server, part, "before") for client, server, part, _, _ in PLACES.values()]
    unknown = {
        (m.client, m.server) for m in untouched.case.witness.traffic
        if m.client not in ("owner", "operator") and not any(m.client.startswith(p.client) and m.server == p.server for p in places)
    }  # fmt: skip
    assert unknown == set()
    ran = {type(event.command).__name__ for event in untouched.case.timeline if isinstance(event, Ran)}
    assert set(commands()) - ran == {name for name in commands() if name in WAYS or name in NOT_HERE}
    assert all(part != COMMANDS or command in commands() for _, _, part, command, _ in PLACES.values())


def test_steps_are_called_as_the_journal_calls_them() -> None:
    assert {kind_of(fact) for kind in (SessionFact, VisitFact, TrainingFact) for fact in kind} | {CLAIMED} == set(
        steps()[ORCH]
    )
    assert str(Cell(ORCH, "commit", ORCH, "visit.fenced", "before")) == "orchestrator-before-commit-visit.fenced"
    assert str(Cell(AGENT, "message", ORCH, "Train", "after")) == "agent-after-message-Train"
