"""Backend `nvml:INDEX|UUID`: a real GPU's report and chain through NVIDIA's management library (extra `nvml`). Knows no HTTP.

The library is `nvidia-ml-py` (module pynvml) over libnvidia-ml.so.1 of the driver in this confidential VM. The driver asks the GPU
inside its own SPDM session and hands the report over in clear (reference h100.md 1.7); the nonce is ours.
"""

from __future__ import annotations

import ctypes
import importlib
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from gpu_agent.evidence.source import NONCE_BYTES, DriverFacts, Environment, GpuAttestation, MultiGpu
from shared.errors import BadRequest, ConfigurationError, Unavailable, installing
from shared.names import Backend

MODULE: Final = "pynvml"
NEEDED: Final = (
    "nvmlInit",
    "nvmlShutdown",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetVbiosVersion",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetConfComputeState",
    "nvmlSystemGetConfComputeSettings",
    "nvmlDeviceGetConfComputeGpuAttestationReport",
    "nvmlDeviceGetConfComputeGpuCertificate",
)
_WHICH = re.compile(r"(?P<index>[0-9]{1,3})|(?P<uuid>GPU-[0-9a-fA-F-]{36})")
_NONCE_AT = 4  # in the request half of a report
_ENVIRONMENTS: Final[dict[int, Environment]] = {0: "unavailable", 1: "simulation", 2: "production"}
_MULTI_GPU: Final[dict[int, MultiGpu]] = {0: "none", 1: "protected-pcie", 2: "nvle"}
# NVML's error numbers, which are part of its stable interface.
_SUCCESS, _FUNCTION_NOT_FOUND, _NOT_SUPPORTED = 0, 13, 3
_NO_DEVICE, _NO_DRIVER, _NO_RIGHT = {2, 6, 28}, {9, 12}, {4}
T = TypeVar("T")


