"""Where this agent's GPU evidence comes from: the emulated device, or a real one. Knows no verifier.

    emulated:           the device behind the MUX; it reports inside its SPDM session, as the command processor's peer asks
    nvml:INDEX|UUID     a real GPU in this confidential VM, through NVIDIA's management library: evidence and nothing else

An unknown scheme or a missing device fails; nothing falls back to another backend (law L10).
"""

from __future__ import annotations

from gpu_agent.evidence.nvml import NvmlSource
from gpu_agent.evidence.source import EvidenceSource
from shared.errors import ConfigurationError

__all__ = ["EvidenceSource", "open_source"]


def open_source(uri: str) -> EvidenceSource | None:
    """The hardware source that `uri` names; None: the emulated device makes its own evidence.

    Raises:
        ConfigurationError: `evidence-backend`: an unknown scheme, a malformed URI, or hardware that is not there.
    """
    scheme, separator, rest = uri.partition(":")
    if separator and scheme == "nvml":
        return NvmlSource(rest)
    if uri != "emulated:":
        raise ConfigurationError(
            f"no GPU evidence backend is called {uri!r}",
            code="evidence-backend",
            expected="emulated:, nvml:INDEX, nvml:GPU-UUID",
            remedy="name a backend that this installation has",
        )
    return None
