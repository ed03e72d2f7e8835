"""The session manifest: everything that is agreed before anything runs. Knows no storage, no wire, no signature."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from shared.canonical import json_bytes, json_value, sha256
from shared.claims import Claim, Grown
from shared.claims.privacy import Privacy
from shared.claims.program import HexSha256, HexSha384
from shared.claims.snp_rules import SnpRules
from shared.claims.tdx_policy import TdxPolicy
from shared.claims.training import TrainingOptions
from shared.names import TravelMode

PartyName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
KeyFingerprint = HexSha256
DeviceId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
MAX_AGE_S = 86_400  # of a proof, where a manifest does not say


class GpuRules(Claim):
    """What the parties accept of a GPU; the defaults are strict. NVIDIA's words for `modes`: single-GPU passthrough, multi-GPU passthrough,
    protected PCIe."""

    modes: tuple[Literal["spt", "mpt", "ppcie"], ...] = Field(
        default=("spt",), min_length=1, description="how the GPU may be passed through"
    )
    devices: tuple[DeviceId, ...] = Field(default=(), description="permanent identities (PDI) of GPUs; any if empty")
    firmware_without_id: bool = Field(default=False, description="accept firmware older than 550, which names no id")
    expired_reference_values: bool = Field(
        default=False, description="accept genuine reference values (RIM) whose signer's certificate has run out"
    )
    revocation: Literal["if-stapled", "required"] = Field(
        default="if-stapled", description="whether OCSP responses must accompany every chain"
    )
    certificate_hold: bool = Field(default=False, description="accept certificates that OCSP says are on hold")


class EvidencePolicy(Grown):
    """What a peer must prove. `roots` names the trust-root sets that count; EMULATED ones are refused unless named here
    *and* allowed by the verifier's own configuration (law L10). Empty `measurements` means: those of the reference
    values that the verifier is configured with, never "any"."""

    later = ("gpu", "snp")
    roots: tuple[Literal["EMULATED", "NVIDIA", "INTEL", "AMD"], ...] = Field(min_length=1)
    measurements: tuple[HexSha384, ...] = ()
    max_age_s: int = Field(default=MAX_AGE_S, ge=60, le=30 * 86_400)
    gpu: GpuRules | None = Field(default=None, description="more about a GPU; strict rules if absent")
    tdx: TdxPolicy = Field(default=TdxPolicy(), description="what counts as a sound TDX platform")
    snp: SnpRules | None = Field(default=None, description="what counts as a sound SEV-SNP guest; defaults if absent")


class RosterEntry(Claim):
    """One data holder: its name, the SHA-256 fingerprint of its enrolled Ed25519 key, its share of the work."""

    holder: PartyName
    key: KeyFingerprint
    steps_per_visit: int | None = Field(default=None, ge=1, le=1_000_000)
    evidence: EvidencePolicy = EvidencePolicy(roots=("INTEL", "AMD"))


class Validation(Grown):
    """Held-out check by the session's owner: records lie in a region of their own; `every_visits` sets the cadence.

    `max_loss_increase`: a visit whose held-out loss rises by more than this (in the program's unit) is rolled back.
    """

    later = ("patience", "release")
    dataset: HexSha256 = Field(description="SHA-256 of the uploaded records")
    records: int = Field(ge=1, description="how many they are")
    every_visits: int = Field(
        default=1, ge=1, description="visits from one check to the next; the last is always checked"
    )
    max_loss_increase: float | None = Field(
        default=None, gt=0, description="a visit that raises the held-out loss by more is rolled back; no limit if null"
    )
    patience: int | None = Field(
        default=None, ge=1, le=1_000_000,
        description="checks in a row without a new least held-out loss after which the session ends early; never if absent",
    )  # fmt: skip
    release: Literal["best"] | None = Field(
        default=None, description="`best`: the model of the least held-out loss is the finished one; the last if absent"
    )


class Acceptance(Claim):
    """When a visit's result becomes part of the model, besides finite losses and the held-out check; what is not accepted is rolled back
    bit for bit. The size of an update is the norm of all parameter changes over the sum of the visit's learning rates."""

    max_update_ratio: float | None = Field(
        default=10.0,
        gt=1,
        le=1e6,
        description="times the median of the session's accepted updates that one may have; no limit if null",
    )
    history: int = Field(default=5, ge=1, le=1000, description="accepted updates from which on their size is compared")
    quarantine_after: int | None = Field(
        default=1, ge=1, le=1_000_000,
        description="rejected visits of a holder after which it is visited no more, where the others are a quorum; never if null",
    )  # fmt: skip


_NOT_WITH_PREDECESSOR = {
    "initial_weights": "a session starts from given weights (initial_weights) or from its predecessor's model, not from both",
    "privacy": "what its predecessor spent of a record's privacy would have to be added to what it spends, which is not accounted for yet",
    "accumulate": "a predecessor's steps are batches, and those of a session that accumulates are rounds",
}


class OutputPolicy(Claim):
    """Who may fetch the finished model: `owner`, with the key that signed this manifest; `holders`, those of the roster that take part."""

    release_to: tuple[Literal["owner", "holders"], ...] = ("owner",)


class Contributor(Claim):
    """A holder whose records a predecessor's model has learned from. `key`: as in the roster under which it last did; `records`: how many
    of its stream lie behind it, so that it goes on behind them where it takes part again."""

    holder: PartyName
    key: KeyFingerprint
    records: int = Field(ge=0, lt=2**53)


class Predecessor(Claim):
    """The ended session whose model, optimiser state and step this one goes on with, and everybody whose records are in them. All of it is
    read off at the orchestrator (`gput session succeed`) and checked there and by every holder, never chosen."""

    session: str = Field(pattern=r"^s_[0-9a-z]{16}$", description="its id")
    manifest: HexSha256 = Field(description="SHA-256 of its manifest")
    model: HexSha256 = Field(description="digest of the model that is gone on with")
    optimiser: HexSha256 = Field(description="digest of the optimiser's state beside it")
    step: int = Field(ge=1, lt=2**53, description="training steps behind it; schedules count on from here")
    log_size: int = Field(ge=1, lt=2**53, description="leaves of its log when it had ended")
    log_root: HexSha256 = Field(description="root of that log")
    contributors: tuple[Contributor, ...] = Field(
        min_length=1,
        max_length=4096,
        description="everybody whose records are in that model, its own predecessors' included",
    )


class Manifest(Grown):
    """Canonical JSON (RFC 8785) of this is what holders approve; a changed manifest is a new manifest (design 4.1)."""

    later = ("privacy", "recovery_shares", "accumulate", "predecessor", "continuation")
    format: Literal["gput-manifest/1"] = "gput-manifest/1"
    name: str = Field(min_length=1, max_length=80, pattern=r"^[^\x00-\x1f]*$", description="for people")
    program: HexSha384 = Field(description="program digest, from `gput program inspect`")
    initial_weights: HexSha256 | None = Field(
        default=None, description="start from these uploaded weights (SHA-256) instead of the program's own"
    )
    predecessor: Predecessor | None = Field(
        default=None, description="go on with an ended session's model and optimiser state; none if absent"
    )
    continuation: Literal["refused", "remaining"] | None = Field(
        default=None,
        description="whether another session may go on with this one's model: never, or also without some of those whose records it has "
        "learned from (`remaining`); if absent, only with all of them",
    )
    training: TrainingOptions = Field(description="optimiser, schedule, clipping, batch, seed")
    roster: tuple[RosterEntry, ...] = Field(min_length=1, max_length=256, description="the data holders")
    gpu_evidence: EvidencePolicy = Field(description="what the GPU must prove")
    orchestrator_evidence: EvidencePolicy = Field(description="what the orchestrator must prove to holders")
    rounds: int = Field(ge=1, le=1_000_000, description="passes over the roster")
    visit_order: Literal["roster", "shuffled"] = Field(
        default="roster", description="order of holders in a round: as in the roster, or drawn by the seed"
    )
    steps_per_visit: int = Field(ge=1, le=1_000_000, description="training steps in one visit")
    record_order: Literal["sequential", "shuffled"] = Field(
        default="sequential", description="order in which a holder's records are drawn"
    )
    buffer_bytes: int = Field(ge=4096, le=1 << 36, description="length of the dataset buffer in GPU memory")
    travel_mode: TravelMode = Field(
        default=TravelMode.SCOPED,
        description="what a holder gets of the GPU: a key to all of it, a key to its buffer, or no way to command it at all",
    )
    collect: Literal["visit", "tour"] = Field(
        default="visit",
        description="train after each visit; `tour`: once a round, on a shuffled mixture of the records of all its visits",
    )
    accumulate: Literal["tour"] | None = Field(
        default=None,
        description="`tour`: gradients of a round's visits add up in the GPU, and the round ends with one step; without, each batch is one",
    )
    verification: Literal["strict"] = Field(default="strict", description="all of code, model and control structures")
    privacy_floor: int = Field(
        default=1, ge=1, le=1_000_000, description="losses are never released over fewer different records"
    )
    loss_decimals: int = Field(default=4, ge=0, le=6, description="released losses are rounded to this")
    privacy: Privacy | None = Field(default=None, description="differential privacy for every record; none if absent")
    validation: Validation | None = Field(default=None, description="held-out check; none if absent")
    acceptance: Acceptance = Field(default=Acceptance(), description="what becomes part of the model")
    quorum: int | None = Field(default=None, ge=1, description="approvals needed; all of the roster if absent")
    recovery_shares: int | None = Field(
        default=None,
        ge=1,
        description="holders whose shares give the session's key to another orchestrator; all of the roster if absent",
    )
    lease_s: int = Field(default=60, ge=1, le=86_400, description="how long a holder may keep the GPU")
    output: OutputPolicy = Field(default=OutputPolicy(), description="who may fetch the finished model")
    gpus: int = Field(default=1, ge=1, le=1, description="GPUs of the session; only one so far")

    @model_validator(mode="after")
    def _roster_is_sound(self) -> Self:
        names = [entry.holder for entry in self.roster]
        if len(set(names)) != len(names):
            raise ValueError("a holder is named twice in the roster")
        if len({entry.key for entry in self.roster}) != len(names):
            raise ValueError("two holders of the roster have the same key")
        if self.quorum is not None and self.quorum > len(names):
            raise ValueError(f"quorum {self.quorum} exceeds the roster of {len(names)}")
        if self.recovery_shares is not None and self.recovery_shares > len(names):
            raise ValueError(f"recovery_shares {self.recovery_shares} exceeds the roster of {len(names)}")
        if any(policy.gpu for policy in (self.orchestrator_evidence, *(entry.evidence for entry in self.roster))):
            raise ValueError("rules for a GPU stand in the policy of a service; they belong into gpu_evidence")
        return self

    @model_validator(mode="after")
    def _gradients_may_add_up(self) -> Self:
        if self.accumulate is None:
            return self
        if self.travel_mode is TravelMode.PAPER:
            raise ValueError("accumulate: in travel mode paper each holder could read the gradients of those before it")
        if self.privacy is not None:
            raise ValueError(
                "accumulate: private training adds noise to each batch's step, and here a batch is no step"
            )
        return self

    @model_validator(mode="after")
    def _records_may_wait_for_one_another(self) -> Self:
        if self.collect == "visit":
            return self
        if self.accumulate is not None:
            raise ValueError(
                "collect: a round is trained on as one mixture, or its gradients add up (accumulate); not both"
            )
        if self.travel_mode is TravelMode.PAPER:
            raise ValueError("collect: in travel mode paper each holder could read the records of those before it")
        if self.privacy is not None:
            raise ValueError("collect: what privacy costs is accounted visit by visit, and a mixture is nobody's visit")
        return self

    @model_validator(mode="after")
    def _predecessor_can_be_gone_on_with(self) -> Self:
        if self.predecessor is None:
            return self
        names = [contributor.holder for contributor in self.predecessor.contributors]
        if len(set(names)) != len(names):
            raise ValueError("a holder is named twice among the predecessor's contributors")
        for field, given in (
            ("initial_weights", self.initial_weights),
            ("privacy", self.privacy),
            ("accumulate", self.accumulate),
        ):
            if given is not None:
                raise ValueError(f"predecessor: {_NOT_WITH_PREDECESSOR[field]}")
        return self

    @property
    def steps_behind(self) -> int:
        """Training steps that its predecessor's model has behind it; 0 without one."""
        return 0 if self.predecessor is None else self.predecessor.step

    def records_behind(self, holder: str) -> int:
        """Records of the holder's stream that lie behind it when this session begins."""
        contributors = () if self.predecessor is None else self.predecessor.contributors
        return next((one.records for one in contributors if one.holder == holder), 0)

    @property
    def optimiser_steps(self) -> int:
        """Steps of the optimiser if nothing is skipped, a predecessor's included: what a learning-rate schedule counts."""
        if self.accumulate is not None:
            return self.rounds
        return self.steps_behind + self.rounds * sum(
            entry.steps_per_visit or self.steps_per_visit for entry in self.roster
        )

    def steps_for(self, holder: str) -> int:
        """Training steps in one visit to `holder`."""
        entry = next(entry for entry in self.roster if entry.holder == holder)
        return entry.steps_per_visit or self.steps_per_visit

    def canonical(self) -> bytes:
        """The exact bytes that are approved, stored and sent."""
        return json_bytes(self.model_dump(mode="json"))

    def digest(self) -> bytes:
        """SHA-256 of the canonical bytes."""
        return sha256(self.canonical())


def parse_manifest(data: bytes) -> Manifest:
    """Manifest from JSON bytes. Raises pydantic's ValidationError or BadRequest; callers translate with field paths."""
    return Manifest.model_validate(json_value(data))
