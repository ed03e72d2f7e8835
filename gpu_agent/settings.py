"""What the GPU agent's process can be told. Knows no key material and no HTTP."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.service.settings import ServiceSettings

DEFAULT_HBM_BYTES = 80 * 1024**3
_HEADROOM = 0.8


class AgentSettings(ServiceSettings):
    """Environment prefix GPUT_AGENT_."""

    model_config = SettingsConfigDict(env_prefix="GPUT_AGENT_", extra="forbid", env_nested_delimiter="__")

    device_dir: Path = Field(
        description="Folder of the device's identity, made by `manufacture`; its name is the GPU's."
    )
    platform_key: Path = Field(description="Public key (PEM) of the platform that may switch the MUX.")
    hbm_bytes: int = Field(DEFAULT_HBM_BYTES, ge=1024**2, description="Address space of GPU memory, in bytes; sparse.")
    backing_bytes: int | None = Field(
        None,
        ge=1024**2,
        description="Host memory that GPU memory may use; default four fifths of what is free at start.",
    )
    ports: list[str] = Field(
        default_factory=list, description="MUX ports that exist; empty: `orchestrator` and any `holder-…`."
    )

    def backing(self) -> int:
        """Bytes of host memory behind HBM: beyond them a session is refused instead of the machine running out."""
        if self.backing_bytes is not None:
            return self.backing_bytes
        free = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
        return int(int(free.split()[1]) * 1024 * _HEADROOM)
