"""The diagrams of the pages: the sequence is a walk that every table allows, and an outline leaves no phase out."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from docs.diagrams import SHOWN, VISIT_STEPS, outline, sequence, whole
from shared.errors import ProtocolViolation
from shared.protocol.session import SESSION
from shared.protocol.training import TRAINING, TrainingFact
from shared.protocol.visit import VISIT


@pytest.mark.parametrize("machine", [SESSION, VISIT, TRAINING], ids=lambda machine: machine.name)
def test_an_outline_has_every_phase_and_no_way_that_is_none(machine: object) -> None:
    assert isinstance(machine, type(SESSION))
    ways = set(re.findall(r"^    (\w+) --> (\w+): ", outline(machine), re.MULTILINE))
    assert ways == {(p.value, m.to.value) for (p, _), m in machine.moves.items() if p is not m.to}
    assert {phase.value for phase in machine.phases()} == {name for way in ways for name in way}
    assert len(re.findall(r": \w+ \(\w+\)$", whole(machine), re.MULTILINE)) == len(machine.moves)


def test_the_sequence_brings_every_machine_to_its_end() -> None:
    drawn = sequence()
    assert [line.split(": ", 1)[1] for line in drawn.splitlines() if line.startswith("    Note over")][-2:] == [
        "training CLOSED", "holder DONE",
    ]  # fmt: skip
    assert {name for name, _, _ in SHOWN} == set(re.findall(r"Note over \w: (\w+) ", drawn))


@pytest.mark.parametrize("left_out", [step.message for step in VISIT_STEPS if step.facts])
def test_a_visit_without_one_of_its_steps_cannot_be_drawn(left_out: str) -> None:
    some = tuple(step for step in VISIT_STEPS if step.message != left_out)
    with pytest.raises((ProtocolViolation, ValueError)):
        sequence(some)


def test_steps_in_another_order_cannot_be_drawn() -> None:
    early = replace(VISIT_STEPS[0], facts=(*VISIT_STEPS[0].facts, ("training", TrainingFact.SCRUBBED)))
    with pytest.raises(ProtocolViolation):
        sequence((early, *VISIT_STEPS[1:]))
