"""Reference manifests that a test holds in its hand, whatever their names say: a source as good as a folder. Knows no file."""

from __future__ import annotations

from dataclasses import dataclass

from shared.attestation.gpu_rim import RimKind


@dataclass(frozen=True)
class GivenRims:
    """By kind; the verifier compares their versions."""

    driver: bytes | None = None
    vbios: bytes | None = None

    def find(self, kind: RimKind, name: str, *, ask: bool = True) -> bytes | None:
        """What was given for this kind."""
        return self.driver if kind == "driver" else self.vbios
