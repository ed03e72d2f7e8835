"""Launch descriptors: what a compute launch is told, after code and control structures were measured. Knows no command and no key."""

from __future__ import annotations

from typing import Any, Literal

from gpu_agent.hardware.compute import Launch
from gpu_agent.hardware.hbm import Extent
from gpu_agent.hardware.regions import Region
from gpu_agent.hardware.state import GpuState
from shared.claims.layout import require_named
from shared.claims.visit import Grant
from shared.crypto.schedule import Computation, noise_key
from shared.errors import ProtocolViolation
from shared.names import RegionKind


def launch(
    state: GpuState,
    kind: Literal["seed", "train", "evaluate", "step", "drop"],
    data: Region | None,
    records: int,
    first_step: int,
    steps: int,
    grant: Grant | None = None,
) -> Launch:
    """A launch descriptor over the regions that the control structures in HBM name; for a training, under the `grant` of its visit.

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
        options=state.config.options.model_dump(mode="json"), losses=grant is None or not state.release.withheld,
        own=kind != "train" and (data is None or data.kind is RegionKind.VALIDATION),
        accumulate=state.config.accumulate is not None,
        **({} if grant is None else _private(state, grant, first_step, steps)),
    )  # fmt: skip


def _private(state: GpuState, grant: Grant, first_step: int, steps: int) -> dict[str, Any]:
    """What makes a training private, where the session is: the claim, and the key of the noise of this very computation."""
    privacy, secret = state.config.privacy, state.session.noise
    if privacy is None:
        return {}
    before = state.model.named()
    if secret is None:
        raise ProtocolViolation("there is no secret to draw noise from", code="no-noise-secret")
    computation = Computation(
        grant.holder, (grant.dataset_root, grant.dataset_records), grant.cursor.model_dump(mode="python"), before.model,
        require_named(before.optimiser),
        first_step, steps,
    )  # fmt: skip
    return {"privacy": privacy.model_dump(mode="json"), "noise_key": noise_key(secret.reveal(), computation).hex()}
