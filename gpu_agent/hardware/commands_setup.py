"""Commands of setup: life, session, program, memory, initial model, measurement. Knows the GPU's state; no frame, no key."""

from __future__ import annotations

from gpu_agent.hardware.bulk import Bulk
from gpu_agent.hardware.compute import Destroyed, Failed, Finished, News
from gpu_agent.hardware.hbm import Extent
from gpu_agent.hardware.launch import launch
from gpu_agent.hardware.regions import Region
from gpu_agent.hardware.state import GpuState
from shared.canonical import blake3_256
from shared.claims.archive import MAX_ARCHIVE_BYTES, open_archive
from shared.claims.privacy import mixes_samples
from shared.claims.program import SeedInit
from shared.errors import LimitExceeded, ProtocolViolation, Unavailable
from shared.names import RegionKind
from shared.protocol.travel import TRAVEL
from shared.wire.gpu import (
    Configure,
    EndSession,
    InitModel,
    InitSession,
    Measure,
    SetReady,
    Status,
    Upload,
    UploadProgram,
)
from shared.wire.gpu_answers import (
    COMPUTE_OUTAGES,
    Committed,
    Configured,
    DeviceStatus,
    Done,
    Measured,
    ProgramLoaded,
    RegionInfo,
)

SEED_DEADLINE_S = 600.0


def init_session(state: GpuState, command: InitSession, bulk: Bulk) -> Done:
    """Bind the wiped GPU to one session."""
    state.bind(command.session, command.manifest)
    return Done()


def upload_program(state: GpuState, command: UploadProgram, bulk: Bulk) -> ProgramLoaded:
    """Write the archive into the code region and build it, unless exactly these bytes are built already."""
    if command.length > MAX_ARCHIVE_BYTES:
        raise LimitExceeded(f"an archive has at most {MAX_ARCHIVE_BYTES} bytes", code="archive-too-large")
    data = bulk.take(command.records, command.length)
    session = state.session
    digest = blake3_256(data).hex()
    known = session.archive is not None and session.code_digest == digest
    archive = session.archive if known and session.archive is not None else open_archive(data)
    if session.config is not None and session.archive is not None and archive.digest != session.archive.digest:
        raise ProtocolViolation("memory is configured for another program", code="program-changed")
    code = _code_region(state, len(data))
    state.hbm.write(code.address, data)
    session.archive, session.code, session.code_digest = archive, Extent(code.address, len(data)), digest
    state.program_loaded = False
    found = state.code_digest()  # read back from HBM: what compute will read
    if found != digest:
        raise ProtocolViolation("the code region does not hold what was uploaded", code="code-digest-mismatch")
    rebuilt = state.compute.load(session.code, digest).rebuilt
    state.program_loaded = True
    return ProgramLoaded(program=archive.digest.hex(), code=found, rebuilt=rebuilt)


def _code_region(state: GpuState, length: int) -> Region:
    region = state.regions.only(RegionKind.CODE)
    if region is None:
        return state.regions.add(RegionKind.CODE, state.hbm.allocate(length), length)
    if length > region.length:
        raise ProtocolViolation("the archive is longer than the code region", code="program-changed")
    state.hbm.erase(region.address, region.length)
    return region


def configure(state: GpuState, command: Configure, bulk: Bulk) -> Configured:
    """Plan and allocate every region."""
    if command.buffer_bytes < state.archive.manifest.records.record_bytes:
        raise ProtocolViolation("a dataset buffer holds not even one record", code="buffer-too-small")
    mixed = mixes_samples(state.archive.graphs["train"]) if command.privacy is not None else ""
    if mixed:
        raise ProtocolViolation(f"the program cannot be trained privately: {mixed}", code="samples-not-independent")
    if command.accumulate is not None:
        _require_accumulable(state, command)
    if command.collect == "tour":
        _require_collectable(command)
    return Configured(regions=[region_info(region) for region in state.configure(command)])


def _require_accumulable(state: GpuState, command: Configure) -> None:
    """Raises: ProtocolViolation: gradients may not add up in such a session."""
    if (
        command.privacy is not None
        or TRAVEL[command.travel_mode].whole_gpu
        or state.archive.graphs["train"].changed_state
    ):
        raise ProtocolViolation(
            "gradients are accumulated neither privately, nor where holders command the GPU, nor where a batch changes state",
            code="not-accumulable",
        )


