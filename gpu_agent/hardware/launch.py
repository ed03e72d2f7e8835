"""Launch descriptors: what a compute launch is told, after code and control structures were measured. Knows no command and no key."""

from __future__ import annotations

from typing import Literal

from gpu_agent.hardware.compute import Launch
from gpu_agent.hardware.hbm import Extent
from gpu_agent.hardware.regions import Region
from gpu_agent.hardware.state import GpuState
from shared.errors import ProtocolViolation


def launch(
    state: GpuState,
    kind: Literal["seed", "train", "evaluate"],
    data: Region | None,
    records: int,
    first_step: int,
    steps: int,
) -> Launch:
    """A launch descriptor over the regions that the control structures in HBM name.

    Raises:
        ProtocolViolation: code or control structures in HBM are not what was measured (attacks H05, H06).
    """
    session, model = state.session, state.model
    if session.code is None or state.code_digest() != session.code_digest:
        raise ProtocolViolation("the code region does not hold the measured program", code="code-digest-mismatch")
    if state.control_digest() != session.control_digest:
        raise ProtocolViolation("the control structures in memory have changed", code="control-digest-mismatch")
    return Launch(
        kind=kind,
        code=session.code, code_digest=session.code_digest,
        model=model.model, gradients=model.gradients, optimiser=model.optimiser, committed=model.committed_copy,
        data=Extent(data.address, data.length) if data is not None else None,
        records=records, first_step=first_step, steps=steps, total_steps=state.config.total_steps,
        options=state.config.options.model_dump(mode="json"),
    )  # fmt: skip
