"""Attestation results: independent checks with a status each, and the rule by which they become accept or refuse. Knows no format.

A verifier examines evidence into an `Examination`; a policy names what may be other than passed; `require` is the only way from an
examination to belief. RFC 9334 section 8.4 (appraisal policy and results are apart from evidence).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from shared.errors import BadRequest, GputError, VerificationFailed

T = TypeVar("T")


class CheckStatus(enum.StrEnum):
    """What became of one check. "expired" is not "forged": genuine, but at the verifier's time no longer (or not yet) valid."""

    PASS = "pass"  # noqa: S105 - a verdict, no password
    FAIL = "fail"
    EXPIRED = "expired"
    NOT_CHECKED = "not-checked"


@dataclass(frozen=True)
class Check:
    """One independent statement about evidence.

    Attributes:
        name: stable, kebab-case, for instance "certificate-chain".
        code: stable machine-readable code of the failure ("" when passed), for instance "gpu-nonce".
        reason, expected, got, remedy: for people; never secret.
        indices: measurement blocks that differ (1-based, as in the report), when the check compares some.
    """

    name: str
    status: CheckStatus
    code: str = ""
    reason: str = ""
    expected: str = ""
    got: str = ""
    remedy: str = ""
    indices: tuple[int, ...] = ()


@dataclass(frozen=True)
class Examination:
    """All checks of one piece of evidence, in the order of the verifier's recipe. An empty one is never success."""

    checks: tuple[Check, ...]

    def __iter__(self) -> Iterator[Check]:
        return iter(self.checks)

    def find(self, name: str) -> Check:
        """The check of this name. Raises: KeyError."""
        return {check.name: check for check in self.checks}[name]

    def refused(self, tolerated: Iterable[tuple[str, CheckStatus]] = ()) -> Check | None:
        """The first check that is neither passed nor tolerated; None: everything the recipe names was passed or tolerated."""
        allowed = set(tolerated)
        return next(
            (c for c in self.checks if c.status is not CheckStatus.PASS and (c.name, c.status) not in allowed), None
        )

    def require(self, tolerated: Iterable[tuple[str, CheckStatus]] = ()) -> None:
        """Accept, or refuse with the first check that stands against it.

        Args:
            tolerated: pairs (check, status) that the policy accepts although not passed; "fail" can never be tolerated.

        Raises:
            VerificationFailed: with that check's code, expected and got; code `nothing-checked` when there is no check at all.
        """
        if not self.checks:
            raise VerificationFailed("nothing was checked", code="nothing-checked")
        wrong = self.refused(pair for pair in tolerated if pair[1] is not CheckStatus.FAIL)
        if wrong is not None:
            raise VerificationFailed(
                wrong.reason, code=wrong.code, expected=wrong.expected, got=wrong.got, remedy=wrong.remedy
            )


@dataclass
class Recipe:
    """Collects checks while evidence is examined. `with recipe.step(name):` passes unless the block raises `VerificationFailed`."""

    checks: list[Check] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """One check: passed when the block ends, failed (or expired, see `Expired`) when it raises; the examination goes on."""
        try:
            yield
        except Expired as error:
            self.checks.append(_of(name, CheckStatus.EXPIRED, error))
        except Absent as error:
            self.checks.append(_of(name, CheckStatus.NOT_CHECKED, error))
        except (VerificationFailed, BadRequest) as error:
            self.checks.append(_of(name, CheckStatus.FAIL, error))
        else:
            self.checks.append(Check(name, CheckStatus.PASS))

    def judge(
        self, name: str, act: Callable[..., T], *needs: object, says: Callable[[T], str] | None = None
    ) -> T | None:
        """One check: `act(*needs)`; "not checked" where one of them is None (it could not be read, or an earlier check refused it).

        Args:
            says: what to tell people of a passed check.

        Returns:
            What `act` returned; None when the check did not pass.
        """
        with self.step(name):
            if any(need is None for need in needs):
                raise Absent("what this check needs could not be read or believed", code="not-checked")
            found = act(*needs)
        if self.checks[-1].status is not CheckStatus.PASS:
            return None
        if says is not None:
            self.checks[-1] = replace(self.checks[-1], reason=says(found))
        return found

    def not_checked(self, name: str, code: str, reason: str, remedy: str = "") -> None:
        """A check that could not be made, for instance because an input was not given or an earlier one failed."""
        self.checks.append(Check(name, CheckStatus.NOT_CHECKED, code, reason, remedy=remedy))

    def passed(self, *names: str) -> bool:
        """Whether all of these were passed so far."""
        return {check.name for check in self.checks if check.status is CheckStatus.PASS} >= set(names)

    def done(self) -> Examination:
        """What was found."""
        return Examination(tuple(self.checks))


class Absent(VerificationFailed):
    """Something that a check needs is not there: it ends as "not checked", and only a policy can make that good."""


class Expired(VerificationFailed):
    """Genuine, but outside its time of validity at the verifier's time."""


class Mismatched(VerificationFailed):
    """Genuine, but measurement blocks differ from the reference values. `indices`: 1-based, ascending."""

    def __init__(
        self, detail: str, *, indices: tuple[int, ...], code: str, expected: str, got: str, remedy: str | None = None
    ) -> None:
        super().__init__(detail, code=code, expected=expected, got=got, remedy=remedy)
        self.indices = indices


def _of(name: str, status: CheckStatus, error: GputError) -> Check:
    indices = error.indices if isinstance(error, Mismatched) else ()
    said = (error.expected or "", error.got or "", error.remedy or "")
    return Check(name, status, error.code, error.detail, *said, indices)
