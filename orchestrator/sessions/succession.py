"""What another session can go on with: where an ended one came to rest, and whose records are in its model. Decides on folded state alone.

A checkpoint is gone on with, because only there the optimiser's state and the step lie beside the model. Knows no storage and no GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from orchestrator.sessions.remembered import Checkpoint
from orchestrator.sessions.sealed_models import to_release
from orchestrator.sessions.state import SessionState
from shared.claims.faults import Finding
from shared.claims.layout import require_named
from shared.claims.manifest import Contributor, Predecessor
from shared.claims.succession import barred
from shared.errors import Conflict

ROLLED_BACK = ("log-rolled-back", "log-split-view")
"""Failures that say: this log is not the one that some holder remembers. Nothing goes on from there."""
AS_READ = "Take `predecessor` as `gput session succeed` reads it off."


@dataclass(frozen=True)
class Rest:
    """Where an ended session came to rest: the checkpoint to go on with, and what a manifest must say of it."""

    checkpoint: Checkpoint
    says: Predecessor


def at_rest(state: SessionState, log_size: int, sealed: Callable[[Checkpoint], bool]) -> Rest:
    """What a successor of this session goes on with.

    Args:
        log_size: leaves under the newest head that was signed.
        sealed: whether a checkpoint's file is still there.

    Raises:
        Conflict: `predecessor-not-ended`, `predecessor-without-model`, `predecessor-untrusted`; `unsupported-feature`,
            `continuation-refused`: what its manifest says lets no session go on with it.
    """
    _require_ended(state)
    for finding in barred(state.manifest):
        raise Conflict(f"{state.id}: {finding.reason}", code=finding.code, remedy=finding.remedy)
    checkpoint = _to_go_on_with(state, sealed)
    if checkpoint is None or not log_size:
        raise Conflict(
            f"{state.id} left no sealed checkpoint of a trained model", code="predecessor-without-model",
            remedy="Begin a new session. Where everybody may be needed to go on, pause before you cancel: a pause seals one.",
        )  # fmt: skip
    says = Predecessor(
        session=state.id, manifest=state.manifest_digest, model=checkpoint.state.model,
        optimiser=require_named(checkpoint.state.optimiser), step=checkpoint.state.step, log_size=log_size,
        log_root=state.tree.root(log_size).hex(), contributors=contributors(state, checkpoint.position),
    )  # fmt: skip
    return Rest(checkpoint, says)


def _require_ended(state: SessionState) -> None:
    if not state.ended:
        raise Conflict(
            f"{state.id} is {state.phase.value}: two sessions would go on with one model", code="predecessor-not-ended",
            remedy=f"End it first: `gput session pause {state.id}`, which seals its model, then `gput session cancel {state.id}`.",
        )  # fmt: skip
    if state.failure is not None and state.failure["code"] in ROLLED_BACK:
        raise Conflict(
            f"{state.id} ended because a holder remembers another log than this one", code="predecessor-untrusted",
            remedy="Begin a new session.",
        )  # fmt: skip


def _to_go_on_with(state: SessionState, sealed: Callable[[Checkpoint], bool]) -> Checkpoint | None:
    """The newest; of a finished session the one with the released model. None in mid-tour: what a tour has added up is nobody's step."""
    kept = [*state.checkpoints, *to_release(state)]
    released = None if state.exported is None else state.exported["digest"]
    usable = [
        one for one in kept if one.state.step and not one.state.batches and released in (None, one.state.model) and sealed(one)
    ]  # fmt: skip
    return max(usable, key=lambda one: one.state.step, default=None)


def contributors(state: SessionState, position: int) -> tuple[Contributor, ...]:
    """Everybody whose records may be in a model after `position` stops, by name: who had a visit accepted, and who is in the model
    that the session itself went on with."""
    before = state.manifest.predecessor
    behind = state.itinerary.records_behind(position)
    found = {} if before is None else {one.holder: one for one in before.contributors}
    for entry in state.manifest.roster:
        if state.records_done.get(entry.holder):
            found[entry.holder] = Contributor(holder=entry.holder, key=entry.key, records=behind[entry.holder])
        elif entry.holder in found:  # its stops lie behind, though none of them was accepted
            found[entry.holder] = found[entry.holder].model_copy(update={"records": behind[entry.holder]})
    return tuple(found[name] for name in sorted(found))


def mismatches(said: Predecessor, found: Predecessor) -> Iterator[Finding]:
    """Where a manifest says something else of its predecessor than is so."""
    for field in Predecessor.model_fields:
        if getattr(said, field) != getattr(found, field):
            yield Finding(
                f"predecessor.{field}", f"{said.session} came to rest otherwise", AS_READ, "predecessor-mismatch"
            )
