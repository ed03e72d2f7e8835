"""The model in HBM: working copy, last committed copy, optimiser state, and the table of what may be done with them.

Knows regions' extents and plans; no holder, no key, no tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from gpu_agent.hardware.hbm import HBM, Extent
from shared.claims.layout import TOUR_BATCHES, MemoryPlan, RegionPlan, region_digest
from shared.crypto.secret import Secret
from shared.errors import ProtocolViolation, VerificationFailed
from shared.names import Role
from shared.protocol.machine import Machine, Move
from shared.wire.gpu_answers import Committed

KEY_BYTES: Final = 32


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


@dataclass(frozen=True)
class Digests:
    """Region digests (BLAKE3, hex) of model and optimiser, and the global step they stand at; `batches`: that the accumulator holds."""

    model: str
    optimiser: str
    step: int
    batches: int = 0

    def told(self) -> Committed:
        """As an answer."""
        return Committed(model=self.model, optimiser=self.optimiser, step=self.step, batches=self.batches)


@dataclass(frozen=True)
class _Seal:
    """What was committed, and how its bytes read under a key that never leaves the device. `number`: that of the commit."""

    digests: Digests
    number: int
    tags: tuple[bytes | None, bytes | None]


class ModelMemory:
    """Moves bytes between the working and the committed copy; every digest is read from HBM at the time of asking.

    BLAKE3 is for what is published, and is worked out where bytes are new. Bytes that should be those last committed are read back by
    GMAC, at the speed of memory; only where a tag differs are they hashed, to say what is there instead.

    Args:
        entropy: where that key comes from. It is the device's own, and lies in no memory that a holder can reach.
    """

    def __init__(
        self, hbm: HBM, plan: MemoryPlan, entropy: Callable[[int], bytes], *,
        model: Extent, optimiser: Extent, gradients: Extent, committed: Extent,
    ) -> None:  # fmt: skip
        self._hbm, self.plan, self._key = hbm, plan, Secret(entropy(KEY_BYTES))
        self._seal: _Seal | None = None
        self._commits = 0
        self.model, self.optimiser, self.gradients, self.committed_copy = model, optimiser, gradients, committed
        self.phase = MODEL.initial
        self.step = 0

    @property
    def committed(self) -> Digests | None:
        """What was committed last."""
        return None if self._seal is None else self._seal.digests

    @property
    def committed_bytes(self) -> int:
        """Bytes of committed model ‖ optimiser."""
        return self.plan.model.length + self.plan.optimiser.length

    def state(self, fact: ModelFact, actor: Role = Role.ORCHESTRATOR) -> None:
        """Move along the table.

        Raises:
            ProtocolViolation: out of order; nothing changed.
        """
        self.phase = MODEL.after(self.phase, fact, actor)

    def digests(self) -> Digests:
        """Of the working copy, as it lies in memory now."""
        return self._read_back(self.model.address, self.optimiser.address, self.step)

    def committed_copy_digests(self) -> Digests:
        """Of the committed copy, as it lies in memory now."""
        base = self.committed_copy.address
        return self._read_back(base, base + self.plan.model.length, self.step)

    def require_committed(self) -> Digests:
        """Raises: ProtocolViolation: nothing was committed yet."""
        if self._seal is None:
            raise ProtocolViolation("the GPU holds no committed model", code="no-model")
        return self._seal.digests

    def commit(self) -> Digests:
        """Make the working copy the committed one."""
        self.state(ModelFact.COMMIT)
        for source, target in self._pairs():
            self._hbm.copy(target.address, source.address, source.length)
        return self._sealed(self._committed_digests(self.step))

    def roll_back(self) -> Digests:
        """Put the working copy back to the committed one, bit for bit (law L8).

        Raises:
            ProtocolViolation: nothing committed. VerificationFailed: the committed copy is not what was committed.
        """
        known = self.require_committed()
        after = MODEL.after(self.phase, ModelFact.ROLL_BACK, Role.ORCHESTRATOR)
        if replace(self.committed_copy_digests(), step=known.step) != known:
            raise VerificationFailed("the committed copy in GPU memory has changed", code="committed-copy-changed")
        for target, source in self._pairs():
            self._hbm.copy(target.address, source.address, target.length)
        self.phase, self.step = after, known.step
        return self.digests()

    def write_committed(self, offset: int, data: bytes) -> None:
        """Part of a checkpoint into the committed copy; until `accept_restored` nothing counts as committed."""
        self._seal = None
        self._hbm.write(self.committed_copy.address + offset, data)

    def accept_restored(self, model: str, optimiser: str, step: int) -> Digests:
        """Take the restored committed copy if it has these digests.

        Raises:
            VerificationFailed.
        """
        found = self._committed_digests(step)
        if (found.model, found.optimiser) != (model, optimiser):
            raise VerificationFailed(
                "the restored checkpoint has another digest", code="checkpoint-digest-mismatch",
                expected=model, got=found.model,
            )  # fmt: skip
        after = MODEL.after(self.phase, ModelFact.RESTORED, Role.ORCHESTRATOR)
        self.phase = after
        self._sealed(found)
        return self.roll_back()

    def read_committed(self, offset: int, length: int) -> memoryview:
        """Bytes of committed model ‖ optimiser."""
        self.require_committed()
        if offset + length > self.committed_bytes:
            raise ProtocolViolation(f"the committed copy has {self.committed_bytes} bytes", code="out-of-range")
        return self._hbm.view(self.committed_copy.address + offset, length)

    def _pairs(self) -> list[tuple[Extent, Extent]]:
        """(working, committed) extents of model and optimiser, without padding."""
        base, model, optimiser = self.committed_copy.address, self.plan.model.length, self.plan.optimiser.length
        pairs = [(Extent(self.model.address, model), Extent(base, model))]
        if optimiser:
            pairs.append((Extent(self.optimiser.address, optimiser), Extent(base + model, optimiser)))
        return pairs

    def _sealed(self, digests: Digests) -> Digests:
        """The committed copy has these digests: so it reads from now on."""
        self._commits += 1
        base = self.committed_copy.address
        self._seal = _Seal(digests, self._commits, self._tags(self._commits, base, base + self.plan.model.length))
        return digests

    def _read_back(self, model: int, optimiser: int, step: int) -> Digests:
        """Digests of a copy that should be the committed one."""
        seal = self._seal
        if seal is not None and None not in seal.tags and self._tags(seal.number, model, optimiser) == seal.tags:
            return replace(seal.digests, step=step)
        return self._digests(model, optimiser, step)

    def _tags(self, number: int, model: int, optimiser: int) -> tuple[bytes | None, bytes | None]:
        key, plan = self._key.reveal(), self.plan
        return (
            self._hbm.tag(key, 2 * number, model, plan.model.length),
            self._hbm.tag(key, 2 * number + 1, optimiser, plan.optimiser.length),
        )

    def _committed_digests(self, step: int) -> Digests:
        base = self.committed_copy.address
        return self._digests(base, base + self.plan.model.length, step)

    def _digests(self, model: int, optimiser: int, step: int) -> Digests:
        model_digest, moments = self._digest(self.plan.model, model), self._digest(self.plan.optimiser, optimiser)
        return Digests(model_digest, moments, step, self._batches(optimiser))

    def _batches(self, optimiser: int) -> int:
        """The accumulator's count, as it lies in memory; 0 where there is none."""
        counter = next((placed for placed in self.plan.optimiser.tensors if placed.spec.name == TOUR_BATCHES), None)
        if counter is None:
            return 0
        return int.from_bytes(self._hbm.view(optimiser + counter.offset, counter.size_bytes), "little")

    def _digest(self, plan: RegionPlan, base: int) -> str:
        return region_digest(plan, lambda offset, length: self._hbm.view(base + offset, length)).hex()


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
