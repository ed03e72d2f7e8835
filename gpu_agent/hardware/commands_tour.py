"""The command that ends a tour of accumulated gradients. Knows the GPU's state; no tensor, no key, no holder."""

from __future__ import annotations

from gpu_agent.hardware.bulk import Bulk
from gpu_agent.hardware.launch import launch
from gpu_agent.hardware.ledger import Work
from gpu_agent.hardware.model_memory import MODEL, ModelFact
from gpu_agent.hardware.state import GpuState
from shared.canonical import cbor_bytes
from shared.claims.layout import require_named
from shared.claims.receipt import TourStatement
from shared.errors import ProtocolViolation
from shared.names import RegionKind, RegionPhase, Role
from shared.wire.gpu import EndTour
from shared.wire.gpu_answers import Committed, WorkState

_WAITING = (RegionPhase.FENCED, RegionPhase.IN_USE, RegionPhase.DIRTY)


def end_tour(state: GpuState, command: EndTour, bulk: Bulk) -> WorkState:
    """Start the step of all that was accumulated and committed, or its end without one; a repeated work is answered, never done twice.

    Raises:
        ProtocolViolation: nothing is accumulated here, another number of batches is, or a visit that was fenced is not closed yet.
    """
    known = state.ledger.find(command)
    if known is not None:
        return known.tell(state.release, 0)
    state.ledger.require_idle()
    if state.config.accumulate is None:
        raise ProtocolViolation("gradients are not accumulated in this session", code="no-accumulator")
    open_visit = next((r for r in state.regions.all(RegionKind.DATASET) if r.phase in _WAITING), None)
    if open_visit is not None:
        raise ProtocolViolation(f"region {open_visit.handle} holds a visit that is not over", code="visit-open")
    MODEL.after(state.model.phase, ModelFact.TRAIN, Role.ORCHESTRATOR)
    before = state.model.require_committed().told()
    if before.batches != command.batches:
        raise ProtocolViolation("the accumulator holds another number of batches", code="wrong-batches",
                                expected=str(command.batches), got=str(before.batches))  # fmt: skip
    state.compute.start(launch(state, "step" if command.step else "drop", None, 0, before.step, 0))
    state.model.state(ModelFact.TRAIN)
    work = Work(command, batch=state.config.options.batch_size, own_data=False, before=before)
    state.ledger.begin(work)
    state.ledger.pending = work
    return work.tell(state.release, 0)


def signed_end(state: GpuState, work: Work, command: EndTour) -> Committed:
    """The committed end of a tour with the device's statement over it."""
    before, after = work.before, work.committed
    if before is None or after is None:
        raise ProtocolViolation(f"work {command.work!r} was not committed", code="nothing-to-commit")
    claims = TourStatement(
        device=state.device, backend=state.backend, boot_counter=state.boot_counter, life=state.life, session=state.session.session,
        program=state.archive.digest.hex(), round=command.round, batches=command.batches, stepped=command.step,
        model_before=before.model, model_after=after.model,
        optimiser_before=require_named(before.optimiser), optimiser_after=require_named(after.optimiser),
    )  # fmt: skip
    statement = state.sign_statement(cbor_bytes(claims.model_dump(mode="python")))
    return after.model_copy(update={"statement": statement})
