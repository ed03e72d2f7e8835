"""What the GPU is now: its life, its session, its regions, its model. Knows how to wipe and how to resume; no frame, no HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from blake3 import blake3

from gpu_agent.hardware.allotment import allot
from gpu_agent.hardware.compute import Compute, Destroyed, Failed, Finished, News, StepDone
from gpu_agent.hardware.control import most_bytes, structures
from gpu_agent.hardware.copy_engine import CopyEngine
from gpu_agent.hardware.doors import Doors
from gpu_agent.hardware.epochs import Epochs
from gpu_agent.hardware.hbm import HBM, Extent, ScrubProof
from gpu_agent.hardware.ledger import Ledger, ReleaseRule, Work
from gpu_agent.hardware.model_memory import ModelFact, ModelMemory, ModelPhase, names_optimiser
from gpu_agent.hardware.regions import Region, RegionFact, RegionTable
from shared.claims.archive import Archive
from shared.claims.layout import plan_memory
from shared.crypto.schedule import resume_secret, root_key
from shared.crypto.secret import Secret
from shared.errors import OutOfMemory, ProtocolViolation
from shared.names import RegionKind, RegionPhase, Role
from shared.protocol.travel import TRAVEL
from shared.wire.gpu import Configure, Evaluate, Train, TrainTour

NOISE_BYTES = 32


class Need(StrEnum):
    """Facts that a command may need, or that must not hold; each has one sentence for the refusal."""

    LIFE = "open_life was answered"
    SESSION = "a session is bound"
    PROGRAM = "a program is loaded in this life"
    CONFIGURED = "memory is configured"
    MODEL = "a model was committed"
    READY = "the GPU was set ready in this life"
    RUNNING = "a work is running"
    SWEPT = "memory was swept since a key to the whole GPU was alive"


@dataclass
class Session:
    """The one session a GPU is bound to until it is wiped."""

    session: str
    manifest: str
    archive: Archive | None = None
    code: Extent | None = None
    code_digest: str = ""
    config: Configure | None = None
    model: ModelMemory | None = None
    control: Extent | None = None
    control_digest: bytes = b""
    checkpoints: dict[bytes, tuple[str, str, bytes]] = field(default_factory=dict)  # what a key has sealed
    restored: tuple[int, bytes] | None = None  # what the chunks of the restore under way begin with
    noise: Secret | None = None  # what private trainings draw their noise from


class GpuState:
    """Everything behind the command processor. `wait` waits for news of the compute engines; the device lets copies through meanwhile."""

    def __init__(self, doors: Doors, hbm: HBM, compute: Compute) -> None:
        self.hbm, self.compute = hbm, compute
        self.device, self.backend, self.sign_statement = doors.device, doors.backend, doors.sign_statement
        self.entropy, self.clock, self.timer, self._next_boot = doors.entropy, doors.clock, doors.timer, doors.next_boot
        self.wait: Callable[[float], Sequence[News]] = compute.news
        self.regions, self.epochs, self.ledger = RegionTable(), Epochs(), Ledger()
        self.copies = CopyEngine(hbm, self.regions, self.epochs)
        self.boot_counter = self._next_boot()
        self.life = 0
        self.life_open = self.ready = self.program_loaded = False
        self.unswept = False  # a key that commanded all of memory was granted, and memory was not looked at since
        self.bound: Session | None = None
        self.resume: Secret | None = None
        self._first_export: Secret | None = None

    # ------------------------------------------------------------ lives

    def first_life(self, export_master_secret: bytes) -> None:
        """A session opened without resume proof: nobody inherits a full GPU (attack V21)."""
        self.wipe()
        self._begin_life(1, export_master_secret)
        self._first_export = Secret(export_master_secret)

    def next_life(self, export_master_secret: bytes) -> None:
        """A session opened with the resume proof: keep model, committed copy and optimiser; destroy all else.

        The working copy may be of a visit that was not committed; whoever resumes rolls back, or commits, before anything else.
        """
        self.take_news(self.compute.destroy())
        self.copies.fence(self.epochs.alive)
        for region in self.regions.all(RegionKind.DATASET):
            self.scrub(region)
        if self.bound is not None and self.bound.model is not None:
            self.bound.model.forget_ahead()
        for kind in (RegionKind.GRADIENTS, RegionKind.VALIDATION, RegionKind.CODE):
            for region in self.regions.all(kind):
                self.hbm.scrub(region.address, region.length)
        self._begin_life(self.life + 1, export_master_secret)

    def _begin_life(self, life: int, export_master_secret: bytes) -> None:
        self.life = life
        self.life_open = self.ready = self.program_loaded = False
        self.epochs.new_life(Secret(root_key(export_master_secret, life)))

    def bind(self, session: str, manifest: str) -> None:
        """Bind the wiped GPU to a session; from here on only its resume secret opens a further life."""
        if self._first_export is None:
            raise ProtocolViolation("a session is bound in a GPU's first life only", code="out-of-order")
        self.bound = Session(session, manifest)
        self.resume = Secret(resume_secret(self._first_export.reveal(), session))
        self._first_export = None

    def wipe(self) -> None:
        """Destroy compute, keys and every byte in HBM, for whoever comes next; the boot counter tells, and first: of what cannot be counted
        the session's owner could explain nothing, so it does not happen.

        Raises:
            ConfigurationError: the boot counter cannot be written; nothing changed. Else the session is forgotten, whatever fails.
        """
        self.boot_counter = self._next_boot()
        self._destroy()

    def end(self) -> None:
        """As `wipe`, at the owner's own word: it expects nothing here any more, and may not ask twice, so nothing of its records stays
        whatever the counter says. Nobody comes next uncounted either, itself included: `first_life` wipes once more.

        Raises:
            ConfigurationError: all is destroyed, and the boot counter did not count it.
        """
        try:
            self.boot_counter = self._next_boot()
        finally:
            self._destroy()

    def _destroy(self) -> None:
        """All that is left of a session, itself included; the session is forgotten first, whatever fails."""
        self.bound = self.resume = self._first_export = None
        self.life, self.life_open, self.ready, self.program_loaded = 0, False, False, False
        self.ledger = Ledger()
        self.compute.destroy()  # its news is of no work that is known any more
        self.copies.fence(self.epochs.alive)
        self.hbm.wipe()
        self.regions.clear()
        self.epochs.wipe()
        self.unswept = False

    # ------------------------------------------------------------ facts

    def facts(self) -> frozenset[Need]:
        """All that holds now."""
        bound = self.bound
        holds = {
            Need.LIFE: self.life_open,
            Need.SESSION: bound is not None,
            Need.PROGRAM: self.program_loaded,
            Need.CONFIGURED: bound is not None and bound.config is not None,
            Need.MODEL: bound is not None and bound.model is not None and bound.model.phase is not ModelPhase.EMPTY,
            Need.READY: self.ready,
            Need.RUNNING: self.ledger.running is not None,
            Need.SWEPT: not self.unswept,
        }
        return frozenset(need for need, value in holds.items() if value)

    @property
    def session(self) -> Session:
        """Raises: ProtocolViolation: none is bound."""
        if self.bound is None:
            raise ProtocolViolation("no session is bound to the GPU", code="out-of-order")
        return self.bound

    @property
    def archive(self) -> Archive:
        """The loaded program. Raises: ProtocolViolation."""
        if self.session.archive is None:
            raise ProtocolViolation("no program is loaded", code="out-of-order")
        return self.session.archive

    @property
    def config(self) -> Configure:
        """Raises: ProtocolViolation."""
        if self.session.config is None:
            raise ProtocolViolation("memory is not configured", code="out-of-order")
        return self.session.config

    @property
    def model(self) -> ModelMemory:
        """Raises: ProtocolViolation."""
        if self.session.model is None:
            raise ProtocolViolation("memory is not configured", code="out-of-order")
        return self.session.model

    @property
    def release(self) -> ReleaseRule:
        """The manifest's rule for losses."""
        config = self.config
        return ReleaseRule(config.loss_decimals, config.privacy_floor, withheld=config.privacy is not None)

    # ------------------------------------------------------------ memory

    def configure(self, command: Configure) -> list[Region]:
        """Allocate every region at a random address and write the control structures into HBM.

        Raises:
            OutOfMemory: nothing stays allocated.
        """
        plan = plan_memory(self.archive.manifest, command.options, command.accumulate is not None)
        # What describes the regions first: without room for it they would all stay.
        control = self.hbm.allocate(most_bytes(command, len(self.regions.all())))
        try:
            allotment = allot(self.hbm, plan, command)
        except OutOfMemory:
            self.hbm.free(control)
            raise
        self.session.config, named = command, names_optimiser(command)
        self.session.noise = Secret(self.entropy(NOISE_BYTES)) if command.privacy is not None else None
        for kind, extent in allotment.all():
            proof = self.hbm.scrub(extent.address, extent.length) if kind is RegionKind.DATASET else None
            self.regions.add(kind, extent.address, extent.length, proof)
        self.session.model = ModelMemory(
            self.hbm, plan, self.entropy, allotment, names_optimiser=named, mends=not TRAVEL[command.travel_mode].whole_gpu
        )  # fmt: skip
        data = structures(self.session.session, self.session.manifest, command, self.regions.all())
        self.session.control = Extent(control, len(data))
        self.hbm.write(control, data)
        self.session.control_digest = self.hbm.digest(control, len(data))
        return self.regions.all()

    def control_digest(self) -> bytes:
        """BLAKE3 (32 bytes) of the control structures as they lie in HBM now."""
        control = self.session.control
        return self.hbm.digest(control.address, control.length) if control is not None else blake3(b"").digest()

    def code_digest(self) -> str:
        """BLAKE3 (hex) of the code region's program bytes as they lie in HBM now."""
        code = self.session.code
        return self.hbm.digest(code.address, code.length).hex() if code is not None else ""

    def scrub(self, region: Region) -> ScrubProof:
        """Make a dataset region CLEAN with proof, and note it for the visit that used it. The grant is fenced before."""
        self.regions.require(region.handle, RegionFact.SCRUBBED, Role.ORCHESTRATOR)
        proof = self.hbm.scrub(region.address, region.length)
        self.regions.move(region.handle, RegionFact.SCRUBBED, Role.ORCHESTRATOR, proof)
        visit = self.ledger.visit_in(region.handle)
        if visit is not None and visit.proof is None:
            visit.proof = proof
        return proof

    # ------------------------------------------------------------ compute

    def take_news(self, news: Sequence[News]) -> None:
        """Enter what the compute engines told into ledger, model and region tables."""
        for item in news:
            work = self.ledger.running
            if work is None:
                continue
            match item:
                case StepDone(step, loss):
                    work.note(step, loss, self.release)
                case Finished():
                    work.end = item
                    self._work_ended(work)
                case Failed(code, detail, part):
                    work.code, work.detail, work.part = code, detail, part
                    self._work_ended(work)
                case Destroyed():  # without a word before: it was ended from here
                    work.code, work.detail = "work-interrupted", "the work was ended before it was done"
                    self._work_ended(work)

    def _work_ended(self, work: Work) -> None:
        """The launch touches nothing any more. Its memory may live a little longer; a scrub waits until it is gone."""
        self.ledger.running = None
        work.state = "failed" if work.code is not None else "done"
        command, trained = work.command, not isinstance(work.command, Evaluate)
        if trained:
            self.model.state(ModelFact.FAILED if work.code else ModelFact.TRAINED, Role.GPU)
        if isinstance(command, Train | TrainTour):
            self.model.step = command.first_step + (work.end.steps if work.end else 0)
        for region in map(self.regions.get, work.regions):
            if region.kind is RegionKind.DATASET and region.phase is RegionPhase.IN_USE:
                self.regions.move(region.handle, RegionFact.TRAINED if trained else RegionFact.EVALUATED, Role.GPU)
