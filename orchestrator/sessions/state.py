"""A session's state: its journal, folded. The same function folds history and applies the newest fact. Knows no storage.

Nothing here is believed from a projection row: the manifest comes verified, the facts come from the verified journal.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from orchestrator.itinerary import Itinerary, PlannedVisit
from orchestrator.ledger.tree import MerkleTree
from orchestrator.sessions.agreement import Finding, compare
from orchestrator.sessions.effects import HANDLERS
from orchestrator.sessions.going_back import Behind
from orchestrator.sessions.remembered import ApprovedDataset, Checkpoint, Inherited, JudgedTour, ModelState, Placement
from orchestrator.sessions.stopping import Check, enough, newly_best
from orchestrator.sessions.visit_state import VisitState
from shared.claims.manifest import Manifest
from shared.claims.profile import DatasetProfile
from shared.errors import VerificationFailed
from shared.names import Role, SessionPhase
from shared.protocol.session import SESSION, SessionFact


@dataclass
class SessionState:
    """Everything a decision about the session reads."""

    id: str
    manifest: Manifest
    owner: str
    gpu: str
    owner_key: str = ""  # fingerprint of the key that signed the manifest
    phase: SessionPhase = SESSION.initial
    seq: int = 0
    updated_at: float = 0.0
    decisions: dict[str, str] = field(default_factory=dict)
    # By holder: each of its signed decisions (document -> signature, base64), the standing one last.
    words: dict[str, dict[str, str]] = field(default_factory=dict)
    # By holder; a later refusal or veto takes none away.
    datasets: dict[str, ApprovedDataset] = field(default_factory=dict)
    compared: list[Finding] | None = (
        None  # `unlike`, once it was asked for; None again with every change of who takes part
    )
    # (life, boot counter) asked for since the last opened life.
    claims: list[tuple[int, int]] = field(default_factory=list)
    life: int = 0
    boot_counter: int = 0
    device: str | None = None
    backend: str | None = None
    signing_key: str | None = None
    placement: Placement | None = None
    start_model: str | None = None  # digest that the given weights must have in the GPU; None: no weights were given
    inherited: Inherited | None = None  # what it begins with; None: no predecessor
    initial: ModelState | None = None
    committed: ModelState | None = None
    # By round: failed ends of a tour that has not ended yet
    tour_failures: dict[int, int] = field(default_factory=dict)
    # By stop that does not lie behind us: works on its records under which the compute processes died.
    outages: dict[int, int] = field(default_factory=dict)
    # By holder: visits in a row from which the GPU's memory came back as something else.
    breaks: dict[str, int] = field(default_factory=dict)
    judged: JudgedTour | None = None  # a tour whose end the GPU was about to make the committed one
    position: int = 0  # stops of the itinerary that are behind us: closed, rejected or skipped
    attempts: int = 0  # attempts at the next stop
    blamed: int = 0  # of those, the ones that ended by the holder's fault or absence
    setback: str = ""  # why the last of those ended so
    last_epoch: int = 0
    current: VisitState | None = None
    ahead: VisitState | None = None  # offered while the current visit trains; becomes the current one with its close
    # Where tours are collected: visits of the round that wait in the GPU, verified, to be trained on together; by stop.
    gathered: list[VisitState] = field(default_factory=list)
    visits_planned: int = 0
    visits_closed: int = 0
    records_done: dict[str, int] = field(default_factory=dict)
    updates: dict[int, float] = field(default_factory=dict)  # size of the newest accepted updates, by index
    # Where training is private: last round that trained on a holder's records
    rounds_spent: dict[str, int] = field(default_factory=dict)
    # Where training is private: stop -> the model it began with
    trained: dict[int, ModelState | None] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)  # visits of a holder that were rejected
    quarantined: list[str] = field(default_factory=list)  # holders that are visited no more
    distrusted: list[str] = field(default_factory=list)  # of those, the ones that broke the GPU's integrity
    traffic: dict[str, int] = field(default_factory=dict)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    tree: MerkleTree = field(default_factory=MerkleTree)
    offered_heads: dict[str, int] = field(default_factory=dict)  # log size last shown to each holder
    first_validation: float | None = None
    checks: list[Check] = field(default_factory=list)  # held-out checks that can decide whether it goes on
    checked_at: int = 0  # stops that lay behind at the newest held-out check, whatever it found
    unchecked: bool = (
        False  # whether the committed model learnt since the newest check that was not followed by a roll-back
    )
    behind: dict[str, Behind] = field(default_factory=dict)  # by checkpoint: what goes back with it
    best: Checkpoint | None = None  # of the least held-out loss, where the manifest releases that model
    best_before: Checkpoint | None = None  # which was it before, and is it again if a restore goes back behind the best
    chosen: bool = False  # the GPU was about to go back to it
    stopped: str = ""  # why no visit follows, though the itinerary has more
    exported: dict[str, Any] | None = None
    failure: dict[str, str | None] | None = None
    pause_asked: bool = False  # by the owner, and not begun yet
    paused_at: float | None = None  # since when it stands paused
    cancel_asked: bool = False
    asked_by: str = ""

    def __post_init__(self) -> None:
        self.itinerary = Itinerary(self.manifest)
        self.manifest_digest = self.manifest.digest().hex()

    def twin(self) -> SessionState:
        """The same state once more, to be folded on apart from this one; manifest and itinerary never change and are shared."""
        return copy.deepcopy(self, {id(same): same for same in (self.manifest, self.itinerary)})

    # ------------------------------------------------------------ questions

    @property
    def ended(self) -> bool:
        """Whether nothing can happen any more."""
        return SESSION.final(self.phase)

    @property
    def quorum(self) -> int:
        """Approvals the manifest asks for."""
        return self.manifest.quorum or len(self.manifest.roster)

    @property
    def active(self) -> tuple[str, ...]:
        """Holders that approved, did not veto and are not quarantined, in roster order."""
        said_yes = (e.holder for e in self.manifest.roster if self.decisions.get(e.holder) == "approve")
        return tuple(holder for holder in said_yes if holder not in self.quarantined)

    @property
    def profiles(self) -> dict[str, DatasetProfile | None]:
        """What each holder that takes part says of its dataset; None: nothing."""
        known = ((holder, self.datasets.get(holder)) for holder in self.active)
        return {holder: None if dataset is None else dataset.profile for holder, dataset in known}

    @property
    def unlike(self) -> list[Finding]:
        """In what the datasets of those that take part differ; asked for with every commit, so compared once."""
        if self.compared is None:
            self.compared = compare(self.profiles)
        return self.compared

    def may_skip(self, holder: str) -> bool:
        """Whether enough others remain for the manifest's quorum when this holder's visit is left out."""
        return len([name for name in self.active if name != holder]) >= self.quorum

    @property
    def open_visits(self) -> tuple[VisitState, ...]:
        """The current visit and the one ahead of it, as far as there are any, and those that wait for their tour's training."""
        return (*(visit for visit in (self.current, self.ahead) if visit is not None), *self.gathered)

    def spent_in_vain(self, index: int) -> bool:
        """Whether a stop was trained on with another model before, which a reset of the GPU took away: once more would be with other noise,
        and its records would spend their privacy twice."""
        before = self.trained.get(index)
        return before is not None and before.weights != (self.committed and self.committed.weights)

    def next_stop(self, behind: int | None = None) -> PlannedVisit | None:
        """The next stop at an active holder (after stop `behind`); None when there is none left. Stops at others, and those whose visit
        waits to be trained on, are passed over."""
        waiting = {visit.index for visit in self.gathered}
        for index in range((self.position if behind is None else behind) + 1, self.itinerary.length + 1):
            stop = self.itinerary.visit(index)
            if stop.holder in self.active and index not in waiting:
                return stop
        return None

    def check_due(self, position: int) -> bool:
        """Whether a model with that many stops behind it is checked: with every so many stops, also passed over ones, and with the last."""
        rule = self.manifest.validation
        if rule is None:
            return False
        return position // rule.every_visits > self.checked_at // rule.every_visits or self.next_stop(position) is None

    @property
    def learnt_enough(self) -> str:
        """Why the session ends before its itinerary does; empty while it goes on."""
        rule = self.manifest.validation
        return enough(self.checks, rule.patience if rule is not None else None)

    @property
    def releases_best(self) -> bool:
        """Whether the finished model is that of the least held-out loss, and not the last one."""
        return self.manifest.validation is not None and self.manifest.validation.release == "best"

    @property
    def best_unsealed(self) -> bool:
        """Whether the model is the best so far, may be released, and lies in the GPU alone. A file that was passed over, when the first
        model was made anew, may have been this one's: it does not count."""
        newest = self.best if self.best in self.checkpoints else None
        sealed = newest is not None and newest.position == self.position
        return self.releases_best and not sealed and newly_best(self.checks, self.position)

    @property
    def to_go_back_to(self) -> Checkpoint | None:
        """The checkpoint whose model is to be released, unless it is the committed one."""
        same = (
            self.best is not None and self.committed is not None and self.best.state.weights == self.committed.weights
        )
        return None if same else self.best

    @property
    def tour_due(self) -> int | None:
        """The round whose accumulated gradients are all there; None while it has a stop before it, or nothing is accumulated."""
        if self.committed is None or not self.committed.batches:
            return None
        # Stops are left out by advancing the position or by passing over them; either way the last one behind us is of the round.
        round_number, stop = self.itinerary.visit(self.position).round, self.next_stop()
        return round_number if stop is None or stop.round > round_number else None

    @property
    def collected(self) -> int | None:
        """The round whose visits all wait in the GPU; None while it has a stop before it, or none waits."""
        if not self.gathered:
            return None
        round_number, stop = self.gathered[0].round, self.next_stop()
        return round_number if stop is None or stop.round > round_number else None

    # ------------------------------------------------------------ facts

    def apply(self, kind: str, body: dict[str, Any], at: float) -> None:
        """Fold one fact in.

        Raises:
            ProtocolViolation: the tables do not allow it here; nothing changed.
        """
        machine, _, fact = kind.partition(".")
        if machine == "session":
            before, self.phase = self.phase, SESSION.after(self.phase, SessionFact(fact), Role(body["by"]))
            if self.phase is not before:
                self.paused_at = at if self.phase is SessionPhase.PAUSED else None
        elif fact == "planned":
            self._planned(body, at)
        elif machine in ("visit", "training"):
            # Several, where a tour's visits are trained on together.
            for visit in [self.open_visit(one) for one in body.get("visits") or [body["visit"]]]:
                visit.move(machine, fact, Role(body["by"]), body, at)
        handler = HANDLERS.get(kind)
        if handler is not None:
            handler(self, body)
        if "leaf" in body:
            self._grow(body["leaf"])
        self.seq += 1
        self.updated_at = at

    def open_visit(self, visit: str) -> VisitState:
        """Raises: VerificationFailed `journal-inconsistent`: it is not open."""
        for found in self.open_visits:
            if found.id == visit:
                return found
        raise VerificationFailed(f"{visit} is not a visit that is open", code="journal-inconsistent")

    def _planned(self, body: dict[str, Any], at: float) -> None:
        self.visits_planned += 1
        self.judged = None  # what was judged before was done before, or never will be
        self.chosen = False  # a late approval brought a stop: what is released is chosen anew behind it
        self.last_epoch = max(self.last_epoch, body["fence_epoch"])
        visit = VisitState.planned(body, self.visits_planned, at)
        if body["ahead"]:
            self.ahead = visit
        else:
            self._begin(visit)

    def _begin(self, visit: VisitState) -> None:
        if visit.index - 1 != self.position:
            self.position, self.attempts, self.blamed = visit.index - 1, 0, 0
        self.attempts += 1
        self.current = visit

    def _grow(self, leaf: dict[str, Any]) -> None:
        if leaf["index"] != self.tree.size:
            raise VerificationFailed("The log's leaves are out of order in the journal", code="journal-inconsistent")
        self.tree.append(bytes.fromhex(leaf["hash"]))

    def advance(self) -> None:
        """The stop lies behind us."""
        self.position, self.attempts, self.blamed = self.position + 1, 0, 0

    def go_back_to(self, index: int) -> None:
        """The stop lies before us again."""
        if index <= self.position:
            self.position, self.attempts, self.blamed = index - 1, 0, 0

    def let_go(self, visit: VisitState) -> bool:
        """The visit waits to be trained on no more; whether it was the last. With that its round lies behind us."""
        self.gathered.remove(visit)
        if not self.gathered:
            self.position, self.attempts, self.blamed = visit.round * len(self.manifest.roster), 0, 0
        return not self.gathered

    def count(self, **amounts: int) -> None:
        """Add to the traffic counted so far."""
        for name, amount in amounts.items():
            self.traffic[name] = self.traffic.get(name, 0) + amount
