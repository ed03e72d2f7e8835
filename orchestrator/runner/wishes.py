"""What owners ask of a running session, and what it waits for: read by its runner between visits. Knows no storage.

A wish is volatile: it was accepted, and takes effect at the end of the visit under way; after a crash it must be asked again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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

    @property
    def any(self) -> bool:
        """Whether the runner should leave its round of visits."""
        return self.pause or self.cancel or self.stop

    def wish(self, name: str, by: str) -> None:
        """Remember one of pause, cancel, stop."""
        setattr(self, name, True)
        self.by = by
        self.changed.notify()
