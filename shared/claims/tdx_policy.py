"""What parties agree to accept of an Intel TDX platform. Typed and fail-closed; knows no quote, no collateral and no root.

Source: Intel PCS v4 documentation (TCB status values), Intel quote appraisal (grace counts from the matched level's own date).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shared.claims import Claim
from shared.claims.program import HexSha384

TcbStatus = Literal[
    "UpToDate",
    "SWHardeningNeeded",
    "ConfigurationNeeded",
    "ConfigurationAndSWHardeningNeeded",
    "OutOfDate",
    "OutOfDateConfigurationNeeded",
    "TDRelaunchAdvised",
    "TDRelaunchAdvisedConfigurationNeeded",
]
"""What may be accepted of a TCB. "Revoked" and "NotSupported" are statuses too, and nothing can accept those."""
GraceDays = Annotated[int, Field(ge=0, le=3650)]
AdvisoryId = Annotated[str, Field(pattern=r"^[A-Z0-9]+(-[A-Z0-9]+)*$", max_length=40)]
MachineId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class TdxPolicy(Claim):
    """What counts as a sound TDX platform. The defaults are those for production.

    SMT, dynamic platform and cached keys are allowed by default: every server seen in public has at least two of them set. A status is
    accepted while the date of the matched TCB level lies at most its grace days back; `null` sets no limit.
    """

    tcb_statuses: dict[TcbStatus, GraceDays | None] = Field(
        default={"UpToDate": None}, min_length=1, description="accepted TCB status -> grace days; null: no limit"
    )
    rejected_advisories: tuple[AdvisoryId, ...] = Field(
        default=(), max_length=256, description="advisories that refuse a platform whatever its status"
    )
    allow_smt: bool = Field(default=True, description="accept a platform with hyper-threading")
    allow_dynamic_platform: bool = Field(default=True, description="accept a platform whose packages may be replaced")
    allow_cached_keys: bool = Field(
        default=True, description="accept a platform whose root keys the registration cached"
    )
    machines: tuple[MachineId, ...] = Field(
        default=(), max_length=1024, description="PPIDs or platform instance ids; empty: any machine"
    )
    service_tds: tuple[HexSha384, ...] = Field(
        default=(), max_length=16, description="accepted measurements of a bound service TD; empty: none may be bound"
    )
    minimum_evaluation: int = Field(
        default=0, ge=0, le=0xFFFFFFFF, description="least tcbEvaluationDataNumber of the collateral"
    )
