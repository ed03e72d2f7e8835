"""Monitors of laws L7 and L8: what is left in GPU memory after a scrub, and that only the committed model is ever trained on."""

from __future__ import annotations

from collections.abc import Collection

from shared.names import RegionKind
from shared.wire import gpu
from tests.laws.case import Case, Checks
from tests.laws.witness import LifeBegan, Ran, Tampered, Wiped
from tests.world.world_memory import KEPT, MODEL, Image, Place, changed, content


def law_7_a_scrub_leaves_the_model_and_nothing_else(case: Case) -> Checks:
    """After each scrub all of HBM, allocated or not, is as it was when the GPU was set up, but for model, optimiser state and their
    committed copy, and in those there is no window of anybody's record; but for regions that were published, fenced and not scrubbed yet:
    those of a collected tour wait for a scrub each. A new life finds nothing but these and what setup placed; a wipe leaves nothing."""
    check, setup, tampered, waiting = Checks(), None, set[int](), set[int]()
    for event in case.timeline:
        match event:
            case Wiped(after):
                check(not after, f"after a wipe {len(after)} pages of GPU memory are not zero")
                setup, tampered, waiting = None, set(), set()
            case Ran(command=gpu.OpenEpoch(), refused=None):
                waiting |= {content.region for content in event.answer.fenced if content.published}
            case Tampered(page):
                tampered.add(page)
            case Ran(command=gpu.SetReady(), refused=None) if setup is None:
                setup = event.after
            case Ran(command=gpu.Scrub(region=region), refused=None) if setup is not None:
                waiting.discard(region)
                theirs = {page for place in event.places if place.handle in waiting for page in place.pages()}
                other = changed(setup, event.after) - _kept(event.places) - tampered - theirs
                _clean(case, check, "a scrub", event, other, theirs)
            case LifeBegan(after=after) if setup is not None:
                waiting.clear()
                other = (changed(setup, after) & after.keys()) - _kept(event.places) - tampered
                _clean(case, check, "a new life", event, other)
    return check


def _kept(places: tuple[Place, ...]) -> set[int]:
    return {page for place in places if place.kind in KEPT for page in place.pages()}


def _clean(
    case: Case, check: Checks, what: str, event: Ran | LifeBegan, other: set[int], waiting: Collection[int] = ()
) -> None:
    kinds = sorted({next((p.kind.value for p in event.places if page in p.pages()), "no region") for page in other})
    check(not other, f"after {what} {len(other)} pages differ from the post-setup image, in {kinds}")
    for holder, needles in case.records.items():
        left = needles.inside.find(b"".join(data for page, data in event.after.items() if page not in waiting))
        check(not left, f"after {what} {len(left)} windows of {holder}'s records are in GPU memory")


def no_copy_of_a_model_is_left_that_was_not_committed(case: Case) -> Checks:
    """After a scrub, and after a new life, each place for a committed copy holds nothing, or what it once held at a commit (law L7); but
    while a visit's model waits to be committed, which is copied ahead."""
    check, known, tampered, waits = Checks(), set[bytes](), set[int](), False
    for event in case.timeline:
        match event:
            case Wiped():
                known, tampered, waits = set(), set(), False
            case Tampered(page):
                tampered.add(page)
            case Ran(command=gpu.InitModel() | gpu.Restore() | gpu.Commit(), refused=None):
                waits = False
                known |= {content(event.after, [place]) for place in _copies(event)}
            case Ran(command=gpu.Train() | gpu.TrainTour() | gpu.EndTour(), refused=None):
                waits = True
            case Ran(command=gpu.RollBack(), refused=None):
                waits = False
            case Ran(command=gpu.Scrub(), refused=None) | LifeBegan() if not (waits and isinstance(event, Ran)):
                waits = False
                for place in _copies(event):
                    found = content(event.after, [place])
                    fine = not any(found) or found in known or bool(tampered & set(place.pages()))
                    check(fine, f"a copy of a model that was never committed lies at {place.address:#x}")
    return check


def _copies(event: Ran | LifeBegan) -> list[Place]:
    return [place for place in event.places if place.kind is RegionKind.COMMITTED]


def law_8_only_the_committed_model_goes_on(case: Case) -> Checks:
    """What lies in model and optimiser when training begins is byte for byte what was last committed; a roll-back restores exactly that;
    only trained state is committed; and a visit after which read-back finds anything else is never closed."""
    check, broken = Checks(), list[str]()
    committed: bytes | None = None
    visit = trained = digest = ""
    done: set[str] = set()
    for event in case.timeline:
        match event:
            case Wiped():
                committed, visit, trained = None, "", ""
                done.clear()
            case Ran(command=gpu.InstallGrant(grant=grant), refused=None):
                visit = grant.visit
            case Ran(command=gpu.InitModel() | gpu.Restore(last=True), refused=None):
                committed, digest = _model(event, event.after), event.answer.model
            case Ran(command=gpu.Measure(), refused=None) if visit and _model(event, event.before) != committed:
                broken.append(visit)
            case Ran(command=gpu.Train() | gpu.TrainTour() | gpu.EndTour(), refused=None):
                check(
                    _model(event, event.before) == committed,
                    f"visit {visit} trains another model than the committed one",
                )
                trained = event.command.work
            case Ran(command=gpu.Commit(work=work), refused=None) if work in done:
                # A repeat, as a new life asks what became of the work: it is answered from memory, and nothing may happen.
                check(
                    _model(event, event.after) == _model(event, event.before), f"a repeat of {work} changed the model"
                )
                check(
                    _model(event, event.after) == committed, f"{work} is said to be committed, and the model is another"
                )
            case Ran(command=gpu.Commit(work=work), refused=None):
                done.add(work)
                check(work == trained, f"the model was committed as {work}, which is not what was trained")
                committed, digest = _model(event, event.after), event.answer.model
            case Ran(command=gpu.RollBack(), refused=None):
                check(_model(event, event.after) == committed, f"visit {visit} was rolled back to another model")
                trained = ""
    for visit in broken:
        outcome = next((v["outcome"] for v in case.visits if v["id"] == visit), None)
        check(
            outcome not in ("closed", "rejected"),
            f"visit {visit} found another model after its fence and was {outcome}",
        )
    model = case.view.get("model")
    if model is not None:
        check(model["digest"] == digest, "the released model is not the last committed one")
    return check


def _model(event: Ran, pages: Image) -> bytes:
    return content(pages, [place for place in event.places if place.kind in MODEL])
