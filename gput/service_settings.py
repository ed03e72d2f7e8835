"""A service's settings with values and origins, as `python -m SERVICE --config FILE` would have them. Starts nothing; shows no secret."""

from __future__ import annotations

import os
import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from shared.service.settings import ServiceSettings

HOMES = {
    "orchestrator": ("orchestrator.settings", "OrchestratorSettings"),
    "holder": ("data_holder.settings", "HolderSettings"),
    "agent": ("gpu_agent.settings", "AgentSettings"),
    "platform": ("gpu_agent.platform.settings", "PlatformSettings"),
}
HIDDEN = "***"
_NEXT = re.compile(r",(?=\s*[A-Za-z][A-Za-z0-9+.-]*://)")
"""Between two addresses; not between the hosts of one database's."""


def rows_of(service: str, config: Path | None) -> list[dict[str, Any]]:
    """`setting`, `value`, `origin` of each, in the order of the documentation.

    Raises:
        ConfigurationError: the service would not start as configured; it names each wrong setting.
    """
    module, name = HOMES[service]
    kind: type[ServiceSettings] = getattr(import_module(module), name)
    loaded = kind.load(config)
    told = tomllib.loads(config.read_text(encoding="utf-8")) if config is not None else {}
    prefix = str(kind.model_config.get("env_prefix", ""))
    shown = loaded.model_dump(mode="json")
    return [
        {"setting": field, "value": redacted(shown[field]), "origin": _origin(field, prefix, told, config)}
        for field in kind.model_fields
    ]


def _origin(field: str, prefix: str, told: dict[str, Any], config: Path | None) -> str:
    """The environment wins over the file (`shared.service.settings`); part of a mapping may come from either."""
    variables = [v for v in sorted(os.environ) if v.upper() == (prefix + field).upper() or
                 v.upper().startswith(f"{prefix}{field}__".upper())]  # fmt: skip
    found = [f"environment {', '.join(variables)}"] if variables else []
    nested = any("__" in variable[len(prefix) :] for variable in variables)
    if field in told and (not variables or nested):
        found.append(f"file {config}")
    return ", ".join(found) or "default"


def redacted(value: Any) -> Any:
    """The same without the password that an address, or each of several with commas between them, may carry."""
    if not isinstance(value, str) or "://" not in value:
        return value
    return ",".join(map(_redacted, _NEXT.split(value)))


def _redacted(value: str) -> str:
    try:
        parts = urlsplit(value)
        secret = parts.password
    except ValueError:
        return HIDDEN
    if secret is None and "password" not in parts.query.lower():
        return value
    at = f"{parts.username or ''}:{HIDDEN}@" if secret is not None else f"{parts.username}@" if parts.username else ""
    host = parts.netloc.rpartition("@")[2]
    query = HIDDEN if "password" in parts.query.lower() else parts.query
    return parts._replace(netloc=at + host, query=query).geturl()
