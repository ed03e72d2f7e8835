"""The journal's vocabulary: how a fact of one of the three tables becomes a journal row and back. Knows no storage.

A row's kind is `machine.fact`, for instance `visit.granted`; its body names who stated it (`by`). Besides the tables there is one
kind of its own, `gpu.claimed`: the life number that is about to be asked of the GPU, written down before the GPU hears of it.
A session outlives releases: whoever changes what a fact says adds to `VOCABULARY` how older ones are read.
"""

from __future__ import annotations

from typing import Any

from shared.errors import GputError
from shared.names import Role
from shared.protocol.session import SessionFact
from shared.protocol.training import TrainingFact
from shared.protocol.visit import VisitFact
from shared.service.journal import NewFact
from shared.service.vocabulary import Vocabulary

CLAIMED = "gpu.claimed"
TableFact = SessionFact | VisitFact | TrainingFact
_MACHINES: dict[type, str] = {SessionFact: "session", VisitFact: "visit", TrainingFact: "training"}


def kind_of(fact: TableFact) -> str:
    """The journal kind of a table's fact."""
    return f"{_MACHINES[type(fact)]}.{fact.value}"


VOCABULARY = Vocabulary(
    versions=dict.fromkeys([CLAIMED, *map(kind_of, (*SessionFact, *VisitFact, *TrainingFact))], 1)
    # 2: with the dataset's profile, in the signed document as well, which an older reader would take for a forged one.
    | {kind_of(SessionFact.APPROVED): 2},
    steps={(kind_of(SessionFact.APPROVED), 1): lambda body: {**body, "profile": None}},
    added={
        # Sessions submitted before weights could be given started from the program's own; and none had a predecessor.
        kind_of(SessionFact.SUBMITTED): {"start_model": None, "inherited": None},
        # Checkpoints made before it was written down how long they took.
        kind_of(SessionFact.CHECKPOINTED): {"seconds": None},
        # Visits planned before the next holder could load while the GPU trains.
        kind_of(VisitFact.PLANNED): {"ahead": False},
    },
)
"""Every kind there is."""


def new_fact(fact: TableFact, by: Role = Role.ORCHESTRATOR, **body: Any) -> NewFact:
    """A fact to be appended; `body` is JSON and holds no secret and no byte of anybody's record."""
    return NewFact(kind_of(fact), {"by": by.value, **body})


def failed(error: GputError) -> NewFact:
    """The session's end, by what a person reads of it."""
    return new_fact(
        SessionFact.FAILED,
        code=error.code,
        detail=error.detail,
        remedy=error.remedy,
        expected=error.expected,
        got=error.got,
    )


def claim(life: int, boot_counter: int) -> NewFact:
    """The intention to open `life`; `boot_counter` is the one that the GPU is expected to have then."""
    return NewFact(CLAIMED, {"life": life, "boot_counter": boot_counter})
