"""The sweep: after a visit whose key commanded all of memory, destroy everything that is not the session's, and read the rest back.

What the measurement covers anyway (code, model, control structures) is left alone here. Knows the GPU's state; no key, no frame.
"""

from __future__ import annotations

from gpu_agent.hardware.bulk import Bulk
from gpu_agent.hardware.hbm import Extent
from gpu_agent.hardware.state import GpuState
from shared.canonical import blake3_256
from shared.claims.layout import require_named
from shared.errors import ProtocolViolation
from shared.names import RegionKind, RegionPhase
from shared.wire.gpu import Sweep
from shared.wire.gpu_answers import Swept

_EMPTY = (RegionPhase.CLEAN, RegionPhase.DIRTY)


def sweep(state: GpuState, command: Sweep, bulk: Bulk) -> Swept:
    """Scrub compute, gradients, unused buffers, what lies between tensors and at the ends of allocations, and all memory outside of regions
    (attacks H02, H06).

    Raises:
        ProtocolViolation: a key to the whole GPU is still alive: what is looked at could change (law L3).
        VerificationFailed: memory does not read back as zeros.
    """
    if state.copies.grants.whole_gpu():
        raise ProtocolViolation("a key that commands the whole GPU is alive", code="not-fenced")
    state.take_news(state.compute.destroy())
    strays = state.hbm.clear_strays()
    for region in state.regions.all(RegionKind.GRADIENTS):
        state.hbm.scrub(region.address, region.length)
    for region in state.regions.all(RegionKind.DATASET):
        if region.phase in _EMPTY:  # its old proof says nothing any more
            state.scrub(region)
    for extent in _used(state):
        state.hbm.scrub_slack(extent)
    state.model.scrub_gaps()  # before the copies are compared: a byte that is nobody's must break none
    state.unswept = False
    state.model.named()
    copy = state.model.committed_copy_digests()
    validation = state.regions.only(RegionKind.VALIDATION)
    held_out = state.hbm.digest(validation.address, validation.length) if validation is not None else blake3_256(b"")
    return Swept(strays=strays, model=copy.model, optimiser=require_named(copy.optimiser), validation=held_out.hex())


def _used(state: GpuState) -> list[Extent]:
    control = state.session.control
    regions = [Extent(region.address, region.length) for region in state.regions.all()]
    return regions if control is None else [*regions, control]
