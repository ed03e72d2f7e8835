"""Diagrams of the protocol tables in Mermaid: a machine whole, a machine in outline, and one undisturbed visit as a sequence.

The sequence walks all tables at once; a step that a table does not allow, or a walk that does not end where the visit must, makes no
picture. Knows the tables, no service.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from data_holder.protocol.visit import HOLDER_VISIT, HolderFact
from gpu_agent.hardware.regions import REGION, RegionFact
from shared.protocol.machine import Machine
from shared.protocol.training import TRAINING, TrainingFact
from shared.protocol.visit import VISIT, VisitFact

WHO = {"O": "orchestrator", "P": "platform (MUX)", "H": "holder", "G": "GPU"}
SHOWN = (("visit", VISIT, "O"), ("training", TRAINING, "O"), ("holder", HOLDER_VISIT, "H"), ("region", REGION, "G"))
"""Name, table, and beside whom its phases are written."""


@dataclass(frozen=True)
class Step:
    """One message, `O->>G: what`, and the facts that it makes true, each of its machine."""

    message: str
    facts: tuple[tuple[str, StrEnum], ...] = field(default=())


_V, _T, _H, _R = VisitFact, TrainingFact, HolderFact, RegionFact
VISIT_STEPS = (
    Step("O->>G: grant: a new epoch, one region, write only, so many bytes", (("region", _R.GRANTED), ("visit", _V.GRANTED))),
    Step("O->>H: offer: manifest, grant, log head; the visit key, sealed to H", (("visit", _V.OFFERED), ("holder", _H.OFFERED))),
    Step("H->>H: attested? approved? one log?", (("holder", _H.VERIFIED),)),
    Step("O->>P: route the GPU to H", (("holder", _H.ATTACHED),)),
    Step("H->>G: sealed records", (("region", _R.CHUNK),)),
    Step("H->>G: closing record and membership proof", (("region", _R.CLOSED), ("holder", _H.PROVISIONED))),
    Step("H->>O: report: samples, commitment", (("holder", _H.REPORTED), ("visit", _V.REPORTED))),
    Step("O->>P: route the GPU back"),
    Step("O->>G: fence: the visit's key is dead", (("region", _R.FENCED), ("visit", _V.FENCED))),
    Step("O->>G: program again; read back code, model, control", (("visit", _V.VERIFIED),)),
    Step("O->>G: train", (("region", _R.TRAIN),)),
    Step("G->>O: losses", (("region", _R.TRAINED), ("training", _T.TRAINED))),
    Step("O->>O: accept or roll back", (("training", _T.VALIDATED),)),
    Step("O->>G: scrub", (("region", _R.SCRUBBED),)),
    Step("G->>O: read-back and signed statement", (("training", _T.SCRUBBED),)),
    Step("O->>H: receipt, a leaf of the log", (("training", _T.CLOSED), ("holder", _H.RECEIVED))),
)  # fmt: skip


def whole(machine: Machine[Any, Any]) -> str:
    """Every move of a table as a state diagram."""
    rows = [f"    [*] --> {machine.initial.value}"]
    rows += [f"    {p.value} --> {m.to.value}: {f.value} ({m.actor.value})" for (p, f), m in machine.moves.items()]
    rows += [f"    {phase.value} --> [*]" for phase in sorted(machine.phases()) if machine.final(phase)]
    return _fenced("stateDiagram-v2", rows)


def outline(machine: Machine[Any, Any]) -> str:
    """The table's phases and who may lead from one to which: what stays in a phase is left out, moves between the same two are one."""
    ways: dict[tuple[str, str], list[str]] = {}
    for (phase, fact), move in machine.moves.items():
        if move.to is not phase:
            ways.setdefault((phase.value, move.to.value), []).append(fact.value)
    rows = [f"    [*] --> {machine.initial.value}"]
    rows += [f"    {begin} --> {end}: {', '.join(facts)}" for (begin, end), facts in ways.items()]
    rows += [f"    {phase.value} --> [*]" for phase in sorted(machine.phases()) if machine.final(phase)]
    return _fenced("stateDiagram-v2", rows)


def sequence(steps: tuple[Step, ...] = VISIT_STEPS) -> str:
    """One undisturbed visit. Raises: ProtocolViolation: a table does not allow a step. ValueError: a machine has not ended."""
    rows = [f"    participant {short} as {name}" for short, name in WHO.items()]
    rows += [f"    Note over {side}: {name} {machine.initial.value}" for name, machine, side in SHOWN]
    phases: dict[str, Any] = {name: machine.initial for name, machine, _ in SHOWN}
    for step in steps:
        rows.append(f"    {step.message}")
        rows += _moved(step, phases)
    open_ = [
        name for name, machine, _ in SHOWN if not machine.final(phases[name]) and phases[name] is not REGION.initial
    ]
    if open_:
        raise ValueError(f"the visit ends before these do: {open_}")
    return _fenced("sequenceDiagram\n    autonumber", rows)


def _moved(step: Step, phases: dict[str, Any]) -> Iterator[str]:
    machines = {name: (machine, side) for name, machine, side in SHOWN}
    for name, fact in step.facts:
        machine, side = machines[name]
        actor = machine.moves[phases[name], fact].actor if (phases[name], fact) in machine.moves else None
        before, phases[name] = phases[name], machine.after(phases[name], fact, actor)
        if phases[name] is not before:
            yield f"    Note over {side}: {name} {phases[name].value}"


def _fenced(kind: str, rows: list[str]) -> str:
    return "```mermaid\n" + "\n".join([kind, *rows]) + "\n```\n"
