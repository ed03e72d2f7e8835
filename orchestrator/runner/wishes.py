"""What owners ask of a running session, and what it waits for: read by its runner between visits. Knows no storage.

An owner's wish is a fact of the journal before it is accepted (`pause_asked`, `cancel_asked`), so a crash between the acceptance and the
end of the visit forgets nothing: the next runner begins with what the journal still holds. Stopping is the process's own and is not kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.sessions.state import SessionState
from shared.service.changes import Changes


@dataclass
class Wishes:
    """Of one session. `changed` wakes the runner."""

    changed: Changes
    pause: bool = False
    cancel: bool = False
    stop: bool = False
    by: str = ""
    waiting_for: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, state: SessionState, changed: Changes) -> Wishes:
        """What the journal says was asked and has not come true yet."""
        return cls(changed, pause=state.pause_asked, cancel=state.cancel_asked, by=state.asked_by)

    def recall(self, state: SessionState) -> None:
        """Take up what the journal says was asked, though nobody could be told that it was written down."""
        self.pause, self.cancel = self.pause or state.pause_asked, self.cancel or state.cancel_asked
        self.by = self.by or state.asked_by

    @property
    def any(self) -> bool:
        """Whether the runner should leave its round of visits."""
        return self.pause or self.cancel or self.stop

    def idle(self, confirmed: bool) -> bool:
        """Whether somebody wishes what needs no life. Once the holders' heads are `confirmed` a pause is none of it: it promises a
        checkpoint."""
        return self.cancel or self.stop or (self.pause and not confirmed)

    def wish(self, name: str, by: str) -> None:
        """Remember one of pause, cancel, stop. `by`: whose wish; empty for the process's own, which takes no owner's name away."""
        setattr(self, name, True)
        self.by = by or self.by
        self.changed.notify()
