"""What holds of every training before it starts, of one visit or of many. Knows the GPU's state; starts nothing, knows no tensor."""

from __future__ import annotations

from gpu_agent.hardware.ledger import Visit
from gpu_agent.hardware.regions import RegionFact
from gpu_agent.hardware.state import GpuState
from shared.errors import ProtocolViolation
from shared.names import Role


def trainable_visit(state: GpuState, visit: str, region: int, records: int) -> Visit:
    """The visit whose fenced, published records lie in this region, all of them.

    Raises:
        ProtocolViolation: it is not that visit's region, its records may not be trained on now, or there is another number of them.
    """
    found = state.ledger.visit(visit)
    if found.grant.region != region or state.ledger.visit_in(region) is not found:
        raise ProtocolViolation(f"region {region} is not that of visit {visit}", code="wrong-region")
    state.regions.require(region, RegionFact.TRAIN, Role.ORCHESTRATOR)
    if found.content is None or not found.content.published or found.content.records != records:
        raise ProtocolViolation(f"visit {visit} did not publish {records} records", code="wrong-records")
    return found


def require_next_step(state: GpuState, first_step: int) -> None:
    """Training goes on where the committed model stands. Raises: ProtocolViolation: `first_step` is another."""
    if first_step != state.model.step:
        raise ProtocolViolation(
            "training continues where the committed model stands", code="wrong-step",
            expected=str(state.model.step), got=str(first_step),
        )  # fmt: skip
