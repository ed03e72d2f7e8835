"""Sealing ahead: the next holder has its key, and seals, while the GPU trains; it writes once the GPU is there. Knows no step's inside.

The next visit is planned while this one is away, its epoch is opened with this one's fence, its key is offered during this one's training,
and its grant is installed behind this one's scrub, in the same frame (law L2). Until then the key opens nothing. What goes wrong with this
visit goes wrong with that plan: it is dropped, its epoch killed, and the stop planned anew when it is due.
"""

from __future__ import annotations

from orchestrator.gpu_session.life import Batch
from orchestrator.holders.arrivals import Recall
from orchestrator.itinerary import PlannedVisit
from orchestrator.visits.following import following
from orchestrator.visits.granting import Granted, Wanted, check_installed, tell, want
from orchestrator.visits.planning import plan
from orchestrator.visits.run import Run
from shared.wire.gpu import InstallGrant
from shared.wire.gpu_answers import GrantInstalled

LEASE_SHARE = 4
"""A training that takes more than the lease ÷ this would eat too much of the lease of who seals meanwhile."""


def plan_ahead(run: Run) -> None:
    """Plan the stop behind the visit under way, if its holder may seal while the GPU trains; that is being made durable, with all else.

    A checkpoint that is due then does not matter: the grant is installed after it.
    """
    stop = _stop(run)
    if stop is not None:
        plan(run, stop, behind=run.visit)
    with run.watch.step("plan"):
        run.begin_commit()


def _stop(run: Run) -> PlannedVisit | None:
    manifest, stop = run.state.manifest, following(run)
    if stop is None or stop.holder == run.visit.holder:  # it still waits for this visit's receipt
        return None
    if run.travel.whole_gpu or manifest.privacy is not None or manifest.collect == "tour":
        return None
    rule = manifest.validation
    if rule is not None and (rule.patience is not None or rule.release is not None):  # its check may end the session
        return None
    if run.just_trained is None or run.just_trained * LEASE_SHARE > manifest.lease_s:
        return None
    return stop if run.channels.ready(stop.holder) is not None else None


def to_open(run: Run) -> Wanted | None:
    """The visit whose epoch is to be opened with the fence of the one under way; its holder's one-time key is taken."""
    ahead = run.state.ahead
    channel = None if ahead is None or run.travel.ahead else run.channels.ready(ahead.holder)
    return None if ahead is None or channel is None else want(run, channel, ahead)


async def offer_ahead(run: Run) -> None:
    """Give the next holder its key, if there is one and it was not called back. Raises: Unavailable: the database refused."""
    if run.drawn is None or run.arrivals.called_back(run.drawn.visit.id) is not None:
        return
    try:
        await tell(run, run.drawn)
    except Recall as why:  # it is dropped when it is due
        run.arrivals.recall(run.drawn.visit.id, why.reason, blame=why.blame)


def to_install(run: Run) -> Granted | None:
    """What is to be installed behind the scrub of the visit under way; None where something else comes first."""
    granted = run.drawn
    if granted is None or run.leaving() or run.interrupted() or _fault(run, granted):
        return None
    return granted


def installed(run: Run, batch: Batch) -> None:
    """The grant stands, as `batch` ends with saying. Raises: VerificationFailed: it is not the one whose key was told."""
    granted, run.drawn = run.drawn, None
    if granted is not None:
        check_installed(granted, batch.answer(-1, GrantInstalled))


async def install(run: Run) -> None:
    """Install by itself what did not go with the end of the visit before.

    Raises:
        Recall: it may not stand any more. CommandRefused, Unavailable, VerificationFailed.
    """
    granted = run.drawn
    if granted is None:
        raise Recall("its holder's channel was not ready when its key was due", blame=False)
    if (why := run.arrivals.called_back(granted.visit.id)) is not None:
        raise why
    if fault := _fault(run, granted):
        raise Recall(fault, blame=False)
    await run.commit()
    installed(run, await run.life.batch([InstallGrant(grant=granted.grant)]))
    run.journey.begin(granted.visit.holder)


def _fault(run: Run, granted: Granted) -> str:
    """Why a grant that was drawn ahead is not to be installed any more; empty if nothing speaks against it."""
    if granted.visit.holder not in run.state.active:
        return "its holder takes no part any more"
    if (why := run.arrivals.called_back(granted.visit.id)) is not None:
        return why.reason
    left = granted.grant.expires_at - run.clock()
    return "" if left > run.state.manifest.lease_s / 2 else "too much of its lease has gone while the GPU trained"
