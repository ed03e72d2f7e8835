"""What the GPU agent's process can be told. Knows no key material and no HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from shared.errors import ConfigurationError
from shared.names import ORCHESTRATOR_PORT, PORT_PATTERN
from shared.quota import free_memory
from shared.service.settings import ServiceSettings

DEFAULT_HBM_BYTES = 80 * 1024**3
HOST = "cpu:"
_HEADROOM = 0.8
_EMULATED_ONLY = {
    "device_dir", "platform_key", "compute", "hbm_bytes", "backing_bytes", "ports", "bounce_socket", "bounce_bytes",
    "bounce_connections", "mux_registers",
}  # fmt: skip


class AgentSettings(ServiceSettings):
    """Environment prefix GPUT_AGENT_."""

    model_config = SettingsConfigDict(env_prefix="GPUT_AGENT_", extra="forbid", env_nested_delimiter="__")

    evidence: str = Field(
        "emulated:",
        description="Where the GPU's evidence comes from: emulated:, or nvml:INDEX or nvml:UUID of a real one.",
    )
    device_dir: Path | None = Field(
        None,
        description="emulated: only: folder of the device's identity, made by `manufacture`; its name is the GPU's.",
    )
    platform_key: Path | None = Field(
        None, description="emulated: only: public key (PEM) of the platform that may switch the MUX."
    )
    compute: str = Field(
        HOST,
        pattern=r"^(cpu:|cuda:[0-9]{1,3})$",
        description="Where the emulated GPU has its memory and computes: cpu: (this host), or cuda:INDEX of a device that is there.",
    )
    hbm_bytes: int = Field(
        DEFAULT_HBM_BYTES,
        ge=1024**2,
        description="Address space of GPU memory, in bytes; sparse. On a CUDA device it is memory: default half of what is free.",
    )
    backing_bytes: int | None = Field(
        None,
        ge=1024**2,
        description="Host memory that GPU memory may use; default four fifths of what is free at start, by the container's limit, too.",
    )
    bounce_socket: Path | None = Field(
        None,
        description="emulated: only: Unix socket, made here, on which holders on this machine and of this user get bounce buffers; "
        "unset: records come over HTTP only.",
    )
    bounce_bytes: int = Field(
        1024**3, ge=0, description="emulated: only: host memory that all bounce buffers may use, in bytes."
    )
    bounce_connections: int = Field(
        64, ge=1, le=4096,
        description="emulated: only: connections to bounce_socket at once; who comes beyond them is hung up on, and sends over HTTP.",
    )  # fmt: skip
    mux_registers: Path | None = Field(
        None, description="emulated: only: folder where the platform on this machine keeps its MUXes' select registers, one file a GPU; "
        "unset: the platform switches over HTTP.",
    )  # fmt: skip
    ports: list[Annotated[str, Field(pattern=PORT_PATTERN)]] = Field(
        default_factory=list,
        description="MUX ports that exist, `orchestrator` among them; empty: `orchestrator` and any `holder-…`.",
    )

    @field_validator("ports")
    @classmethod
    def _with_the_orchestrators(cls, ports: list[str]) -> list[str]:
        # Without its port no session begins, and every service would say that the GPU is away.
        if ports and ORCHESTRATOR_PORT not in ports:
            raise ValueError(f"must name the port {ORCHESTRATOR_PORT}, or be empty")
        return ports

    def emulated(self) -> tuple[Path, Path]:
        """Device folder and platform key, which an emulated GPU needs. Raises: ConfigurationError."""
        if self.device_dir is None or self.platform_key is None:
            missing = "device_dir" if self.device_dir is None else "platform_key"
            raise ConfigurationError(
                f"setting {missing} is not set, and an emulated GPU needs it",
                remedy=f"Set {missing}, or name a real GPU by the setting evidence.",
            )
        return self.device_dir, self.platform_key

    def refuse_emulated(self) -> None:
        """A real GPU has none of these; a setting is never ignored. Raises: ConfigurationError."""
        given = sorted(_EMULATED_ONLY & self.model_fields_set)
        if given:
            raise ConfigurationError(
                f"setting {', '.join(given)} is for an emulated GPU, but evidence is {self.evidence}",
                remedy=f"Unset {', '.join(given)}, or set evidence to emulated:.",
            )

    @property
    def cuda_device(self) -> str | None:
        """PyTorch's name of the CUDA device that computes; None: this host does.

        Raises:
            ConfigurationError: a setting that means nothing there; a setting is never ignored.
        """
        if self.compute == HOST:
            return None
        if self.backing_bytes is not None:
            raise ConfigurationError(
                f"setting backing_bytes is for memory of this host, but compute is {self.compute}",
                remedy="Unset backing_bytes, or set compute to cpu:.",
            )
        return self.compute

    @property
    def cuda_bytes(self) -> int | None:
        """HBM on a CUDA device, in bytes; None: what is free decides."""
        return self.hbm_bytes if "hbm_bytes" in self.model_fields_set else None

    def backing(self) -> int:
        """Bytes of host memory behind HBM: beyond them a session is refused instead of the machine running out."""
        if self.backing_bytes is not None:
            return self.backing_bytes
        return int(free_memory() * _HEADROOM)