def _require_collectable(command: Configure) -> None:
    """Raises: ProtocolViolation: records of several visits may not lie side by side in such a session."""
    if command.privacy is not None or command.accumulate is not None or TRAVEL[command.travel_mode].whole_gpu:
        raise ProtocolViolation(
            "a tour is collected neither privately, nor where holders command the GPU, nor where gradients are accumulated",
            code="not-collectable",
        )


def region_info(region: Region) -> RegionInfo:
    """A region as the orchestrator sees it."""
    return RegionInfo(
        handle=region.handle, kind=region.kind, address=region.address, length=region.length, phase=region.phase
    )


def upload(state: GpuState, command: Upload, bulk: Bulk) -> Done:
    """Write bulk bytes into a region that is the orchestrator's own."""
    data = bulk.take(command.records, command.length)
    region = state.regions.get(command.region)
    if region.kind not in (RegionKind.MODEL, RegionKind.VALIDATION):
        raise ProtocolViolation(
            f"region {region.handle} is not the orchestrator's to write",
            code="wrong-region-kind",
            got=region.kind.value,
        )
    if region.kind is RegionKind.MODEL and state.model.committed is not None:
        raise ProtocolViolation("the model was committed; it changes by training only", code="out-of-order")
    if command.offset + command.length > region.length:
        raise ProtocolViolation(f"region {region.handle} has {region.length} bytes", code="out-of-range")
    state.hbm.write(region.address + command.offset, data)
    return Done()


def init_model(state: GpuState, command: InitModel, bulk: Bulk) -> Committed:
    """Make the initial model, or take what was uploaded as it, and commit it.

    Any program may start from uploaded weights (the session's manifest names them); only one with rules from a seed.
    """
    if command.source == "seed":
        if not isinstance(state.archive.manifest.initial_weights, SeedInit):
            raise ProtocolViolation(
                "the program has no rules to make a model from a seed", code="wrong-model-source",
                remedy="Upload its initial weights.",
            )  # fmt: skip
        _run_seed(state)
    return state.model.commit().told()


def _run_seed(state: GpuState) -> None:
    state.take_news(state.compute.news(0))  # forget an older wake-up: it would end the wait below before the work does
    state.compute.start(launch(state, "seed", None, 0, 0, 0))
    news: list[News] = []
    deadline = state.timer() + SEED_DEADLINE_S
    while state.timer() < deadline and not any(isinstance(item, Finished | Failed | Destroyed) for item in news):
        news += state.compute.news(1.0)
    news += state.compute.destroy()
    if any(isinstance(item, Finished) for item in news):
        return
    failure = next((item for item in news if isinstance(item, Failed)), None)
    if failure is None and state.timer() >= deadline:
        raise Unavailable("the initial model was not made in time", code="compute-stuck")
    failure = failure or Failed("compute-lost", "the compute process died")
    said = f"the initial model was not made: {failure.detail}"
    if failure.code in COMPUTE_OUTAGES:
        raise Unavailable(said, code=failure.code)
    raise Unavailable(said, code="model-init-failed")


def set_ready(state: GpuState, command: SetReady, bulk: Bulk) -> Done:
    """Open the GPU for work in this life."""
    state.ready = True
    return Done()


def measure(state: GpuState, command: Measure, bulk: Bulk) -> Measured:
    """Every digest is of the bytes in HBM at this moment; nothing is remembered."""
    digests = state.model.digests()
    return Measured(
        nonce=command.nonce,
        code=state.code_digest(),
        program=state.archive.digest.hex(),
        model=digests.model,
        optimiser=digests.optimiser,
        version=digests.version,
        control=state.control_digest().hex(),
        life=state.life,
        boot_counter=state.boot_counter,
        device=state.device,
    )


def status(state: GpuState, command: Status, bulk: Bulk) -> DeviceStatus:
    """What the GPU holds."""
    model = state.bound.model if state.bound is not None else None
    return DeviceStatus(
        life=state.life, boot_counter=state.boot_counter, session=state.bound.session if state.bound else None,
        ready=state.ready, regions=[region_info(region) for region in state.regions.all()], epochs=state.epochs.alive,
        step=model.step if model is not None else 0, hbm_bytes=state.hbm.backing, hbm_used=state.hbm.used,
    )  # fmt: skip


def end_session(state: GpuState, command: EndSession, bulk: Bulk) -> Done:
    """Destroy it all; the answer still goes out under this life's keys, which are then erased.

    Raises:
        ConfigurationError: as `GpuState.end`: what is left is to count it.
    """
    state.end()
    return Done()
