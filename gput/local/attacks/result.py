"""What an attack of the tour came to, as values. Knows no service and no terminal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Said:
    """What a service really answered, logged or recorded: which part of the system, its stable code, its message."""

    component: str
    code: str
    message: str


@dataclass(frozen=True)
class Fact:
    """One thing looked at from outside afterwards, and whether it is as it must be."""

    says: str
    holds: bool


@dataclass(frozen=True)
class Result:
    """`attempt`: what was done, with its figures; `verdict`: one or two words; `said`: what stopped it; `after`: how things stand."""

    attempt: str
    verdict: str
    said: tuple[Said, ...]
    after: tuple[Fact, ...]
    note: str

    @property
    def as_expected(self) -> bool:
        """Whether everything looked at is as it must be."""
        return all(fact.holds for fact in self.after)
