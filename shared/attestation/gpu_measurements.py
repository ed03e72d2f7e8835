"""Comparison of a report's measurement blocks with reference integrity manifests. Knows no signature: what is compared is believed already.

RIM index i speaks of block i + 1; any alternative may match; only active entries count (reference h100.md 3.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shared.attestation.gpu_report import GpuReport
from shared.attestation.gpu_rim import Rim, RimKind
from shared.attestation.results import Mismatched
from shared.errors import VerificationFailed

DECODER_INDEX: Final = 35  # measures NVDEC0; says nothing where that is disabled
_SOURCES: Final[dict[RimKind, str]] = {"driver": "Driver", "vbios": "Firmware"}


@dataclass(frozen=True)
class Mismatch:
    """One block whose value is none of the golden ones. `index` is the RIM's (0-63); the block is one more."""

    index: int
    golden: tuple[bytes, ...]
    runtime: bytes
    source: str

    def claim(self) -> dict[str, object]:
        """As NVIDIA's verifiers report it: the first alternative stands for all."""
        return {
            "index": self.index,
            "goldenSize": len(self.golden[0]),
            "goldenValue": self.golden[0].hex(),
            "runtimeSize": len(self.runtime),
            "runtimeValue": self.runtime.hex(),
            "measurementSource": self.source,
        }


@dataclass(frozen=True)
class Comparison:
    """How many blocks were compared, of which kinds of manifest, and which differ (ascending by index)."""

    compared: int
    mismatches: tuple[Mismatch, ...]


def check_indices(driver: Rim, vbios: Rim) -> None:
    """No index is active in both manifests. Raises: VerificationFailed `gpu-rim-conflict`."""
    both = sorted(driver.golden.keys() & vbios.golden.keys())
    if both:
        raise VerificationFailed(
            "driver RIM and VBIOS RIM speak of the same index", code="gpu-rim-conflict", expected="each index in one of them",
            got=", ".join(map(str, both)), remedy="fetch both manifests anew: they do not belong together",
        )  # fmt: skip


def compare(report: GpuReport, rims: Mapping[RimKind, Rim]) -> Comparison:
    """Compare every active entry of these manifests."""
    compared, wrong = 0, []
    for kind, rim in rims.items():
        for index, golden in rim.golden.items():
            if index == DECODER_INDEX and report.decoder_disabled:
                continue
            compared += 1
            runtime = report.measurements[index]
            if runtime not in golden:
                wrong.append(Mismatch(index, golden, runtime, _SOURCES[kind]))
    return Comparison(compared, tuple(sorted(wrong, key=lambda mismatch: mismatch.index)))


def require_match(comparison: Comparison) -> None:
    """Raises: Mismatched `gpu-measurements`, naming the blocks (1-based) and both values of each."""
    wrong = comparison.mismatches
    if not wrong:
        return
    blocks = tuple(mismatch.index + 1 for mismatch in wrong)
    raise Mismatched(
        f"the report is genuine, but measurement blocks {', '.join(map(str, blocks))} are not the reference values",
        indices=blocks,
        code="gpu-measurements",
        expected="; ".join(f"{m.index + 1}: {' or '.join(value.hex() for value in m.golden)}" for m in wrong),
        got="; ".join(f"{m.index + 1}: {m.runtime.hex()}" for m in wrong),
        remedy="the GPU runs other firmware than the one that the manifests in the trust folder speak of",
    )
