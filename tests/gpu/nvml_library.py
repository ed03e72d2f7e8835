"""libnvidia-ml.so.1 in memory, beneath the real nvidia-ml-py: functions that fill the real structures as the driver does. Knows no test.

The Python package keeps its own marshalling (names, structures, sizes, error classes); only the C functions are ours. Evidence comes from
an emulated device, so that it verifies under an EMULATED root.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pynvml

from gpu_agent.hardware.root_of_trust import RootOfTrust
from shared.wire.spdm import get_measurements

UUID = "GPU-8a56a4bc-e184-a047-2620-be19fdf913d5"
DRIVER, VBIOS = "580.159.03", "96.00.74.00.20"


@dataclass
class FakeNvml:
    """One GPU. `errors`: function name -> error number it answers. `report`: from nonce to report."""

    root: RootOfTrust
    errors: dict[str, int] = field(default_factory=dict)
    state: tuple[int, int, int] = (2, 1, 0)  # production, feature on, devtools off
    multi_gpu: int = 0
    missing: set[str] = field(default_factory=set)
    report: Callable[[bytes], bytes] | None = None
    chain: bytes | None = None
    calls: list[str] = field(default_factory=list)
    running: int = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        """As ctypes finds a function in the library: AttributeError where it has none."""
        if not name.startswith("nvml") or name in self.missing:
            raise AttributeError(name)
        act = object.__getattribute__(self, f"do_{name}")

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name in self.errors:
                return self.errors[name]
            return act(*arguments) or 0

        return call

    def do_nvmlInitWithFlags(self, _flags: int) -> None:
        self.running += 1

    def do_nvmlShutdown(self) -> None:
        self.running -= 1

    def do_nvmlDeviceGetHandleByIndex_v2(self, index: Any, device: Any) -> int:
        return self._found(index.value == 0, device)

    def do_nvmlDeviceGetHandleByUUID(self, uuid: Any, device: Any) -> int:
        return self._found(uuid.value == UUID.encode(), device)

    def do_nvmlDeviceGetUUID(self, device: Any, buffer: Any, size: Any) -> None:
        self._text(buffer, size, UUID)

    def do_nvmlDeviceGetVbiosVersion(self, device: Any, buffer: Any, size: Any) -> None:
        self._text(buffer, size, VBIOS)

    def do_nvmlSystemGetDriverVersion(self, buffer: Any, size: Any) -> None:
        self._text(buffer, size, DRIVER)

    def do_nvmlSystemGetConfComputeState(self, state: Any) -> None:
        content = pointed(state, pynvml.c_nvmlConfComputeSystemState_t)
        content.environment, content.ccFeature, content.devToolsMode = self.state

    def do_nvmlSystemGetConfComputeSettings(self, settings: Any) -> int:
        content = pointed(settings, pynvml.c_nvmlSystemConfComputeSettings_v1_t)
        if content.version != ctypes.sizeof(content) | 1 << 24:
            return int(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        content.multiGpuMode = self.multi_gpu
        return 0

    def do_nvmlDeviceGetConfComputeGpuAttestationReport(self, device: Any, report: Any) -> None:
        content = pointed(report, pynvml.c_nvmlConfComputeGpuAttestationReport_t)
        nonce = bytes(content.nonce)
        made = self.report(nonce) if self.report is not None else self.root.report(get_measurements(nonce))
        content.attestationReportSize = len(made)
        content.isCecAttestationReportPresent = 0
        content.attestationReport[: min(len(made), 0x2000)] = made[:0x2000]

    def do_nvmlDeviceGetConfComputeGpuCertificate(self, device: Any, certificate: Any) -> None:
        content = pointed(certificate, pynvml.c_nvmlConfComputeGpuCertificate_t)
        chain = self.chain if self.chain is not None else self.root.chain_pem.encode() + b"\0"
        content.attestationCertChainSize = len(chain)
        content.attestationCertChain[: min(len(chain), 0x1400)] = chain[:0x1400]

    def _found(self, right: bool, device: Any) -> int:
        if not right:
            return int(pynvml.NVML_ERROR_NOT_FOUND)
        assert device._obj is not None
        return 0

    def _text(self, buffer: Any, size: Any, text: str) -> None:
        assert size.value > len(text)
        buffer.value = text.encode()


def pointed(reference: Any, kind: type[ctypes.Structure]) -> Any:
    """What a byref() points to, which must be the structure that the C function expects."""
    assert isinstance(reference._obj, kind)
    return reference._obj
