"""The command that trains on a collected tour: all of its visits' regions in one shuffled order. Knows no tensor, no key."""

from __future__ import annotations

from dataclasses import replace

from gpu_agent.hardware.bulk import Bulk
from gpu_agent.hardware.compute import Launch, Part
from gpu_agent.hardware.hbm import Extent
from gpu_agent.hardware.launch import launch
from gpu_agent.hardware.ledger import Work
from gpu_agent.hardware.model_memory import MODEL, ModelFact
from gpu_agent.hardware.regions import RegionFact
from gpu_agent.hardware.state import GpuState
from gpu_agent.hardware.trainable import require_next_step, trainable_visit
from shared.claims.receipt import Mixed
from shared.errors import BadRequest, ProtocolViolation
from shared.names import Role
from shared.protocol.mixture import Brought, Mixing
from shared.wire.gpu import TrainTour
from shared.wire.gpu_answers import WorkState


def train_tour(state: GpuState, command: TrainTour, bulk: Bulk) -> WorkState:
    """Start training on the mixture of a tour's fenced, published regions; a repeated work is answered, never done twice.

    Raises:
        ProtocolViolation: tours are not collected here, a part is not a visit's that waits in its region, one is named twice, or
            training would not go on where the model stands. BadRequest: the steps do not take up every record once.
    """
    known = state.ledger.find(command)
    if known is not None:
        return known.tell(state.release, 0)
    state.ledger.require_idle()
    if state.config.collect != "tour":
        raise ProtocolViolation("visits of this session are trained on one by one", code="not-collected")
    visits = [trainable_visit(state, part.visit, part.region, part.records) for part in command.parts]
    if len({part.region for part in command.parts}) != len(command.parts):
        raise ProtocolViolation("a region is named twice", code="wrong-region")
    require_next_step(state, command.first_step)
    _check_records(state, command)
    MODEL.after(state.model.phase, ModelFact.TRAIN, Role.ORCHESTRATOR)
    descriptor, before = _launch(state, command), state.model.require_committed().told()
    state.compute.start(descriptor)
    state.model.state(ModelFact.TRAIN)
    brought = [Brought(visit.grant.dataset_root, visit.grant.dataset_records, visit.grant.cursor) for visit in visits]
    different = Mixing(command.seed, brought).fewest
    work = Work(command, batch=state.config.options.batch_size, own_data=False, different=different)
    state.ledger.begin(work)
    for part, visit in zip(command.parts, visits, strict=True):
        state.regions.move(part.region, RegionFact.TRAIN, Role.ORCHESTRATOR)
        visit.before, visit.work = before, work
        state.ledger.trained(visit)
    return work.tell(state.release, 0)


def _check_records(state: GpuState, command: TrainTour) -> None:
    wanted = command.steps * state.config.options.batch_size
    if wanted != command.records:
        raise BadRequest(
            "a tour trains on each of its records once", code="wrong-records",
            expected=str(wanted), got=str(command.records),
        )  # fmt: skip


def _launch(state: GpuState, command: TrainTour) -> Launch:
    found = [(state.regions.get(part.region), part.records) for part in command.parts]
    parts = tuple(Part(Extent(region.address, region.length), records) for region, records in found)
    plain = launch(state, "train", None, command.records, command.first_step, command.steps)
    return replace(plain, parts=parts, seed=command.seed)


def mixed(command: TrainTour, visit: str) -> Mixed:
    """What a visit's statement says of the mixture that it was part of."""
    place = next(number for number, part in enumerate(command.parts) if part.visit == visit)
    return Mixed(
        round=command.round, seed=command.seed, visits=len(command.parts), records=command.records,
        first=sum(part.records for part in command.parts[:place]),
    )  # fmt: skip
