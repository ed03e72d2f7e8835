"""The data holder's settings (env prefix GPUT_HOLDER_, or a TOML file). Knows no behaviour."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import SettingsConfigDict

from shared.claims.manifest import PartyName
from shared.service.retention import DAY_S
from shared.service.settings import ServiceSettings

DATASET_NAME: Final = r"^[a-z0-9][a-z0-9._-]{0,62}$"
DatasetName = Annotated[str, Field(pattern=DATASET_NAME, examples=["ehr"])]
"""One that a request can name."""
KEPT_NAME: Final = 64
"""The longest that a database's column for it takes, in characters; SQLite takes any."""


class HolderSettings(ServiceSettings):
    """One holder: who it is, whom it serves, which data it brings, who decides."""

    model_config = SettingsConfigDict(env_prefix="GPUT_HOLDER_")

    name: PartyName = Field(description="this holder's name, as enrolled at the orchestrator and in rosters")
    orchestrator_url: str = Field(
        pattern=r"^https?://",
        description="base URL of the orchestrator it serves; of an orchestrator and its standby, both, comma-separated",
    )
    evidence: str = Field(
        description="where this CVM's evidence comes from: configfs-tsm: in a real one, or emulated:http://host:port/cvms/NAME"
    )
    evidence_token_file: Path | None = Field(
        default=None,
        description="emulated: only: file with the token that stands for the CVM's path to its quoting enclave",
    )
    sealing_key_file: Path | None = Field(
        default=None,
        description="configfs-tsm: only: 32-byte secret that a key broker or vTPM released into this guest",
    )
    recovery_key_file: Path | None = Field(
        default=None,
        description="32-byte key of its operator's (`gput party recovery-key`), which opens what this holder keeps sealed where the "
        "platform's key of this measured code does not, as after an update",
    )
    # Any name: it is in approvals, and in the salt of what they commit to, so that one of before cannot be given up for another.
    datasets: dict[Annotated[str, Field(min_length=1)], Path] = Field(
        default_factory=dict,
        description="dataset name (lower-case letters, digits, `.`, `_`, `-`; under another one it is served, and no request can name it) "
        "-> path; changed here only; more by the API",
    )
    dataset: str | None = Field(default=None, description="dataset of approvals that name none")
    policy: Path | None = Field(default=None, description="TOML file: which sessions may be approved without a person")
    approve: Literal["manual", "policy"] = Field(
        default="manual", description="who decides: the operator or the policy"
    )
    agent_url: str | None = Field(
        default=None, pattern=r"^https?://", description="the GPU's address, in place of the one an offer names"
    )
    collateral_url: str | None = Field(
        default=None, description="collateral service of one's own (PCCS), asked when a machine's collateral is missing"
    )
    operator_keys: Path | None = Field(
        default=None,
        description="folder of NAME.pub (Ed25519 PEM) whose owners may sign requests to the operator's API",
    )
    inbox_wait_s: int = Field(default=20, ge=1, le=30, description="seconds that one long-poll of the inbox waits")
    keep_finished_s: float = Field(
        default=3650 * DAY_S, gt=0,  # its receipts say what became of its records, and rules on records ask for years
        description="seconds for which a finished session is kept whole; then it is removed, its receipts included; inf: never",
    )  # fmt: skip
    bounce_socket: Path | None = Field(
        default=None,
        description="Unix socket of the GPU agent on this machine (its setting of this name): sealed records then lie in memory shared "
        "with it, and pass no network; where it does not answer they go over HTTP",
    )
    prepare_bytes: int = Field(
        default=32 * 1024 * 1024, ge=4096,
        description="sealed chunks kept ready, in bytes; and of each session's next visit, records read ahead",
    )  # fmt: skip

    @field_validator("datasets")
    @classmethod
    def _can_be_kept(cls, value: dict[str, Path], others: ValidationInfo) -> dict[str, Path]:
        """Not for SQLite: sessions may have been approved there with what an earlier release let be a name."""
        on_sqlite = (others.data.get("database_url") or "sqlite").startswith("sqlite")
        if not on_sqlite and any(len(name) > KEPT_NAME for name in value):
            raise ValueError(f"this database keeps no dataset's name of more than {KEPT_NAME} characters")
        return value

    @field_validator("orchestrator_url", "agent_url")
    @classmethod
    def _no_trailing_slash(cls, value: str | None) -> str | None:
        return value.rstrip("/") if value else value

    def log_context(self) -> dict[str, str]:
        """Its own name as the party: what this process does, this party does."""
        return {"party": self.name}
