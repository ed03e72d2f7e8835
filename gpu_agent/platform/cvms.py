"""The CVMs of this platform as its emulated TDX module keeps them: launched, measured, extended. Knows no HTTP and no key.

A launch measures the CVM's code and sets its registers to zero; until the next launch they can only be extended. All of it is kept in a
file per CVM, so that the platform may be restarted under its guests. A launch's number tells its guest from those before and after.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from gpu_agent.platform.files import write_public
from gpu_agent.platform.quoting_enclave import Cvm
from shared.canonical import json_value
from shared.claims.event_log import REGISTERS, ZERO, extended
from shared.errors import BadRequest, ConfigurationError, Conflict, NotFound

LAUNCH_BYTES = 16
Measure = Callable[[], bytes]
"""Measures a CVM's code as it is now: MRTD, 48 bytes."""


class Cvms:
    """Every CVM by name, in its present launch."""

    def __init__(self, folder: Path, measures: Mapping[str, Measure], entropy: Callable[[int], bytes]) -> None:
        self._folder, self._measures, self._entropy = folder, dict(measures), entropy
        self._running: dict[str, tuple[str, Cvm]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Of all CVMs, launched or not."""
        return tuple(self._measures)

    def measure(self, name: str) -> bytes:
        """MRTD of its code as it is now, 48 bytes. Raises: NotFound `unknown-cvm`; ConfigurationError: it cannot be measured."""
        if name not in self._measures:
            raise _unknown(name)
        return self._measures[name]()

    def launch(self, name: str, mr_td: bytes) -> str:
        """Begin anew with this measurement; whoever ran as this CVM is cut off. The number of this launch. Raises: NotFound."""
        if name not in self._measures:
            raise _unknown(name)
        launch = self._entropy(LAUNCH_BYTES).hex()
        self._keep(launch, Cvm(name, mr_td))
        return launch

    def running(self, name: str, launch: str) -> Cvm:
        """The CVM in this launch. Raises: NotFound; Conflict `cvm-launch`: it was launched anew, or never."""
        if name not in self._measures:
            raise _unknown(name)
        if name not in self._running:
            self._load(name)
        number, cvm = self._running.get(name, ("", None))
        if cvm is None or number != launch:
            raise Conflict(
                f"the CVM {name} was launched anew since, or never",
                code="cvm-launch",
                remedy="run one process per CVM, and restart the one that lost its place",
            )
        return cvm

    def extend(self, name: str, launch: str, register: int, digest: bytes, before: bytes) -> bytes:
        """Extend one register; its new value. A repeat of the last extension is acknowledged without effect.

        Args:
            before: the register's value that the guest extends; 48 bytes, as the digest.

        Raises:
            NotFound, Conflict: as `running`; Conflict `cvm-register`: the register has another value.
        """
        cvm = self.running(name, launch)
        after, value = extended(before, digest), cvm.rtmrs[register]
        if value == before:
            r = [*cvm.rtmrs[:register], after, *cvm.rtmrs[register + 1 :]]
            self._keep(launch, replace(cvm, rtmrs=(r[0], r[1], r[2], r[3])))
        elif value != after:
            raise Conflict(
                f"RTMR{register} of the CVM {name} has another value",
                code="cvm-register",
                expected=before.hex(),
                got=value.hex(),
                remedy="restart that service: a register cannot be set back",
            )
        return after

    def _keep(self, launch: str, cvm: Cvm) -> None:
        value = {"launch": launch, "mr_td": cvm.mr_td.hex(), "rtmrs": [rtmr.hex() for rtmr in cvm.rtmrs]}
        write_public(self._folder / f"{cvm.name}.json", json.dumps(value).encode())
        self._running[cvm.name] = (launch, cvm)

    def _load(self, name: str) -> None:
        path = self._folder / f"{name}.json"
        if not path.exists():
            return
        try:
            value = json_value(path.read_bytes())
            mr_td, *rtmrs = (bytes.fromhex(text) for text in (value["mr_td"], *value["rtmrs"]))
            if [len(register) for register in (mr_td, *rtmrs)] != [len(ZERO)] * (REGISTERS + 1):
                raise ValueError("registers have 48 bytes")
            cvm = Cvm(name, mr_td, (rtmrs[0], rtmrs[1], rtmrs[2], rtmrs[3]))
            self._running[name] = (str(value["launch"]), cvm)
        except (OSError, BadRequest, KeyError, TypeError, ValueError):
            raise ConfigurationError(
                f"{path} is damaged", code="installation-file", remedy="remove it, and restart that CVM's service"
            ) from None


def _unknown(name: str) -> NotFound:
    return NotFound(f"no CVM {name} was manufactured", code="unknown-cvm")
