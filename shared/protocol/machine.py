"""A state machine is a table; this file only looks up. Knows no particular machine.

Two laws for whoever edits a table: every legal move is *in the table* (none lives in code), and the machine does not know which
side we are, so orchestrator, holder and GPU are judged alike. An illegal fact raises `ProtocolViolation` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from shared.errors import ProtocolViolation
from shared.names import Role

P = TypeVar("P", bound=StrEnum)
F = TypeVar("F", bound=StrEnum)


@dataclass(frozen=True)
class Move(Generic[P]):
    """Who may state the fact, and where it leads."""

    actor: Role
    to: P


@dataclass(frozen=True)
class Machine(Generic[P, F]):
    """A named table of moves with its initial phase; final phases are those without a way out."""

    name: str
    initial: P
    moves: Mapping[tuple[P, F], Move[P]]

    def after(self, phase: P, fact: F, actor: Role) -> P:
        """The phase after `fact` stated by `actor`.

        Raises:
            ProtocolViolation: the fact is not legal here, or not this actor's to state. Nothing changed.
        """
        move = self.moves.get((phase, fact))
        if move is None:
            legal = ", ".join(sorted(f.value for (p, f) in self.moves if p is phase)) or "nothing: it has ended"
            raise ProtocolViolation(
                f"{self.name} is {phase.value}: {fact.value!r} is out of order",
                code="out-of-order",
                expected=legal,
                got=fact.value,
            )
        if move.actor is not actor:
            raise ProtocolViolation(
                f"{self.name}: {fact.value!r} is the {move.actor.value}'s to state",
                code="wrong-actor", expected=move.actor.value, got=actor.value,
            )  # fmt: skip
        return move.to

    def final(self, phase: P) -> bool:
        """Whether no fact is legal any more."""
        return all(p is not phase for p, _ in self.moves)

    def phases(self) -> set[P]:
        """Every phase the table names."""
        return {self.initial} | {p for p, _ in self.moves} | {move.to for move in self.moves.values()}
