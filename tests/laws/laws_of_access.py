"""Monitors of laws L1, L2 and L3: who may write where, only after a proven scrub, and in which order the GPU is taken back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shared.canonical.zeros import zeros_digest
from shared.claims.visit import Grant
from shared.names import RegionKind
from shared.wire import gpu
from tests.laws.case import Case, Checks
from tests.laws.witness import Copied, LifeBegan, Ran, Shown, Wiped
from tests.world.world_memory import Place, content
from tests.world.world_recorder import Opened

COMPUTED = (RegionKind.MODEL, RegionKind.OPTIMISER, RegionKind.GRADIENTS)
RETURN = ("fence", "drain", "upload", "verify", "train")


def law_1_one_writer_per_region_and_the_epoch_fences(case: Case) -> Checks:
    """At no time can two parties write to one region: a key writes from its grant to its epoch's fence, in its own region, on its own
    port; meanwhile nobody else is granted the region or works in it. A killed epoch, an older life and a used number command nothing."""
    check, now, shown = Checks(), _Writers(), dict[bytes, Grant]()
    for event in case.timeline:
        match event:
            case Shown(key, grant):
                shown[key] = grant
            case Opened(key=key, repeat=False) if key in shown:
                check(
                    shown[key].epoch in now.grants, f"a record of fenced epoch {shown[key].epoch} was let into memory"
                )
            case Wiped():
                now = _Writers()
            case LifeBegan(life=life):
                now = _Writers(life, now.highest)
            case Ran(refused=None):
                now.command(check, event)
            case Copied():
                now.copy(check, event)
    return check


class _Writers:
    """Who can write now, by what the GPU was commanded and answered."""

    def __init__(self, life: int = 0, highest: int = 0) -> None:
        self.life, self.highest = life, highest
        self.open: set[int] = set()
        self.grants: dict[int, Grant] = {}
        self.used: set[int] = set()
        self.computing = False

    def command(self, check: Checks, event: Ran) -> None:
        command = event.command
        if not isinstance(command, gpu.EndSession):  # it has ended the life under which it came
            check(event.life == self.life, f"{command.op} ran under keys of life {event.life} in life {self.life}")
        if isinstance(command, gpu.Train | gpu.TrainTour | gpu.EndTour | gpu.Commit | gpu.RollBack | gpu.Scrub):
            self.computing = isinstance(command, gpu.Train | gpu.TrainTour | gpu.EndTour)
        match command:
            case gpu.OpenEpoch():
                check(command.epoch > self.highest, f"epoch {command.epoch} was opened after {self.highest}")
                self.highest = command.epoch
                self.open = self.open - set(command.kills) | {command.epoch}
                self.grants = {epoch: g for epoch, g in self.grants.items() if epoch not in command.kills}
            case gpu.InstallGrant():
                self._grant(check, command.grant)
            case gpu.Train() | gpu.Evaluate() | gpu.Scrub() | gpu.Upload():
                self._nobody_writes(check, command, command.region)
            case gpu.TrainTour():
                for part in command.parts:
                    self._nobody_writes(check, command, part.region)

    def _nobody_writes(self, check: Checks, command: Any, region: int) -> None:
        writers = [g.holder for g in self.grants.values() if g.region == region]
        check(not writers, f"{command.op} on region {region} while {writers} may write there")

    def _grant(self, check: Checks, grant: Grant) -> None:
        check(grant.epoch in self.open, f"a grant was installed under epoch {grant.epoch}, which is not open")
        check(grant.epoch not in self.used, f"epoch {grant.epoch} was granted twice")
        others = [g.holder for g in self.grants.values() if g.region == grant.region]
        check(not others, f"{grant.holder} was granted region {grant.region} while {others} may write there")
        self.grants[grant.epoch] = grant
        self.used.add(grant.epoch)

    def copy(self, check: Checks, event: Copied) -> None:
        header = event.header
        grant = self.grants.get(header.epoch) if header is not None else None
        own = grant is not None and header is not None and (grant.port, grant.region) == (event.port, header.region)
        pages = {p for place in event.places if own and grant and place.handle == grant.region for p in place.pages()}
        if self.computing:  # training writes these while copies go on
            pages |= {p for place in event.places if place.kind in COMPUTED for p in place.pages()}
        check(event.wrote <= pages, f"a record on port {event.port} wrote beyond what it was granted ({header})")
        check(
            own or event.refused is not None, f"a record on port {event.port} was accepted without a grant ({header})"
        )


def law_2_no_grant_without_the_scrub_proof_of_the_last_use(case: Case) -> Checks:
    """Between two grants of a region lies its scrub (by command, or by the GPU itself when a life begins), whose read-back says zeros,
    and zeros is what memory really holds when the grant is installed."""
    check, used = Checks(), set[int]()
    for event in case.timeline:
        match event:
            case Wiped() | LifeBegan():
                used = set()
            case Ran(command=gpu.Scrub(region=region), refused=None, answer=answer):
                place = _place(event, region)
                proven = answer.digest == zeros_digest(place.length).hex() and answer.length == place.length
                check(proven, f"the scrub of region {region} was answered without the proof of zeros")
                used.discard(region)
            case Ran(command=gpu.InstallGrant(grant=grant), refused=None):
                check(grant.region not in used, f"region {grant.region} was granted again without a scrub in between")
                held = content(event.before, [_place(event, grant.region)])
                check(not any(held), f"region {grant.region} was granted to {grant.holder} with bytes in it")
                used.add(grant.region)
    return check


def _place(event: Ran, handle: int) -> Place:
    return next(place for place in event.places if place.handle == handle)


def law_3_fence_drain_upload_verify_train(case: Case) -> Checks:
    """From its grant to its end, each visit sees these commands in this order and no others of their kinds; looking before the fence is
    a bug even if nothing comes of it."""
    check, taken_back = Checks(), set[str]()
    for at, event in enumerate(case.timeline):
        match event:
            case Ran(command=gpu.InstallGrant(grant=grant), refused=None):
                steps = tuple(_steps(case.timeline[at + 1 :], grant, check))
                visit = f"visit {grant.visit} to {grant.holder}"
                check(steps == RETURN[: len(steps)], f"{visit} was taken back in the order {' → '.join(steps)}")
                taken_back |= {grant.visit} if steps == RETURN else set()
            case Ran(command=gpu.Train() | gpu.TrainTour(), refused=None):
                for visit in _visits(event.command):
                    check(visit in taken_back, f"visit {visit} was trained on without having been taken back")
    return check


def _visits(command: Any) -> list[str]:
    return [part.visit for part in command.parts] if isinstance(command, gpu.TrainTour) else [command.visit]


def _steps(events: list[Any], grant: Grant, check: Checks) -> Iterator[str]:
    verified = waits = False  # what waits for its tour's training sees the next visits granted and taken back meanwhile
    for event in events:
        if isinstance(event, Wiped | LifeBegan):
            return
        if not isinstance(event, Ran) or event.refused is not None:
            continue
        waits = waits or (verified and isinstance(event.command, gpu.InstallGrant))
        match event.command:
            case gpu.Drain() | gpu.UploadProgram() | gpu.Measure() | gpu.RollBack() if waits:
                continue
            case gpu.TrainTour(parts=parts) if grant.region in {part.region for part in parts}:
                yield "train"
                return
            case gpu.OpenEpoch(kills=kills) if grant.epoch in kills:
                yield "fence"
            case gpu.Drain():
                check(event.answer.outstanding == 0, f"work was outstanding after the drain of visit {grant.visit}")
                yield "drain"
            case gpu.UploadProgram():
                yield "upload"
            case gpu.Measure():
                verified = True
                yield "verify"
            case gpu.Train(region=grant.region):
                yield "train"
                return
            case gpu.Evaluate(region=region) if _kind(event, region) is RegionKind.DATASET:
                yield "evaluate"
            case gpu.Scrub(region=grant.region) | gpu.RollBack():
                return
            case gpu.InstallGrant(grant=other) if (
                other.region == grant.region
            ):  # another region's may be loaded ahead meanwhile
                return


def _kind(event: Ran, handle: int) -> RegionKind:
    return _place(event, handle).kind
