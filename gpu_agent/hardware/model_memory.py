"""The model in HBM: working copy, last committed copy, optimiser state, and the table of what may be done with them.

Knows regions' extents and plans; no holder, no key, no tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from gpu_agent.hardware.allotment import Allotment
from gpu_agent.hardware.hbm import HBM, Extent
from gpu_agent.hardware.read_back import KEY_BYTES, Copy, Digests, ReadBack, Seal
from shared.claims.layout import MemoryPlan
from shared.crypto.secret import Secret
from shared.errors import ProtocolViolation, VerificationFailed
from shared.names import RegionKind, Role
from shared.protocol.machine import Machine, Move
from shared.protocol.travel import TRAVEL
from shared.wire.gpu import Configure


class ModelPhase(StrEnum):
    """Whether the working copy is the committed one."""

    EMPTY = "EMPTY"
    COMMITTED = "COMMITTED"
    TRAINING = "TRAINING"
    TRAINED = "TRAINED"
    BROKEN = "BROKEN"


class ModelFact(StrEnum):
    """What can happen to the working copy."""

    COMMIT = "commit"
    TRAIN = "train"
    TRAINED = "trained"
    FAILED = "failed"
    ROLL_BACK = "roll_back"
    RESTORED = "restored"


class ModelMemory:
    """Moves bytes between the working and the committed copy, and knows what each of them held when it last changed hands.

    Args:
        entropy: where the device's key for reading back comes from.
        names_optimiser: whether each commit says the digest of the optimiser's state; else `named` does, when it is asked.
        mends: whether a committed copy that has changed may be made again from the working one. Not where a key commands all of memory:
            there it is somebody's doing, and whoever leads the session is to hear of it.
    """

    def __init__(
        self,
        hbm: HBM,
        plan: MemoryPlan,
        entropy: Callable[[int], bytes],
        allotment: Allotment,
        *,
        names_optimiser: bool,
        mends: bool,
    ) -> None:
        self._hbm, self.plan = hbm, plan
        self._memory = ReadBack(hbm, plan, Secret(entropy(KEY_BYTES)))
        self.model, self.optimiser = allotment.extent(RegionKind.MODEL), allotment.extent(RegionKind.OPTIMISER)
        self.gradients = allotment.extent(RegionKind.GRADIENTS)
        self._working = Copy(self.model.address, self.optimiser.address)
        self._kept = self._copy_at(allotment.extent(RegionKind.COMMITTED))
        self._spare = None if allotment.spare is None else self._copy_at(allotment.spare)
        self._names_optimiser, self._mends = names_optimiser, mends
        self._committed: Seal | None = None
        self._trained: Seal | None = None
        self._ahead = False  # the spare place holds what was not committed, perhaps
        self.phase = MODEL.initial
        self.step = 0

    @property
    def committed(self) -> Digests | None:
        """What was committed last."""
        return None if self._committed is None else self._committed.digests

    @property
    def committed_copy(self) -> Extent:
        """Where the committed copy lies: with each commit in the other of two places, where there are two."""
        return Extent(self._kept.model, self.committed_bytes)

    @property
    def committed_bytes(self) -> int:
        """Bytes of committed model ‖ optimiser."""
        return self.plan.model.length + self.plan.optimiser.length

    def state(self, fact: ModelFact, actor: Role = Role.ORCHESTRATOR) -> None:
        """Move along the table.

        Raises:
            ProtocolViolation: out of order; nothing changed.
        """
        self.phase, self._trained = MODEL.after(self.phase, fact, actor), None

    def digests(self) -> Digests:
        """Of the working copy, as it lies in memory now."""
        return self._memory.against(self._committed, self._working, self.step)

    def committed_copy_digests(self) -> Digests:
        """Of the committed copy, as it lies in memory now."""
        return self._memory.against(self._committed, self._kept, self.step)

    def require_committed(self) -> Digests:
        """Raises: ProtocolViolation: nothing was committed yet."""
        if self._committed is None:
            raise ProtocolViolation("the GPU holds no committed model", code="no-model")
        return self._committed.digests

    def named(self) -> Digests:
        """As `require_committed`, the optimiser's digest with it: worked out now, if it was not yet.

        Raises:
            ProtocolViolation: as there. VerificationFailed: the committed copy is not what was committed.
        """
        known = self.require_committed()
        if known.optimiser is None and self._committed is not None:
            known = replace(known, optimiser=self._memory.optimiser(self._kept))
            self.require_kept()  # what was hashed is what was sealed
            self._committed = replace(self._committed, digests=known)
        return known

    def require_kept(self) -> None:
        """Raises: VerificationFailed: the committed copy is not what was committed. ProtocolViolation: nothing was."""
        if self.committed_copy_digests().version != self.require_committed().version:
            raise VerificationFailed("the committed copy in GPU memory has changed", code="committed-copy-changed")

    def mend_kept(self) -> None:
        """Before the committed copy is read: where it has changed, and the working copy still is what was committed in every byte of it, it
        is made from that again, so that a bit that flips in one costs no session (law L8). Never behind a reading: what was read stays
        what it was, and only `require_kept` can tell.

        Raises:
            As `require_kept`.
        """
        if self._memory.reads_as(self._committed, self._kept):
            return
        at_rest = self._mends and self.phase is ModelPhase.COMMITTED
        if at_rest and self._memory.reads_as(self._committed, self._working):
            self._hbm.copy(self._memory.moves(self._working, self._kept))
        self.require_kept()

    def scrub_gaps(self) -> None:
        """Zero, with read-back, what of both copies belongs to no tensor: a digest of what is there does not see it, and a copy or a
        roll-back would carry it along.

        Raises:
            VerificationFailed `scrub-failed`.
        """
        self._hbm.scrub_all([*self._memory.gaps(self._working), *self._memory.gaps(self._kept)])

    @property
    def has_work_ahead(self) -> bool:
        """Whether `look_ahead` would do anything."""
        return self.phase is ModelPhase.TRAINED and self._trained is None and self._hbm.copies_ahead

    def look_ahead(self) -> None:
        """What a commit will need of what was just trained, before it is asked for: its copy in the spare place, with digests and tags of
        that. Where there is no such place, digests of the working copy, so that the commit reads its copy back by tag.

        Until the commit the last committed copy stays as it is, for a roll-back; as soon as a commit is answered, what it committed lies in
        two places, so that a bit that flips in one costs no session (law L8).
        """
        if self.has_work_ahead:
            if self._spare is None:
                self._trained = self._memory.seal(self._working, self._digests(self._working))
            else:
                self._ahead = True
                self._trained = self._duplicate(self._spare)

    def commit(self) -> Digests:
        """Make the working copy the committed one: as it was when it was looked at, where that was copied then."""
        trained, first = self._trained, self.phase is ModelPhase.EMPTY
        self.state(ModelFact.COMMIT)
        if first:  # whatever was uploaded between the tensors; from here on it stays zero, or a sweep makes it so
            self._hbm.scrub_all(self._memory.gaps(self._working))
        if trained is not None and self._spare is not None:
            self._kept, self._spare, self._ahead = self._spare, self._kept, False
        elif trained is None or not self._copied_as(trained):
            trained = self._duplicate(self._kept, first=first)
        self._committed = trained
        self.forget_ahead()
        return trained.digests

    def forget_ahead(self) -> None:
        """Erase what was copied ahead of a commit that does not come: it learnt from records of a visit that counts for nothing (law L7).

        Raises:
            VerificationFailed `scrub-failed`.
        """
        if self._ahead and self._spare is not None:
            self._hbm.scrub(self._spare.model, self.committed_bytes)
        self._ahead, self._trained = False, None

    def _digests(self, copy: Copy) -> Digests:
        """Of what is to be committed."""
        return self._memory.digests(copy, self.step, optimiser=self._names_optimiser)

    def _duplicate(self, copy: Copy, *, first: bool = False) -> Seal:
        """Another copy of what is to be committed."""
        return self._memory.duplicate(self._working, copy, self.step, optimiser=first or self._names_optimiser)

    def _copied_as(self, trained: Seal) -> bool:
        """Copy it to the one place that there is; whether it reads there as it did when it was looked at."""
        self._hbm.copy(self._memory.moves(self._working, self._kept))
        return self._memory.reads_as(trained, self._kept)

    def roll_back(self) -> Digests:
        """Put the working copy back to the committed one, bit for bit (law L8).

        Raises:
            ProtocolViolation: nothing committed. VerificationFailed: the committed copy is not what was committed.
        """
        known = self.require_committed()
        after = MODEL.after(self.phase, ModelFact.ROLL_BACK, Role.ORCHESTRATOR)
        self.mend_kept()
        self._hbm.copy(self._memory.moves(self._kept, self._working))
        self.phase, self.step = after, known.step
        self.forget_ahead()
        return self.digests()

    def write_committed(self, offset: int, data: bytes) -> None:
        """Part of a checkpoint into the committed copy; until `accept_restored` nothing counts as committed."""
        self._committed = None
        self._hbm.write(self.committed_copy.address + offset, data)

    def accept_restored(self, model: str, optimiser: str, step: int) -> Digests:
        """Take the restored committed copy if it has these digests.

        Raises:
            VerificationFailed.
        """
        self._hbm.scrub_all(self._memory.gaps(self._kept))  # whatever an older copy carried along
        found = self._memory.digests(self._kept, step)
        if (found.model, found.optimiser) != (model, optimiser):
            raise VerificationFailed(
                "the restored checkpoint has another digest", code="checkpoint-digest-mismatch",
                expected=model, got=found.model,
            )  # fmt: skip
        self.state(ModelFact.RESTORED)
        self._committed = self._memory.seal(self._kept, found)
        return self.roll_back()

    def read_committed(self, offset: int, length: int) -> memoryview:
        """Bytes of committed model ‖ optimiser."""
        self.require_committed()
        if offset + length > self.committed_bytes:
            raise ProtocolViolation(f"the committed copy has {self.committed_bytes} bytes", code="out-of-range")
        return self._hbm.view(self.committed_copy.address + offset, length)

    def _copy_at(self, extent: Extent) -> Copy:
        return Copy(extent.address, extent.address + self.plan.model.length)


def names_optimiser(command: Configure) -> bool:
    """Whether the digest of the optimiser's state is needed after every visit.

    Receipts of accumulated gradients state it, noise is drawn from it, and where a key commands all of memory the orchestrator knows it
    before that key is given away.
    """
    return command.accumulate is not None or command.privacy is not None or TRAVEL[command.travel_mode].whole_gpu


_P, _F = ModelPhase, ModelFact
_O, _G = Role.ORCHESTRATOR, Role.GPU

TRANSITIONS = {
    (_P.EMPTY, _F.COMMIT): Move(_O, _P.COMMITTED),
    (_P.EMPTY, _F.RESTORED): Move(_O, _P.COMMITTED),
    (_P.COMMITTED, _F.RESTORED): Move(_O, _P.COMMITTED),
    (_P.TRAINED, _F.RESTORED): Move(_O, _P.COMMITTED),
    (_P.BROKEN, _F.RESTORED): Move(_O, _P.COMMITTED),
    # Only a committed model trains: two visits' updates never mix without a commit between them.
    (_P.COMMITTED, _F.TRAIN): Move(_O, _P.TRAINING),
    (_P.TRAINING, _F.TRAINED): Move(_G, _P.TRAINED),
    (_P.TRAINING, _F.FAILED): Move(_G, _P.BROKEN),
    (_P.TRAINED, _F.COMMIT): Move(_O, _P.COMMITTED),
    (_P.TRAINED, _F.ROLL_BACK): Move(_O, _P.COMMITTED),
    (_P.BROKEN, _F.ROLL_BACK): Move(_O, _P.COMMITTED),
    (_P.COMMITTED, _F.ROLL_BACK): Move(_O, _P.COMMITTED),
}
MODEL = Machine("model", _P.EMPTY, TRANSITIONS)
