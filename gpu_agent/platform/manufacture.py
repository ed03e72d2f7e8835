"""Manufacturing of one emulated installation: CPU maker, quoting keys, collateral, CVM tokens, devices, reference values. Knows no HTTP.

Idempotent: keys, secrets and tokens that exist are kept; collateral is renewed when less than half its time is left; reference values are
measured anew from the installed code and the trust folder. A reference profile states code (MRTD) and configuration (RTMR 0 to 2) as one.
"""

from __future__ import annotations

import json
import re
import secrets
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_agent.platform.files import Installation
from gpu_agent.platform.maker_files import make_cpu, renew_collateral
from gpu_agent.platform.measurement import installed_package, measure_code
from shared.canonical import json_value
from shared.claims.event_log import replay_events
from shared.crypto.private_file import replace_public, write_private
from shared.crypto.signing import PartyKey
from shared.errors import BadRequest, ConfigurationError, EmulationWarning
from shared.names import CvmRole
from shared.service.configuration import configuration

ROLES: dict[CvmRole, tuple[str, ...]] = {
    "orchestrator": ("shared", "orchestrator"),
    "data_holder": ("shared", "data_holder"),
}
BACKEND = "emulated"
# Configurations that this installation's services may run in: each is a profile of its own, and any other is refused by peers.
CONFIGURATIONS: dict[CvmRole, tuple[dict[str, Any], ...]] = {
    "orchestrator": ({"allow_emulated": True},),
    "data_holder": tuple({"allow_emulated": True, "approve": approve} for approve in ("manual", "policy")),
}
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
DeviceMaker = Callable[[Path, str], None]
"""(installation folder, gpu id): makes the device's identity, its root and its reference values. Idempotent."""


@dataclass(frozen=True)
class ManufactureReport:
    """What an installation consists of now. `made` names what this run added; MRTDs in hex by role."""

    folder: Path
    gpus: tuple[str, ...]
    cvms: tuple[str, ...]
    mr_td: dict[str, str]
    made: tuple[str, ...]


def cvm_role(name: str) -> CvmRole:
    """Role of a CVM by its name: `orchestrator…` or `holder-…`. Raises: ConfigurationError."""
    if NAME.fullmatch(name):
        if name == "orchestrator" or name.startswith("orchestrator-"):
            return "orchestrator"
        if name.startswith("holder-"):
            return "data_holder"
    raise ConfigurationError(
        f"CVM {name!r} is neither an orchestrator nor a holder",
        code="bad-cvm-name",
        remedy="name it `orchestrator`, `orchestrator-X` or `holder-X`",
    )


def manufacture(
    directory: Path, gpus: Sequence[str], cvms: Sequence[str], *, make_device: DeviceMaker, at: float
) -> ManufactureReport:
    """Make or complete the installation in `directory`; time `at` in seconds since 1970.

    Raises:
        ConfigurationError: a malformed name, code that cannot be measured, a damaged reference file.
    """
    warnings.warn("this installation is EMULATED: its evidence proves nothing", EmulationWarning, stacklevel=2)
    place, made = Installation(directory), []
    roles = {name: cvm_role(name) for name in cvms}
    bad = [gpu for gpu in gpus if not NAME.fullmatch(gpu)]
    if bad:
        raise ConfigurationError(f"GPU name {bad[0]!r} is malformed", code="bad-gpu-name")
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    made += _make_keys(place, at)
    for name in cvms:
        if not place.token(name).exists():
            write_private(place.token(name), secrets.token_urlsafe(32).encode())
            made.append(f"token of {name}")
    _write_cvms(place, roles)
    for gpu in gpus:
        known = gpu in place.gpus()
        make_device(directory, gpu)
        made += [] if known else [f"device {gpu}"]
    measured = _write_reference(place)  # last: the profiles cover the trust folder as it is now
    return ManufactureReport(directory, tuple(place.gpus()), tuple(load_cvms(place)), measured, tuple(made))


def load_cvms(place: Installation) -> dict[str, tuple[str, ...]]:
    """CVM name -> measured packages, as manufactured. Raises: ConfigurationError."""
    value = _load_json(place.cvms)
    if not all(isinstance(packages, list) for packages in value.values()):
        raise ConfigurationError(f"{place.cvms.name} is damaged", code="installation-file")
    return {name: tuple(packages) for name, packages in value.items()}


def _make_keys(place: Installation, at: float) -> list[str]:
    made = make_cpu(place, at) + renew_collateral(place, at)
    if not place.secret.exists():
        write_private(place.secret, secrets.token_bytes(32))
        made.append("installation secret")
    platform_key = PartyKey.load_or_generate(place.mux_key)
    replace_public(place.mux_public, platform_key.public_pem)
    return made


def _write_reference(place: Installation) -> dict[str, str]:
    measured = {
        role: measure_code(installed_package(package) for package in packages).hex() for role, packages in ROLES.items()
    }
    reference = _load_json(place.reference)
    reference["cvms"] = {role: [{"mr_td": mr_td}] for role, mr_td in measured.items()}
    _write_json(place.reference, reference)
    reference["cvms"] = {
        role: [{"mr_td": mr_td, **_registers(place, role, settings)} for settings in CONFIGURATIONS[role]]
        for role, mr_td in measured.items()
    }
    _write_json(place.reference, reference)
    return {str(role): mr_td for role, mr_td in measured.items()}


def _registers(place: Installation, role: CvmRole, settings: dict[str, Any]) -> dict[str, str]:
    """RTMR 0 to 2 of a service of this role, so configured; RTMR3 is for the event log."""
    events = configuration(role, backend=BACKEND, trust_dir=place.trust, settings=settings)
    return {f"rtmr{index}": value.hex() for index, value in enumerate(replay_events(events)[:3])}


def _write_cvms(place: Installation, roles: dict[str, CvmRole]) -> None:
    known = _load_json(place.cvms)
    _write_json(place.cvms, known | {name: list(ROLES[role]) for name, role in roles.items()})


def _load_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        value = json_value(path.read_bytes())
    except BadRequest:
        value = None
    if not isinstance(value, dict):
        raise ConfigurationError(f"{path.name} is damaged", code="installation-file", remedy="remove it and run again")
    return value


def _write_json(path: Path, value: dict[str, Any]) -> None:
    replace_public(path, json.dumps(value, indent=2, sort_keys=True).encode() + b"\n")
