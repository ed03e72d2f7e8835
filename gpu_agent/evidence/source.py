"""The seam between the agent and a real GPU's evidence: what any such backend gives. Knows no library and no HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import Field

from shared.claims import Claim
from shared.names import Backend

NONCE_BYTES = 32
Environment = Literal["unavailable", "simulation", "production"]
MultiGpu = Literal["none", "protected-pcie", "nvle"]


@dataclass(frozen=True)
class GpuAttestation:
    """Evidence over one nonce: the report (request ‖ response) and the PEM chain, leaf first. Nothing of it is verified here."""

    report: bytes
    chain: str


class DriverFacts(Claim):
    """What the driver says of itself and the machine: hints for people. What counts is in the report and its certificates."""

    driver_version: str
    vbios_version: str
    environment: Environment
    confidential_computing: bool
    devtools: bool
    multi_gpu: MultiGpu | None = Field(description="None where the driver does not say, or says something new.")


class EvidenceSource(Protocol):
    """One real GPU as far as it can be attested. It has no statement key: stock firmware certifies none (design 4.2 step 4)."""

    @property
    def gpu_id(self) -> str:
        """The library's UUID, lower case."""

    @property
    def backend(self) -> Backend:
        """HARDWARE; what it really is, only a verifier's root decides."""

    def attest(self, nonce: bytes) -> GpuAttestation:
        """A fresh report over 32 bytes, and the chain. Blocking. Raises: BadRequest, Unavailable."""

    def facts(self) -> DriverFacts:
        """What the driver says now. Blocking. Raises: Unavailable."""

    def close(self) -> None:
        """Release the library."""
