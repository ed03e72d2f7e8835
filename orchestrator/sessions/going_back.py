"""What a session was judged by when a checkpoint was made, and what goes back with its model. Decides nothing; knows no storage.

What is repeated after a restore must be judged as it was the first time: else the finished model would depend on who was reset when.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from orchestrator.sessions.remembered import Checkpoint
    from orchestrator.sessions.state import SessionState


@dataclass(frozen=True)
class Behind:
    """What lay behind a sealed model. The default: behind the first one."""

    checked_at: int = 0
    unchecked: bool = False
    updates: dict[int, float] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    quarantined: tuple[str, ...] = ()
    records_done: dict[str, int] = field(default_factory=dict)

    def __deepcopy__(self, memo: object) -> Self:
        return self  # nothing in it ever changes


def noted(state: SessionState, checkpoint: str) -> None:
    """Keep what lies behind the model that was just sealed, as long as it may be gone back to."""
    # Also the one sealed last before it where that counts no more: journals of before went back to it, too, if its file was found again.
    names = {*(made.name for made in state.checkpoints), *list(state.behind)[-1:]}
    kept = {name: behind for name, behind in state.behind.items() if name in names}
    state.behind = {**kept, checkpoint: _behind(state)}


def farthest(state: SessionState) -> Checkpoint:
    """The checkpoint that a restore goes back to at most: the one with the fewest stops behind it."""
    return min(state.checkpoints, key=lambda made: made.position)


def gone_back_to(state: SessionState, checkpoint: str | None) -> None:
    """The session stands where the checkpoint was made; None: at its first model. Those that were made since are passed over for good:
    they were damaged or gone, and count for nothing that is kept because it may be gone back to."""
    behind = Behind() if checkpoint is None else state.behind[checkpoint]
    names = [made.name for made in state.checkpoints]
    if checkpoint is None or checkpoint in names:
        state.checkpoints = [] if checkpoint is None else state.checkpoints[: names.index(checkpoint) + 1]
    state.checked_at, state.unchecked = behind.checked_at, behind.unchecked
    state.updates, state.rejected = dict(behind.updates), dict(behind.rejected)
    state.records_done = dict(behind.records_done)
    # Whoever broke the GPU's integrity did so whatever the model was.
    state.quarantined = [name for name in state.quarantined if name in behind.quarantined or name in state.distrusted]
    state.compared = None


def _behind(state: SessionState) -> Behind:
    return Behind(
        checked_at=state.checked_at, unchecked=state.unchecked, updates=dict(state.updates), rejected=dict(state.rejected),
        quarantined=tuple(state.quarantined), records_done=dict(state.records_done),
    )  # fmt: skip
