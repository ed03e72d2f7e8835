"""What an operator can set. Knows no behaviour; every field is documented where it stands."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.service.retention import DAY_S
from shared.service.settings import ServiceSettings
from shared.service.ways import PeerUrl


class OrchestratorSettings(ServiceSettings):
    """Settings of `python -m orchestrator`; environment prefix GPUT_ORCHESTRATOR_, or a TOML file by --config."""

    model_config = SettingsConfigDict(env_prefix="GPUT_ORCHESTRATOR_", extra="forbid")

    evidence: str = Field(
        description="where this CVM's evidence comes from: configfs-tsm: in a real one, or emulated:http://host:port/cvms/orchestrator"
    )
    evidence_token_file: Path | None = Field(
        default=None,
        description="emulated: only: file with the token that stands for the CVM's path to its quoting enclave",
    )
    sealing_key_file: Path | None = Field(
        default=None,
        description="configfs-tsm: only: 32-byte secret that a key broker or vTPM released into this guest",
    )
    agent_url: PeerUrl = Field(description="base URL of the GPU agent as this service reaches it")
    agent_public_url: PeerUrl | None = Field(default=None, description="base URL of the GPU agent as holders reach it")
    platform_url: PeerUrl = Field(description="base URL of the platform's MUX control")
    owner_keys: Path = Field(description="folder of NAME.pub PEM files: who may submit sessions")
    reader_tokens: Path | None = Field(
        default=None,
        description="JSON file: SHA-256 (hex) of a read-only bearer token -> name, or {name, role: owner} to read losses, too",
    )
    collateral_url: PeerUrl | None = Field(
        default=None, description="collateral service of one's own (PCCS), asked when a machine's collateral is missing"
    )
    shared_dir: Path | None = Field(
        default=None,
        description="folder that this orchestrator and its standby both reach: identity, library, checkpoints, models; default is data_dir",
    )
    lease_s: float = Field(
        default=3.0,
        ge=0.5,
        le=60,
        description="PostgreSQL only: seconds after which another orchestrator of the same database may lead, if this one is not heard of",
    )
    gpus: tuple[str, ...] = Field(default=("gpu-0",), min_length=1, description="ids of the GPUs of the pool")
    checkpoint_interval_s: float = Field(default=5.0, gt=0, description="seconds between sealed checkpoints, at least")
    checkpoint_share: float = Field(
        default=0.01,
        gt=0,
        description="largest share of the training time that sealed checkpoints take: one of 1 s is followed by 1 s / share of training",
    )
    visit_attempts: int = Field(
        default=3, ge=1,
        description="failed attempts before a visit is skipped where the quorum allows; breaks of the GPU's integrity in a row at one "
        "holder's visits before it is passed over, or the session fails; failures of a tour's end, and of a work that the GPU's compute "
        "processes die under, before the session fails",
    )  # fmt: skip
    copy_chains: int = Field(
        default=1, ge=1, le=32,
        description="independent MAC chains of each copy record, sealed and opened side by side; measure before you raise it",
    )  # fmt: skip
    pause_limit_s: float = Field(
        default=DAY_S, gt=0,
        description="seconds that a session may stay paused, keeping its GPU from others; then it ends, its model sealed; inf: no limit",
    )  # fmt: skip
    keep_finished_s: float = Field(
        default=90 * DAY_S, gt=0,
        description="seconds for which a finished session is kept whole; then all but its newest signed log head is removed; inf: never",
    )  # fmt: skip
    keep_removed_s: float = Field(
        default=14 * DAY_S, ge=0,
        description="seconds that a session removed by its owner waits, without its model, for holders that miss its last receipts",
    )  # fmt: skip
    keep_unused_s: float = Field(
        default=30 * DAY_S, gt=0,
        description="seconds after its last upload until a program or file that no kept session names is removed; inf: never",
    )  # fmt: skip
    max_upload_bytes: int = Field(default=8 << 30, ge=1 << 20, description="largest weights or validation file")

    @property
    def files_dir(self) -> Path:
        """Folder of everything but the database that whoever leads goes on with."""
        return self.shared_dir or self.data_dir

    def session_folder(self, session: str) -> Path:
        """A session's files: checkpoints, model."""
        return self.files_dir / "sessions" / session
