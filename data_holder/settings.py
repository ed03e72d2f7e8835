"""The data holder's settings (env prefix GPUT_HOLDER_, or a TOML file). Knows no behaviour."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from shared.claims.manifest import PartyName
from shared.service.settings import ServiceSettings


class HolderSettings(ServiceSettings):
    """One holder: who it is, whom it serves, which data it brings, who decides.

    `evidence` is a URI (`emulated:http://host:port/cvms/NAME`); `evidence_token_file` holds what stands for this CVM's private
    path to the quoting enclave. `agent_url` overrides the GPU's address that an offer names. `operator_keys`: folder of
    `NAME.pub` (Ed25519 PEM) whose owners may sign requests to the operator's API.
    """

    model_config = SettingsConfigDict(env_prefix="GPUT_HOLDER_")

    name: PartyName
    orchestrator_url: str = Field(pattern=r"^https?://")
    evidence: str
    evidence_token_file: Path
    datasets: dict[str, Path] = Field(default_factory=dict)
    dataset: str | None = None
    policy: Path | None = None
    approve: Literal["manual", "policy"] = "manual"
    agent_url: str | None = Field(default=None, pattern=r"^https?://")
    operator_keys: Path | None = None
    inbox_wait_s: int = Field(default=20, ge=1, le=30)
    prepare_bytes: int = Field(default=16 * 1024 * 1024, ge=4096, description="sealed chunks kept ready, in bytes")

    @field_validator("orchestrator_url", "agent_url")
    @classmethod
    def _no_trailing_slash(cls, value: str | None) -> str | None:
        return value.rstrip("/") if value else value
