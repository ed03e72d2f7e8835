"""Of one manifest the policy approves one session at a time; another one beside it is for a person. Knows no rule of the policy.

An owner's signature is over the manifest and says nothing of a session, so that one captured manifest counts under any number of made-up
ids: each would be approved, its data read and hashed for it, and what was kept of it never go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from data_holder.identity import OwnKeys
from data_holder.ledger import Ledger
from data_holder.protocol.state import SessionState
from data_holder.requests import verify_decision
from data_holder.rule_finding import RuleFinding
from shared.errors import VerificationFailed

MANIFEST_AGAIN: Final = "manifest-again"


class OnceAtATime:
    """Which sessions of a manifest go on or are just being approved, and which wait behind one of them. `keys`: this holder's."""

    def __init__(self, keys: Callable[[], OwnKeys], ledger: Ledger) -> None:
        self._keys, self._ledger = keys, ledger
        self._approving: dict[bytes, str] = {}
        self._behind: dict[str, str] = {}

    def other(self, session: str) -> str | None:
        """Another session of the same manifest that was approved, or is just being by the policy, and has not ended.

        Raises:
            VerificationFailed: a stored decision is not this holder's.
        """
        manifest = self._ledger.state(session).manifest
        others = (state for state in self._ledger.states() if state.session != session and state.manifest == manifest)
        return next((state.session for state in others if self._goes_on(state)), None)

    def found(self, session: str) -> list[RuleFinding]:
        """What is to be said of it while nobody has decided it: of now, since the other one may begin or end at any time."""
        state = self._ledger.find(session)
        if state is None or state.decision is not None or state.ended is not None:
            return []
        try:
            other = self.other(session)
        except VerificationFailed as error:
            return [_beside(f"not known ({error.code})")]
        return [] if other is None else [_beside(f"session {other} goes on")]

    @contextmanager
    def approving(self, session: str) -> Iterator[None]:
        """While the policy approves it, which may take hours: it counts as approved. Only where there is no `other`."""
        manifest = self._ledger.state(session).manifest
        self._approving[manifest] = session
        try:
            yield
        finally:
            if (
                self._approving.get(manifest) == session
            ):  # by now it may be the next one's: this one has ended meanwhile
                del self._approving[manifest]

    def put_behind(self, session: str, other: str) -> None:
        """The policy looks at it again once the other one has ended, unless somebody decides before."""
        self._behind[session] = other

    def not_behind(self, waiting: Iterable[str]) -> list[str]:
        """Those of all that wait for a decision that were put behind none, or behind one that goes on no more."""
        open_ones = list(waiting)
        in_front = self.in_front()
        known = set(open_ones)
        self._behind = {one: other for one, other in self._behind.items() if one in known and other in in_front}
        return [one for one in open_ones if one not in self._behind]

    def in_front(self) -> set[str]:
        """Those that go on and that another one was put behind."""
        return {other for other in self._behind.values() if self._is_in_front(other)}

    def _is_in_front(self, other: str) -> bool:
        state = self._ledger.find(other)
        return state is not None and self._goes_on(state)

    def _goes_on(self, state: SessionState) -> bool:
        if state.ended is not None:
            return False
        said = verify_decision(state, self._keys())
        return self._approving.get(state.manifest) == state.session or (said is not None and said.decision == "approve")


def _beside(got: str) -> RuleFinding:
    expected = "no other session of this very manifest that was approved and has not ended"
    return RuleFinding(MANIFEST_AGAIN, ok=False, expected=expected, got=got)
