"""The one place where the holder's parts meet: settings in, a wired holder out. The parts themselves know only what they are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from data_holder.approvals import Approvals
from data_holder.bounce import BounceLink
from data_holder.catalogue import Catalogue
from data_holder.channel import Channels, Verifier
from data_holder.commitments import Commitments
from data_holder.heads import HeadStatements
from data_holder.identity import OwnKeys, Tokens, load_identity
from data_holder.introductions import Introductions
from data_holder.keyring import Keyring, RecoveryKey
from data_holder.ledger import Ledger
from data_holder.links import GpuLink, LinkCounters, OrchestratorLink
from data_holder.long_reads import LongReads
from data_holder.policy import Policy, load_policy
from data_holder.receipt_book import ReceiptBook
from data_holder.recovery import ShareBook
from data_holder.retention import Retention
from data_holder.runner import Runner
from data_holder.settings import HolderSettings
from data_holder.share_release import ShareRelease
from data_holder.trust import load_anchors
from data_holder.visit_facts import VisitFacts
from data_holder.visits import Visits
from shared.canonical import sha256
from shared.claims.event_log import RUNTIME, Event
from shared.crypto.signing import PartyKey
from shared.errors import ConfigurationError
from shared.names import Role
from shared.service.changes import Stopping
from shared.service.clock import Clock, Entropy
from shared.service.configuration import configuration
from shared.service.evidence import EvidenceProvider, open_provider
from shared.service.guest import Guest
from shared.service.http import Peers
from shared.service.idempotency import Replies
from shared.service.key_folder import KeyFolder
from shared.service.rim_fetcher import rim_fetcher
from shared.service.signatures import SignedAuth
from shared.service.store import Store
from shared.wire.visit import VisitReport


@dataclass(frozen=True)
class Foundation:
    """What exists before the application: identity, tokens, policy, trust. Reading it fails early, with a remedy."""

    settings: HolderSettings
    keys: OwnKeys
    tokens: Tokens
    operators: KeyFolder | None
    policy: Policy | None
    verifier: Verifier
    guest: Guest
    recovery: RecoveryKey | None

    @property
    def key(self) -> PartyKey:
        """The enrolled key."""
        return self.keys.current


@dataclass(frozen=True)
class Holder:
    """The wired holder that the API serves and the runner drives."""

    foundation: Foundation
    store: Store
    ledger: Ledger
    catalogue: Catalogue
    approvals: Approvals
    introductions: Introductions
    visits: Visits
    runner: Runner
    orchestrator: OrchestratorLink
    gpu: LinkCounters
    peers: Peers
    replies: Replies
    reads: LongReads


def lay_foundation(
    settings: HolderSettings,
    entropy: Entropy,
    *,
    verifier: Verifier | None = None,
    evidence: EvidenceProvider | None = None,
) -> Foundation:
    """Read everything from disk that must be right before the service starts. Raises: ConfigurationError."""
    policy = load_policy(settings.policy) if settings.policy is not None else None
    if settings.approve == "policy" and policy is None:
        raise ConfigurationError("approve is `policy` but no policy file is named", remedy="Set policy to a TOML file")
    return Foundation(
        settings,
        load_identity(settings.data_dir, settings.name),
        Tokens(settings.data_dir, entropy),
        KeyFolder(settings.operator_keys, "operator_keys", Role.HOLDER) if settings.operator_keys else None,
        policy,
        verifier
        or load_anchors(
            settings.trust_dir,
            allow_emulated=settings.allow_emulated,
            rims=rim_fetcher(settings.rim_service),
            collateral_url=settings.collateral_url,
        ),
        _guest(
            settings,
            evidence
            or open_provider(
                settings.evidence, token_file=settings.evidence_token_file, sealing_key_file=settings.sealing_key_file
            ),
        ),
        RecoveryKey.read(settings.recovery_key_file) if settings.recovery_key_file is not None else None,
    )


def _guest(settings: HolderSettings, quoting: EvidenceProvider) -> Guest:
    """This CVM, which measures how it is configured before it says anything about itself; the policy, which its operator may change
    between starts, goes to the runtime register by digest."""
    backend, values = settings.evidence.partition(":")[0], settings.model_dump()
    boot = configuration("data_holder", backend=backend, trust_dir=settings.trust_dir, settings=values)
    if settings.policy is not None:
        digest = sha256(settings.policy.read_bytes()).hex()
        boot = (*boot, Event(register=RUNTIME, type="policy", content={"sha256": digest}))
    return Guest(quoting, boot)


def assemble(
    foundation: Foundation, store: Store, peers: Peers, stopping: Stopping, *, clock: Clock, entropy: Entropy,
    watch: Callable[[VisitReport], None] = lambda report: None,
) -> Holder:  # fmt: skip
    """Introduce the parts to one another. Connects nothing. `watch` is told of each visit's report."""
    settings, key, folder = foundation.settings, foundation.key, foundation.settings.data_dir
    peer = peers.peer(settings.orchestrator_url, "the orchestrator", auth=SignedAuth(key, clock, entropy))
    link, gpu, ledger = OrchestratorLink(peer), LinkCounters(), Ledger(store, clock)
    reads = LongReads(lambda: stopping.is_set)
    catalogue = Catalogue(settings.name, store, settings.datasets, folder / "converted", clock, reads, ledger.spoilt)
    commitments = Commitments(settings.name, catalogue, folder / "trees", reads)
    approvals = Approvals(
        name=settings.name, keys=foundation.keys, ledger=ledger, store=store, catalogue=catalogue, commitments=commitments, link=link,
        clock=clock, policy=foundation.policy, automatic=settings.approve == "policy", default_dataset=settings.dataset,
    )  # fmt: skip
    heads = HeadStatements(key=key, ledger=ledger, approvals=approvals, link=link)
    facts, shares = VisitFacts(ledger, clock, watch), ShareBook(store, entropy)
    channels = Channels(
        name=settings.name, key=key, link=link, ledger=ledger, guest=foundation.guest,
        verifier=foundation.verifier, shares=shares, clock=clock, entropy=entropy,
    )  # fmt: skip
    visits = Visits(
        ledger=ledger, approvals=approvals, channels=channels, commitments=commitments, link=link,
        gpu_link=_GpuLinks(peers, gpu).to, agent_url=settings.agent_url, prepare_bytes=settings.prepare_bytes,
        clock=clock, entropy=entropy, facts=facts, bounce=BounceLink(settings.bounce_socket, settings.prepare_bytes),
    )  # fmt: skip
    lives = Introductions(ledger=ledger, approvals=approvals, link=link, verifier=foundation.verifier, clock=clock)
    receipts = ReceiptBook(ledger=ledger, approvals=approvals, store=store, facts=facts, link=link, introductions=lives)  # fmt: skip
    release = ShareRelease(
        shares=shares, ledger=ledger, approvals=approvals, link=link, verifier=foundation.verifier, clock=clock,
        entropy=entropy,
    )  # fmt: skip
    runner = Runner(
        ledger=ledger, approvals=approvals, heads=heads, channels=channels, visits=visits, receipts=receipts, link=link,
        catalogue=catalogue, commitments=commitments, shares=shares, release=release, wait_s=settings.inbox_wait_s, stopping=stopping,
        keyring=Keyring(store, foundation.guest, settings.name, foundation.recovery, entropy), clock=clock,
        retention=Retention(store, ledger, commitments, catalogue, clock, settings.keep_finished_s),
    )  # fmt: skip
    return Holder(
        foundation, store, ledger, catalogue, approvals, lives, visits, runner, link, gpu, peers, Replies(store, clock), reads,
    )  # fmt: skip


class _GpuLinks:
    """One client per agent address, kept open: a visit must not pay for a connection. All count into one pair of counters."""

    def __init__(self, peers: Peers, counters: LinkCounters) -> None:
        self._peers, self._counters = peers, counters
        self._links: dict[str, GpuLink] = {}

    def to(self, url: str) -> GpuLink:
        """The link to the agent at `url`. Raises: BadRequest for an address that is not http."""
        if url not in self._links:
            self._links[url] = GpuLink(self._peers.peer(url, "the GPU agent"), self._counters)
        return self._links[url]
