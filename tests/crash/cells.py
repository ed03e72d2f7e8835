"""The crash matrix as a list: every step of the tables and every message of a session, by who dies and at which moment. Pure.

A step is a fact of a table; dying just before or just after its commit are two cells. What a step does before its fact is committed are
messages and GPU commands: dying before one leaves and after its peer has acted are two more, for whoever sends it and for whoever answers
it. A new fact, holder's kind or GPU command has its cells without a word here; where no undisturbed session comes to
it, its cells fail until `WAYS` says what does, or `NOT_HERE` why nothing may.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal, get_args

from data_holder.protocol import state as holder_state
from data_holder.protocol.visit import HOLDER_VISIT
from orchestrator.sessions.facts import CLAIMED
from shared.names import TravelMode
from shared.protocol.machine import Machine
from shared.protocol.session import SESSION
from shared.protocol.training import TRAINING
from shared.protocol.visit import VISIT
from shared.wire import gpu
from tests.laws.acts import COMMANDS, PLACES, Act, Crash, Say, Visits
from tests.world.world_faults import Moment

ORCH, AGENT, PLATFORM, CITY, DATABASE = "orchestrator", "agent", "platform", "holder-city", "database"
KINDS = (
    holder_state.REQUEST,
    holder_state.DECISION,
    holder_state.CHANNEL,
    holder_state.HEAD,
    holder_state.RECEIPT,
    holder_state.RELEASED,
    holder_state.ENDED,
)
"""What a holder's journal tells besides its table."""


@dataclass(frozen=True)
class Way:
    """What brings a session to a step: another travel mode, tours (of which kind), an early end with an earlier model's release, acts
    beforehand, acts once it runs, the power of its GPU lost at a message."""

    mode: TravelMode = TravelMode.SCOPED
    tours: Literal["", "accumulate", "collect"] = ""
    early: bool = False
    first: tuple[Act, ...] = ()
    then: tuple[Act, ...] = ()
    power_lost_at: str = ""


@dataclass(frozen=True)
class Cell:
    """`victim` dies at `step` of `actor`: before or after its commit (`commit`), before it leaves or after its answer (`message`).

    `refill`: not on the session's way there, but when a GPU that was wiped in mid-session is filled again. `collect`: in a session whose
    tours are collected.
    """

    victim: str
    kind: Literal["commit", "message"]
    actor: str
    step: str
    moment: Moment
    refill: bool = False
    collect: bool = False

    def __str__(self) -> str:
        kind = "-refill" if self.refill else "-collected" if self.collect else ""
        more = kind or ("" if self.actor == ORCH else f"-{self.actor}")
        return f"{self.victim}-{self.moment}-{self.kind}-{self.step}{more}"


DIRECT, PAPER = Way(mode=TravelMode.DIRECT), Way(mode=TravelMode.PAPER)
TOURS, COLLECTED = Way(tours="accumulate"), Way(tours="collect")
EARLY = Way(early=True)
AWAY = Way(first=(Crash(ORCH, "copy", 2, "before"),))
PAUSED = Way(then=(Visits(1), Say("pause")))
WIPED = Way(power_lost_at="Commit")
WAYS: Mapping[str, Way] = {
    "session.pause_asked": PAUSED, "session.paused": PAUSED, "session.resumed": PAUSED,
    "session.restored": WIPED, "visit.recalled": AWAY, "training.recalled": Way(first=(Crash(ORCH, "commit", 2, "before"),)),
    "training.lost": Way(power_lost_at="Train"), "visit.lost": Way(power_lost_at="InstallGrant"),
    # The first visit's holder is the city. With its report taken the orchestrator that comes back offers anew; the city that comes back
    # before anything was copied has no key for its visit any more.
    "holder.superseded": Way(first=(Crash(ORCH, "report", 1, "after"),)),
    "holder.abandoned": Way(first=(Crash(CITY, "copy", 1, "before"),)),
    "session.stopped_early": EARLY, "session.best_chosen": EARLY, "session.best_restored": EARLY,
    "session.tour_judged": TOURS, "session.tour_ended": TOURS, "EndTour": TOURS, "TrainTour": COLLECTED,
    "DrawShare": DIRECT, "Fetch": DIRECT, "Sweep": PAPER, "Restore": WIPED,
}  # fmt: skip
"""Steps that an undisturbed session does not take, and what leads to them. The model at the end must be that of an
undisturbed session all the same: of one with tours, where there are any, and of one that ends early, where it does."""

COLLECT_COMMANDS = (
    "OpenEpoch",
    "InstallGrant",
    "Measure",
    "TrainTour",
    "Evaluate",
    "Commit",
    "Scrub",
    "CloseVisit",
    "Checkpoint",
)
"""Commands that mean something else where visits wait for their tour's training; with the facts of a visit and of its training, these have
cells in a session of collected tours, too."""
COLLECT_WAYS: Mapping[str, Way] = {
    "visit.recalled": replace(COLLECTED, first=(Crash(ORCH, "copy", 2, "before"),)),
    "training.recalled": replace(COLLECTED, first=(Crash(ORCH, "commit", 2, "before"),)),
    "training.lost": replace(COLLECTED, power_lost_at="TrainTour"),
    "visit.lost": replace(COLLECTED, power_lost_at="InstallGrant"),
}

