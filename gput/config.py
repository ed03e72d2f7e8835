"""The client's own settings: a flag wins over the environment, that over the file, that over the default. Knows no command.

The file is TOML: `$GPUT_CONFIG`, else `gput/config.toml` under `$XDG_CONFIG_HOME` (default `~/.config`). A path in it that is not
absolute is meant from the file's folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.errors import ConfigurationError

if TYPE_CHECKING:
    from gput.trust import Trust

FILE = "GPUT_CONFIG"


@dataclass(frozen=True)
class Setting:
    """One setting: the environment's name for it, its kind, and what it is for."""

    variable: str
    kind: type
    meaning: str
    path: bool = False


SETTINGS: dict[str, Setting] = {
    "url": Setting("GPUT_URL", str, "the orchestrator's base URL; with a standby, both, comma-separated"),
    "key": Setting("GPUT_KEY", str, "your private key file (Ed25519 PEM)", path=True),
    "holder_url": Setting("GPUT_HOLDER_URL", str, "your own holder service"),
    "holder_token": Setting("GPUT_HOLDER_TOKEN", str, "its operator.token file", path=True),
    "trust": Setting(
        "GPUT_TRUST", str, "your trust folder: with it every command attests the orchestrator first", path=True
    ),
    "gpu_hour_price": Setting("GPUT_GPU_HOUR_PRICE", float, "what an hour of the GPU costs you, in any currency"),
    "allow_emulated": Setting("GPUT_ALLOW_EMULATED", bool, "let EMULATED roots of the trust folder count"),
}
TRUE, FALSE = ("1", "true", "yes", "on", "t", "y"), ("0", "false", "no", "off", "f", "n")


def file() -> Path:
    """Where the file is, or would be."""
    if named := os.environ.get(FILE):
        return Path(named)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "gput" / "config.toml"


def from_file() -> dict[str, Any]:
    """What the file says; nothing where there is none, unless `GPUT_CONFIG` names it.

    Raises:
        ConfigurationError: it cannot be read, is not TOML, or sets what there is no setting for.
    """
    path = file()
    if not path.is_file() and not os.environ.get(FILE):
        return {}
    import tomllib

    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror}") from None
    except ValueError as error:  # not TOML, or not UTF-8
        raise _unusable(path, f"is not TOML: {error}") from None
    for name, value in found.items():
        if name not in SETTINGS:
            raise _unusable(path, f"sets {name}, which is no setting; they are {', '.join(SETTINGS)}")
        if SETTINGS[name].kind is float and type(value) is int:
            found[name] = float(value)
        elif type(value) is not SETTINGS[name].kind:
            raise _unusable(path, f"sets {name} to something that is not a {SETTINGS[name].kind.__name__}")
        if SETTINGS[name].path:
            found[name] = str(path.parent / Path(str(value)).expanduser())
    return found


def _unusable(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"the configuration file {path} {why}", remedy="Correct it, or name another by GPUT_CONFIG."
    )


def for_options(variables: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """What a command's options take from the file. `variables`: option -> the environment variable it listens to."""
    by_variable = {SETTINGS[name].variable: value for name, value in told.items()}
    return {option: by_variable[variable] for option, variable in variables.items() if variable in by_variable}


def trusted() -> Trust | None:
    """Whom commands believe to be the orchestrator; None where nobody said. Raises: ConfigurationError."""
    told = from_file()
    emulated = allows_emulated(told)
    folder = os.environ.get(SETTINGS["trust"].variable) or told.get("trust")
    if not folder:
        return None
    from gput.trust import Trust

    return Trust(Path(folder), allow_emulated=emulated)


def allows_emulated(told: Mapping[str, Any]) -> bool:
    """Whether commands would believe emulated evidence, with a trust folder or without. Raises: ConfigurationError."""
    variable = SETTINGS["allow_emulated"].variable
    said = os.environ.get(variable)  # empty is as good as unset, as for every option
    if said and said.lower() not in TRUE + FALSE:
        raise ConfigurationError(f"{variable} is neither true nor false", remedy="Write 1 or 0.")
    return said.lower() in TRUE if said else bool(told.get("allow_emulated"))
