"""The CVMs of this platform as its emulated TDX module keeps them: launched, measured, extended. Knows no HTTP and no key.

A launch measures the CVM's code and sets its registers to zero; until the next launch they can only be extended. All of it is kept in a
file per CVM, so that the platform may be restarted under its guests. A launch's number tells its guest from those before and after.
Who launches says after how many launches, so that an old request that is sent once more cuts nobody off.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gpu_agent.platform.quoting_enclave import Cvm
from shared.canonical import json_value
from shared.claims.event_log import REGISTERS, ZERO, extended
from shared.crypto.private_file import replace_public
from shared.errors import BadRequest, ConfigurationError, Conflict, NotFound

LAUNCH_BYTES = 16
Measure = Callable[[], bytes]
"""Measures a CVM's code as it is now: MRTD, 48 bytes."""


@dataclass(frozen=True)
class _Running:
    """`launch`: the number that names it to its guest. `launches`: how many there were, with this one."""

    launch: str
    launches: int
    cvm: Cvm


class Cvms:
    """Every CVM by name, in its present launch."""

    def __init__(self, folder: Path, measures: Mapping[str, Measure], entropy: Callable[[int], bytes]) -> None:
        self._folder, self._measures, self._entropy = folder, dict(measures), entropy
        self._running: dict[str, _Running] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Of all CVMs, launched or not."""
        return tuple(self._measures)

    def measure(self, name: str) -> bytes:
        """MRTD of its code as it is now, 48 bytes. Raises: NotFound `unknown-cvm`; ConfigurationError: it cannot be measured."""
        if name not in self._measures:
            raise _unknown(name)
        return self._measures[name]()

    def launches(self, name: str) -> int:
        """How often it was launched so far. Raises: NotFound `unknown-cvm`; ConfigurationError: its file is damaged."""
        running = self._present(name)
        return running.launches if running else 0

    def launch(self, name: str, mr_td: bytes, after: int) -> str:
        """Begin anew with this measurement; whoever ran as this CVM is cut off. The number of this launch.

        Args:
            after: the launches that there were before, as `launches` says.

        Raises:
            NotFound, ConfigurationError: as `launches`. Conflict `cvm-launched`: there were others; nothing is changed.
        """
        count = self.launches(name)
        if after != count:
            raise Conflict(
                f"the CVM {name} was launched {count} times, not {after}",
                code="cvm-launched",
                expected=str(after),
                got=str(count),
                remedy="ask for the number of its launches, and launch it after that",
            )
        launch = self._entropy(LAUNCH_BYTES).hex()
        self._keep(_Running(launch, count + 1, Cvm(name, mr_td)))
        return launch

    def running(self, name: str, launch: str) -> Cvm:
        """The CVM in this launch. Raises: NotFound; Conflict `cvm-launch`: it was launched anew, or never."""
        return self._launched(name, launch).cvm

    def _launched(self, name: str, launch: str) -> _Running:
        running = self._present(name)
        if running is None or running.launch != launch:
            raise Conflict(
                f"the CVM {name} was launched anew since, or never",
                code="cvm-launch",
                remedy="run one process per CVM, and restart the one that lost its place",
            )
        return running

    def extend(self, name: str, launch: str, register: int, digest: bytes, before: bytes) -> bytes:
        """Extend one register; its new value. A repeat of the last extension is acknowledged without effect.

        Args:
            before: the register's value that the guest extends; 48 bytes, as the digest.

        Raises:
            NotFound, Conflict: as `running`; Conflict `cvm-register`: the register has another value.
        """
        running = self._launched(name, launch)
        cvm = running.cvm
        after, value = extended(before, digest), cvm.rtmrs[register]
        if value == before:
            r = [*cvm.rtmrs[:register], after, *cvm.rtmrs[register + 1 :]]
            self._keep(replace(running, cvm=replace(cvm, rtmrs=(r[0], r[1], r[2], r[3]))))
        elif value != after:
            raise Conflict(
                f"RTMR{register} of the CVM {name} has another value",
                code="cvm-register",
                expected=before.hex(),
                got=value.hex(),
                remedy="restart that service: a register cannot be set back",
            )
        return after

    def _keep(self, running: _Running) -> None:
        cvm = running.cvm
        value = {
            "launch": running.launch,
            "launches": running.launches,
            "mr_td": cvm.mr_td.hex(),
            "rtmrs": [rtmr.hex() for rtmr in cvm.rtmrs],
        }
        # Durably, for registers are not to go back; they are written when a CVM starts, and by no visit.
        replace_public(self._folder / f"{cvm.name}.json", json.dumps(value).encode())
        self._running[cvm.name] = running

    def _present(self, name: str) -> _Running | None:
        """The CVM as it runs, None: never launched."""
        if name not in self._measures:
            raise _unknown(name)
        if name not in self._running:
            path = self._folder / f"{name}.json"
            if not path.exists():
                return None
            self._running[name] = self._loaded(name, path)
        return self._running[name]

    def _loaded(self, name: str, path: Path) -> _Running:
        try:
            value = json_value(path.read_bytes())
            mr_td, *rtmrs = (bytes.fromhex(text) for text in (value["mr_td"], *value["rtmrs"]))
            if [len(register) for register in (mr_td, *rtmrs)] != [len(ZERO)] * (REGISTERS + 1):
                raise ValueError("registers have 48 bytes")
            cvm = Cvm(name, mr_td, (rtmrs[0], rtmrs[1], rtmrs[2], rtmrs[3]))
            launches = int(value.get("launches", 1))  # an older installation did not count them
            return _Running(str(value["launch"]), launches, cvm)
        except (OSError, BadRequest, KeyError, TypeError, ValueError):
            raise ConfigurationError(
                f"{path} is damaged", code="installation-file", remedy="remove it, and restart that CVM's service"
            ) from None


def _unknown(name: str) -> NotFound:
    return NotFound(f"no CVM {name} was manufactured", code="unknown-cvm")