class NvmlSource:
    """One GPU of this confidential VM.

    Args:
        which: an index or a UUID as `nvidia-smi -L` shows them.
        library: a module with nvidia-ml-py's interface; the installed one by default.

    Raises:
        ConfigurationError: `evidence-backend`: no library, no driver, no such GPU, or one that is not in confidential mode.
    """

    def __init__(self, which: str, library: Any = None) -> None:
        match = _WHICH.fullmatch(which)
        if match is None:
            raise _absent(f"nvml:{which} names no GPU", "write nvml:0 or nvml:GPU-UUID, as nvidia-smi -L shows them")
        self._nvml = _library() if library is None else library
        self._started("cannot be used", self._nvml.nvmlInit)
        try:
            self._device = self._started(f"has no GPU {which}", lambda: self._find(match))
            self._id = self._started("does not name the GPU", lambda: str(self._nvml.nvmlDeviceGetUUID(self._device)))
            facts = self._started("cannot say whether confidential computing is on", self._facts)
            _check_mode(facts, self._id)
        except ConfigurationError:
            self.close()
            raise

    @property
    def gpu_id(self) -> str:
        """The UUID, lower case."""
        return self._id.lower()

    @property
    def backend(self) -> Backend:
        """HARDWARE, as far as the library knows."""
        return Backend.HARDWARE

    def attest(self, nonce: bytes) -> GpuAttestation:
        """A fresh report over `nonce` (32 bytes), and the attestation chain.

        Raises:
            BadRequest: not 32 bytes. Unavailable: `gpu-evidence`: the driver gives none, or one that answers another nonce.
        """
        if len(nonce) != NONCE_BYTES:
            raise BadRequest(f"a GPU's nonce has {NONCE_BYTES} bytes, got {len(nonce)}", code="bad-nonce")
        nvml, device = self._nvml, self._device
        made = self._asked(lambda: nvml.nvmlDeviceGetConfComputeGpuAttestationReport(device, nonce))
        report = _buffer(made.attestationReport, made.attestationReportSize, "the report")
        certificate = self._asked(lambda: nvml.nvmlDeviceGetConfComputeGpuCertificate(device))
        chain = _buffer(certificate.attestationCertChain, certificate.attestationCertChainSize, "the chain")
        if report[_NONCE_AT : _NONCE_AT + NONCE_BYTES] != nonce:
            raise _unusable("its report answers another nonce")
        try:
            return GpuAttestation(report, chain.rstrip(b"\0").decode("ascii"))
        except UnicodeDecodeError:
            raise _unusable("its chain is not PEM") from None

    def facts(self) -> DriverFacts:
        """Versions and modes as the driver says them now. Raises: Unavailable."""
        return self._asked(self._facts)

    def close(self) -> None:
        """Release the library; a failure at the end changes nothing any more."""
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            return

    def _find(self, match: re.Match[str]) -> Any:
        if match["index"] is not None:
            return self._nvml.nvmlDeviceGetHandleByIndex(int(match["index"]))
        return self._nvml.nvmlDeviceGetHandleByUUID(match["uuid"])

    def _facts(self) -> DriverFacts:
        state = self._nvml.nvmlSystemGetConfComputeState()
        return DriverFacts(
            driver_version=str(self._nvml.nvmlSystemGetDriverVersion()),
            vbios_version=str(self._nvml.nvmlDeviceGetVbiosVersion(self._device)),
            environment=_ENVIRONMENTS.get(state.environment, "unavailable"),
            confidential_computing=state.ccFeature == self._nvml.NVML_CC_SYSTEM_FEATURE_ENABLED,
            devtools=state.devToolsMode != self._nvml.NVML_CC_SYSTEM_DEVTOOLS_MODE_OFF,
            multi_gpu=self._multi_gpu(),
        )

    def _multi_gpu(self) -> MultiGpu | None:
        settings = self._nvml.c_nvmlSystemConfComputeSettings_v1_t()
        try:
            # This wrapper alone hands NVML's answer back unchecked, and takes the pointer as it is given.
            code = self._nvml.nvmlSystemGetConfComputeSettings(ctypes.byref(settings))
        except self._nvml.NVMLError as error:
            code = error.value
        if code in (_FUNCTION_NOT_FOUND, _NOT_SUPPORTED):
            return None
        if code != _SUCCESS:
            raise self._nvml.NVMLError(code)
        return _MULTI_GPU.get(settings.multiGpuMode)

    def _started(self, what: str, act: Callable[[], T]) -> T:
        try:
            return act()
        except self._nvml.NVMLError as error:
            raise _absent(f"NVIDIA's management library {what}: {error}", _remedy(error.value)) from None

    def _asked(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except self._nvml.NVMLError as error:
            raise _unusable(str(error)) from None


def _library() -> Any:
    try:
        library = importlib.import_module(MODULE)
    except ImportError:
        raise _absent("the library nvidia-ml-py is not installed", f"install it: {installing('nvml')}") from None
    missing = [name for name in NEEDED if not hasattr(library, name)]
    if missing:
        raise _absent(f"the installed nvidia-ml-py has no {missing[0]}", f"upgrade it: {installing('nvml')}")
    return library


def _check_mode(facts: DriverFacts, gpu: str) -> None:
    """A report is signed in other modes too and would not say so: only confidential computing in production, without tools, counts."""
    if not facts.confidential_computing:
        raise _absent(
            f"confidential computing is off on GPU {gpu}", "turn it on from the host and start the guest anew"
        )
    if facts.devtools:
        raise _absent(
            f"GPU {gpu} is in devtools mode: its memory is open to debuggers",
            "set the confidential mode to on, not devtools, from the host",
        )
    if facts.environment != "production":
        raise _absent(
            f"GPU {gpu} says that its environment is {facts.environment}, not production", "use real hardware"
        )


def _buffer(content: Any, size: int, what: str) -> bytes:
    if not 0 < size <= len(content):
        raise _unusable(f"{what} has {size} bytes")
    return bytes(content[:size])


def _remedy(number: int) -> str:
    if number in _NO_DRIVER:
        return "run in a guest with NVIDIA's driver loaded, 535 or newer"
    if number in _NO_DEVICE:
        return "name a GPU that nvidia-smi -L shows"
    if number in _NO_RIGHT:
        return "give this user the right to open the GPU's device files"
    return "look at the driver's log; a Hopper GPU and a driver of 535 or newer are needed"


def _absent(why: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(why, code="evidence-backend", remedy=remedy)


def _unusable(why: str) -> Unavailable:
    return Unavailable(f"the GPU's driver gave no evidence: {why}", code="gpu-evidence")
