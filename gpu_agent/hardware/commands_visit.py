"""Commands of a visit: epoch and fence, grant, drain, scrub, statement. Knows the GPU's state; no frame, no key."""

from __future__ import annotations

from gpu_agent.hardware.bulk import Bulk
from gpu_agent.hardware.commands_mixture import mixed
from gpu_agent.hardware.grants import GrantScope, check_grant
from gpu_agent.hardware.ledger import Visit
from gpu_agent.hardware.regions import RegionFact
from gpu_agent.hardware.state import GpuState
from shared.canonical import cbor_bytes
from shared.claims.layout import require_named
from shared.claims.receipt import Accumulated, DeviceStatement
from shared.claims.share import ShareStatement
from shared.errors import ProtocolViolation
from shared.names import Role
from shared.protocol.travel import TRAVEL
from shared.wire.gpu import CloseVisit, Drain, DrawShare, Fetch, InstallGrant, OpenEpoch, Scrub, Train, TrainTour
from shared.wire.gpu_answers import (
    Committed,
    Drained,
    EpochOpened,
    Fetched,
    GrantInstalled,
    Scrubbed,
    Statement,
)


def open_epoch(state: GpuState, command: OpenEpoch, bulk: Bulk) -> EpochOpened:
    """Fence first, then draw: no key of a killed epoch is alive when the new one begins (law L1)."""
    state.epochs.require_next(command.epoch)
    unknown = [epoch for epoch in command.kills if epoch > state.epochs.highest]
    if unknown:
        raise ProtocolViolation(f"epoch {unknown[0]} was never opened", code="unknown-epoch")
    if any(live.stock is not None and live.grant.epoch in command.kills for live in state.copies.grants.all()):
        state.take_news(state.compute.destroy())  # whatever the holder launched would go on writing
    fenced = state.copies.fence(command.kills)
    for content in fenced:
        visit = state.ledger.visit_in(content.region)
        if visit is not None and visit.grant.epoch == content.epoch:
            visit.content = content
    entropy = state.entropy(32)
    state.epochs.draw(command.epoch, command.entropy, entropy, fence=bool(command.kills))
    if command.kills:
        return EpochOpened(entropy=entropy, fenced=fenced)
    engine, channel_counter = state.copies.grants.allot(command.epoch)
    return EpochOpened(entropy=entropy, fenced=fenced, engine=engine, channel_counter=channel_counter)


def install_grant(state: GpuState, command: InstallGrant, bulk: Bulk) -> GrantInstalled:
    """Let a visit key write into a region that is CLEAN by the GPU's own proof (law L2)."""
    grant = command.grant
    state.epochs.require_alive(grant.epoch)
    scope = GrantScope(
        state.session.session, state.life, state.archive.manifest.records.record_bytes, state.clock(), state.config.travel_mode
    )  # fmt: skip
    check_grant(grant, scope, state.regions, state.copies.grants)
    whole = TRAVEL[grant.mode].whole_gpu
    if whole and state.ledger.running is not None:
        raise ProtocolViolation("a work is running in memory that the grant would open", code="work-running")
    state.ledger.require_new(grant)
    installed = state.copies.install(grant)
    state.ledger.enter(Visit(grant))
    state.unswept = state.unswept or whole
    return installed


def draw_share(state: GpuState, command: DrawShare, bulk: Bulk) -> Statement:
    """The GPU's half of what a holder and it agree on; signed, so that the holder knows whose it is."""
    state.epochs.require_alive(command.epoch)
    share = state.copies.shares.draw(command.epoch, command.holder, state.entropy)
    claims = ShareStatement(
        device=state.device, boot_counter=state.boot_counter, life=state.life, session=state.session.session,
        epoch=command.epoch, holder=command.holder, share=share.hex(),
    )  # fmt: skip
    return Statement(statement=state.sign_statement(cbor_bytes(claims.model_dump(mode="python"))))


def fetch(state: GpuState, command: Fetch, bulk: Bulk) -> Fetched:
    """Have the copy engine fetch what a holder left in staging."""
    state.epochs.require_alive(command.epoch)
    return state.copies.fetch(command.epoch)


def drain(state: GpuState, command: Drain, bulk: Bulk) -> Drained:
    """Copies run under the device's lock, so none can be half way here; grants of dead epochs are counted all the same."""
    alive = state.epochs.alive
    return Drained(outstanding=sum(epoch not in alive for epoch in state.copies.grants.alive()))


def scrub(state: GpuState, command: Scrub, bulk: Bulk) -> Scrubbed:
    """Destroy what a region's records left: the compute process's memory, gradients, the region itself (law L7)."""
    state.regions.require(command.region, RegionFact.SCRUBBED, Role.ORCHESTRATOR)
    state.take_news(state.compute.destroy())
    gradients = state.model.gradients
    if gradients.length:
        state.hbm.scrub(gradients.address, gradients.length)
    proof = state.scrub(state.regions.get(command.region))
    return Scrubbed(region=command.region, length=proof.length, digest=proof.digest.hex())


def close_visit(state: GpuState, command: CloseVisit, bulk: Bulk) -> Statement:
    """Sign what the GPU knows of a visit that trained, was committed or rolled back, and whose region was scrubbed."""
    visit = state.ledger.visit(command.visit)
    if visit.statement is None:
        payload = cbor_bytes(_statement(state, visit).model_dump(mode="python"))
        visit.statement = state.sign_statement(payload)
    return Statement(statement=visit.statement)


def _statement(state: GpuState, visit: Visit) -> DeviceStatement:
    grant, content, work, proof = visit.grant, visit.content, visit.work, visit.proof
    if content is None or content.commitment is None or work is None or visit.before is None:
        raise ProtocolViolation(f"visit {grant.visit} never trained", code="visit-not-trained")
    if visit.after is None:
        raise ProtocolViolation(f"visit {grant.visit} is neither committed nor rolled back", code="visit-not-settled")
    if proof is None:
        raise ProtocolViolation(f"the region of visit {grant.visit} is not scrubbed", code="visit-not-scrubbed")
    if not isinstance(work.command, Train | TrainTour):
        raise ProtocolViolation(f"visit {grant.visit} never trained", code="visit-not-trained")
    return DeviceStatement(
        device=state.device,
        backend=state.backend,
        boot_counter=state.boot_counter,
        life=state.life,
        session=grant.session,
        visit=grant.visit,
        epoch=grant.epoch,
        holder=grant.holder,
        travel_mode=grant.mode,
        records=content.records,
        length=content.length,
        commitment=content.commitment,
        dataset_root=grant.dataset_root,
        dataset_records=grant.dataset_records,
        program=state.archive.digest.hex(),
        model_before=visit.before.model,
        model_after=visit.after.model,
        first_step=work.command.first_step,
        steps=work.end.steps if work.end is not None else 0,
        scrubbed_bytes=proof.length,
        scrub_digest=proof.digest.hex(),
        privacy=state.config.privacy,
        accumulated=_accumulated(state, visit.before, visit.after),
        mixed=mixed(work.command, grant.visit) if isinstance(work.command, TrainTour) else None,
    )


def _accumulated(state: GpuState, before: Committed, after: Committed) -> Accumulated | None:
    if state.config.accumulate is None:
        return None
    return Accumulated(
        before=require_named(before.optimiser), after=require_named(after.optimiser), batches=after.batches
    )
