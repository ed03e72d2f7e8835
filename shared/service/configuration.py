"""What a CVM measures of its own configuration at start, as events for RTMR 0 to 2. Knows no verifier, no key and no setting's meaning.

    RTMR0  role      which service this is, and what kind of machine it believes to run on
    RTMR1  trust     whom it believes: every root file, and the reference values
    RTMR2  settings  how it decides: the settings below, which a peer relies on

Secrets, addresses, sizes and times are left out: they differ from place to place and no peer relies on them. Manufacturing computes the
same events, so that a reference profile states code and configuration as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shared.canonical import json_bytes, json_value, sha384
from shared.claims.event_log import Content, Event
from shared.errors import ConfigurationError
from shared.names import CvmRole

MEASURED: Mapping[CvmRole, tuple[str, ...]] = {
    "orchestrator": ("allow_emulated",),
    "data_holder": ("allow_emulated", "approve"),
}
"""Settings by role that decide what a peer relies on."""
REFERENCE = "reference.json"


def configuration(
    role: CvmRole, *, backend: str, trust_dir: Path | None, settings: Mapping[str, Any]
) -> tuple[Event, ...]:
    """The events of one configuration, in the order in which they are measured.

    Args:
        backend: scheme of the evidence URI, for instance "emulated".
        settings: at least the settings that are measured for this role.

    Raises:
        ConfigurationError: `trust-file`: a file of the trust folder cannot be read.
    """
    chosen: Content = {name: settings[name] for name in MEASURED[role]}
    trust: Content = {**_trust(trust_dir)} if trust_dir is not None else {}
    return (
        Event(register=0, type="role", content={"role": role, "backend": backend}),
        Event(register=1, type="trust", content=trust),
        Event(register=2, type="settings", content=chosen),
    )


def _trust(folder: Path) -> dict[str, str]:
    """SHA-384 of each root file, and of the reference values without their own RTMRs, which would have to contain themselves.

    Caches of signed data (collateral, measurements of GPU firmware) are left out: they are verified at each use and may be renewed.
    """
    try:
        files = {path.stem.replace("-", "_"): path.read_bytes() for path in sorted(folder.glob("*.pem"))}
        reference = folder / REFERENCE
        value = json_value(reference.read_bytes()) if reference.exists() else {}
    except OSError as error:
        raise ConfigurationError(
            f"the trust folder {folder} cannot be measured: {error.strerror}",
            code="trust-file",
            remedy="make its files readable for this service",
        ) from None
    digests = {name: sha384(content).hex() for name, content in files.items()}
    return digests | {"reference": sha384(json_bytes(_without_registers(value))).hex()}


def _without_registers(value: Any) -> Any:
    if not isinstance(value, dict) or not isinstance(value.get("cvms"), dict):
        return value
    cvms = {
        role: sorted({str(profile.get("mr_td")) for profile in _profiles(found)})
        for role, found in value["cvms"].items()
    }
    return value | {"cvms": cvms}


def _profiles(found: Any) -> list[dict[str, Any]]:
    listed = found if isinstance(found, list) else [found]
    return [profile for profile in listed if isinstance(profile, dict)]