REFILL = (
    CLAIMED,
    "session.life_opened",
    "session.placed",
    "OpenLife",
    "InitSession",
    "UploadProgram",
    "Configure",
    "SetReady",
)
"""Steps that are taken a second time when a GPU is filled again; no restart goes back over them."""

_ENDS = "it ends the session or changes whose data the model has seen: there is no undisturbed model to come to"
_ELSEWHERE = "it takes another CVM, which no schedule here moves to: tests/world/test_world_recovery.py dies at it"
_BLAME = "a fault that is somebody's: what follows is no repeat, so the model is another"
NOT_HERE: Mapping[str, str] = {
    "session.refused": _ENDS, "session.vetoed": _ENDS, "session.head_contradicted": _ENDS, "session.failed": _ENDS,
    "session.cancel_asked": _ENDS, "session.cancelled": _ENDS, "holder.refused": _ENDS,
    "session.key_recovered": _ELSEWHERE, "holder.share_released": _ELSEWHERE,
    "session.last_checked": "only where the last visit is not kept, or skipped: tests/world/test_world_last_check.py dies at it",
    "session.unplaced": "half a checkpoint in the GPU, or memory that `paper` broke: tests/world/test_world_uncounted_ends.py dies at it",
    "session.checkpoints_gone": "committed with the `checkpointed` behind it: a file that somebody takes away, which no schedule here does",
    "session.tour_failed": "a fault of the GPU's own, which no schedule here makes: tests/world/test_world_tours.py dies at it",
    "visit.quarantined": _BLAME, "training.quarantined": _BLAME, "training.rejected": _BLAME, "RollBack": _BLAME,
    "training.loaded": "no row of its own: a verified visit is a loaded phase",
    "Status": "a question that changes nothing, and that no orchestrator asks in a session",
}  # fmt: skip
"""Steps that are in no cell, and why. Schedules of tests/laws go through them with words, vetoes and attacks."""

TABLES: Mapping[str, Sequence[Machine[Any, Any]]] = {ORCH: (SESSION, VISIT, TRAINING), CITY: (HOLDER_VISIT,)}


def steps(tables: Mapping[str, Sequence[Machine[Any, Any]]] = TABLES) -> dict[str, list[str]]:
    """Every step by the process that commits it, as its journal names it; those of a holder begin with `holder`."""
    found: dict[str, list[str]] = {}
    for actor, machines in tables.items():
        # A fact that begins a machine is in no move: all of a vocabulary counts.
        kinds = dict.fromkeys((machine.name, type(fact)) for machine in machines for _, fact in machine.moves)
        pairs = ((machine, fact) for machine, kind in kinds for fact in kind)
        found[actor] = [_label(machine, fact) for machine, fact in pairs]
    found[ORCH].append(CLAIMED)
    found[CITY] += [f"holder.{kind}" for kind in KINDS]
    return found


def _label(machine: str, fact: StrEnum) -> str:
    """As the journal calls it (`training.closed`), by the first word of its machine's name."""
    return f"{machine.partition(' ')[0].removesuffix(chr(39) + 's')}.{fact.value}"


def commands() -> list[str]:
    """Every GPU command there is, by name."""
    return [kind.__name__ for kind in get_args(get_args(gpu.Command)[0])]


def messages() -> list[str]:
    """Every kind of message between services that is no GPU command."""
    return [place for place, (_, _, part, _, _) in PLACES.items() if part != COMMANDS]


def matrix(tables: Mapping[str, Sequence[Machine[Any, Any]]] = TABLES) -> list[Cell]:
    """Every cell."""
    return [cell for cell in _all(steps(tables)) if cell.step not in NOT_HERE]


def _all(by_actor: Mapping[str, Iterable[str]]) -> Iterator[Cell]:
    moments: tuple[Moment, ...] = get_args(Moment)
    for moment in moments:
        for actor, names in by_actor.items():
            for step in names:
                yield Cell(actor, "commit", actor, step, moment)
                if actor == ORCH:
                    yield Cell(DATABASE, "commit", actor, step, moment)
        for command in commands():
            for victim in (ORCH, AGENT):
                yield Cell(victim, "message", ORCH, command, moment)
        for step in REFILL:
            for victim in (ORCH,) if "." in step else (ORCH, AGENT):
                yield Cell(victim, "commit" if "." in step else "message", ORCH, step, moment, refill=True)
        for step in COLLECT_COMMANDS:
            for victim in (ORCH, AGENT):
                yield Cell(victim, "message", ORCH, step, moment, collect=True)
        for step in (one for one in by_actor[ORCH] if one.partition(".")[0] in ("visit", "training")):
            for victim in (ORCH, DATABASE):
                yield Cell(victim, "commit", ORCH, step, moment, collect=True)
        for place in messages():
            client, server, *_ = PLACES[place]
            for victim in dict.fromkeys((_process(client), server)):
                yield Cell(victim, "message", _process(client), place, moment)


def _process(client: str) -> str:
    return {"holder": CITY, "": CITY}.get(client, client)


QUICK = (
    Cell(ORCH, "commit", ORCH, "session.submitted", "before"),
    Cell(CITY, "commit", CITY, "holder.provisioned", "before"),
    Cell(AGENT, "message", ORCH, "Train", "after"),
)
"""What the quick tier runs: one death of each who keeps a journal or the model."""
