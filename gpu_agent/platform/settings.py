"""What the platform's process can be told. Knows no key material and no HTTP."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from gpu_agent.platform.files import Installation
from shared.service.settings import ServiceSettings


class PlatformSettings(ServiceSettings):
    """Environment prefix GPUT_PLATFORM_."""

    model_config = SettingsConfigDict(env_prefix="GPUT_PLATFORM_", extra="forbid", env_nested_delimiter="__")

    agent_url: str = Field(description="Base URL of the GPU agent whose MUX follows this platform.")
    mux_registers: Path | None = Field(
        None,
        description="Folder of the MUXes' select registers, one file a GPU, which the agent on this machine reads; "
        "unset: the agent is told over HTTP.",
    )
    state_dir: Path | None = Field(None, description="The manufactured installation folder; data_dir if absent.")
    orchestrator_key: Path = Field(description="Public key (PEM) of the orchestrator that may switch the MUX.")
    quote_version: int = Field(
        4, ge=4, le=5, description="Version of the emulated TDX quotes; 5 carries a TD report 1.5."
    )
    cvms: dict[str, list[Path]] = Field(
        default_factory=dict,
        description="CVM name -> measured code folders; by default the installed packages, as manufactured.",
    )

    @property
    def installation(self) -> Installation:
        """The manufactured installation that this platform serves."""
        return Installation(self.state_dir or self.data_dir)
