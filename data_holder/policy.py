"""The local approval policy: a typed TOML file that is linted at load. Knows no request; its verdict on one is `policy_rules`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, field_validator

from shared.claims import Claim
from shared.claims.manifest import MAX_AGE_S, GpuRules, KeyFingerprint
from shared.claims.operators import GROUPS
from shared.claims.program import HexSha384
from shared.claims.shape import words_of
from shared.claims.snp_rules import ANY_SNP, SnpRules
from shared.claims.tdx_policy import TdxPolicy
from shared.errors import ConfigurationError
from shared.names import TravelMode

Party = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}(:[0-9a-f]{64})?$")]
"""A holder's name, which the orchestrator says who has; with a fingerprint, the one who has that key."""
Glob = Annotated[str, Field(min_length=1, max_length=80)]


class Programs(Claim):
    """A program passes when its digest is listed, or when every operator it calls lies in a listed group."""

    digests: tuple[HexSha384, ...] = ()
    operators: tuple[str, ...] = ()

    @field_validator("operators")
    @classmethod
    def _known_groups(cls, groups: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(groups) - set(GROUPS))
        if unknown:
            raise ValueError(f"unknown operator groups {', '.join(unknown)}; known: {', '.join(GROUPS)}")
        return groups


class Limits(Claim):
    """Upper and lower bounds. Without `max_rounds` and `min_privacy_floor` nothing is approved.

    `max_epsilon` demands differential privacy: a manifest whose own `max_epsilon`, at a delta of `max_delta` at most, is no larger. What
    the plan spends of this holder's records is held against the manifest's when it approves.
    """

    max_rounds: int | None = Field(default=None, ge=1)
    min_privacy_floor: int | None = Field(default=None, ge=1)
    max_steps_per_visit: int | None = Field(default=None, ge=1)
    max_records_per_visit: int | None = Field(default=None, ge=1)
    loss_decimals: int | None = Field(default=None, ge=0, le=6)
    max_epsilon: float | None = Field(default=None, gt=0)
    max_delta: float = Field(default=1e-5, gt=0, lt=1)


class Output(Claim):
    """To whom the finished model may go; the manifest's list must lie within it."""

    release_to: tuple[Literal["owner", "holders"], ...] = ()


class SessionRules(Claim):
    """With whom, under which name, and how the GPU travels. `continuation`: whether another session may go on with the model without this
    holder. `owners`: fingerprints of keys, one of which must have signed the manifest; anybody's whom the orchestrator lets submit unless
    said. `travel_modes`: in `paper` every holder can read the model, so that it must be named to be approved.

    `min_parties`, `required_parties`: how many, and who, must take part from the start to the end; a manifest whose quorum can do without
    them does not hold them. `min_recovery_shares`: of holders at least, so that together they give the session's key away; all unless
    said, or where there are fewer.
    """

    names: tuple[Glob, ...] = ()
    owners: tuple[KeyFingerprint, ...] = ()
    travel_modes: tuple[TravelMode, ...] = (TravelMode.SCOPED, TravelMode.DIRECT)
    continuation: bool = False
    min_parties: int | None = Field(default=None, ge=1)
    required_parties: tuple[Party, ...] = ()
    min_recovery_shares: int | None = Field(default=None, ge=1)


class EvidenceRules(Claim):
    """What peers must prove beyond the manifest's own rule. `gpu`, `tdx`, `snp`: the most that a manifest may accept of a GPU, and of
    the orchestrator's TDX platform or SEV-SNP guest; strict unless said. Of other holders' platforms it may accept as much, or what it
    does unless said. `max_age_s`: how old a proof may be at most, of the orchestrator, the GPU and other holders.
    No `orchestrator_measurements`, or `holder_measurements`: a manifest may name none of the orchestrator, or of another holder."""

    allow_emulated: bool = False
    max_age_s: int = Field(default=MAX_AGE_S, ge=60)
    orchestrator_measurements: tuple[HexSha384, ...] = ()
    holder_measurements: tuple[HexSha384, ...] = ()
    gpu: GpuRules = GpuRules()
    tdx: TdxPolicy = TdxPolicy()
    snp: SnpRules = ANY_SNP


class ProfileRules(Claim):
    """What an approval may say of the dataset besides what was declared. `statistics`: how large values are, and which classes it has."""

    statistics: bool = True


class Policy(Claim):
    """What this holder approves without asking a person. `profile` holds for approvals by a person, too."""

    dataset: str | None = None
    profile: ProfileRules = ProfileRules()
    programs: Programs = Programs()
    limits: Limits = Limits()
    output: Output = Output()
    session: SessionRules = SessionRules()
    evidence: EvidenceRules = EvidenceRules()


def load_policy(path: Path) -> Policy:
    """Read and lint a policy file.

    Raises:
        ConfigurationError: unreadable, not TOML, or a key that is unknown or of the wrong type; the first fault is named.
    """
    try:
        return Policy.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigurationError(f"policy {path} cannot be read: {error.strerror}", code="policy-unreadable",
                                 remedy="Correct the setting policy, or decide by hand with approve = manual") from error  # fmt: skip
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"policy {path} is not TOML: {error}", code="policy-malformed",
                                 remedy="Correct the file") from error  # fmt: skip
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {words_of(e)}" for e in error.errors(include_url=False))
        raise ConfigurationError(
            f"policy {path}: {faults}",
            code="policy-malformed",
            remedy="Correct the named keys; unknown keys are refused so that a misspelt rule cannot be overlooked",
        ) from error
