"""Settings common to every service: environment, TOML file, arguments. Knows no service's own settings.

Order of precedence: arguments, environment (`env_prefix` of the subclass), TOML file, defaults. Names are the field names.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from shared.claims.shape import words_of
from shared.errors import ConfigurationError
from shared.service.ways import PeerUrl

MAX_BODY_BYTES = 4 * 1024 * 1024
_ADDRESS = r"https?://[^/?#@\s,]+/?"

# The TOML table of the load in progress; pydantic-settings builds its sources from the class and offers no argument for it.
_file_values: ContextVar[Mapping[str, Any]] = ContextVar("file_values", default={})  # noqa: B039 (never mutated)


class ServiceSettings(BaseSettings):
    """What every service can be told. A subclass sets `env_prefix` and adds its own fields."""

    model_config = SettingsConfigDict(env_prefix="GPUT_", extra="forbid", env_nested_delimiter="__")

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(0, ge=0, le=65535, description="TCP port to listen on; 0 takes a free one.")
    data_dir: Path = Field(description="Folder of the service's own state; made with mode 0700.")
    database_url: str | None = Field(None, description="SQLAlchemy URL; default is SQLite in data_dir.")
    database_password_file: Path | None = Field(
        None, description="File with the password for database_url, which then needs none in it."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severe level logged.")
    log_format: Literal["auto", "json", "console"] = Field(
        "auto", description="auto: JSON unless stderr is a terminal."
    )
    allow_emulated: bool = Field(False, description="Accept evidence from EMULATED roots; never in production.")
    die_with_parent: bool = Field(False, description="Stop when the starting process ends (used by the launcher).")
    trust_dir: Path | None = Field(None, description="Folder of root certificates and reference values.")
    rim_service: PeerUrl | None = Field(
        None,
        description="Base URL of a RIM service to ask for GPU reference values that the trust folder lacks, for instance "
        "`https://rim.attestation.nvidia.com/v1/rim`; nothing is fetched unless it is set.",
    )
    public_url: str | None = Field(
        None,
        pattern=rf"^{_ADDRESS}(\s*,\s*{_ADDRESS})*$",
        description="scheme://host[:port] under which callers reach this service; several, comma-separated, where they reach it "
        "by several: what is signed for another address is refused.",
    )
    shutdown_deadline_s: float = Field(5.0, gt=0, le=600, description="Time given to running requests at a stop.")
    max_body_bytes: int = Field(MAX_BODY_BYTES, ge=1024, description="Largest buffered request body.")
    metrics_port: int | None = Field(
        None, ge=0, le=65535,
        description="TCP port for /metrics alone, so that who scrapes cannot reach the API; then not on `port`. 0: a free one.",
    )  # fmt: skip
    metrics_host: str = Field("127.0.0.1", min_length=1, description="Address for metrics_port.")
    otlp_endpoint: str | None = Field(
        None, pattern=r"^https?://[^/@]+(/|$)",
        description="Base URL of an OTLP-HTTP collector, for one trace per visit (extra `tracing`); nothing is traced unless it is set.",
    )  # fmt: skip
    otlp_headers_file: Path | None = Field(
        None,
        description="File of headers for the collector (NAME: VALUE a line), such as its API key; `OTEL_*` variables count for nothing.",
    )
    refusals_per_s: float = Field(
        10.0, ge=0, le=1e6,
        description="Refused requests (unsigned, not permitted, malformed) that one address may send a second in the long run; then it is "
        "answered 429 unheard. 0: no limit, for instance behind a proxy that gives all callers one address.",
    )  # fmt: skip
    refusals_burst: int = Field(300, ge=1, le=10**6, description="Refused requests that one address may send at once.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments over environment over TOML. No .env file: a file in the working folder must not steer a service."""
        return init_settings, env_settings, _TomlSource(settings_cls)

    def log_context(self) -> dict[str, str]:
        """What stands on every line that this process logs."""
        return {}

    @property
    def public_urls(self) -> tuple[str, ...]:
        """Every address of `public_url`."""
        return tuple(url.strip() for url in (self.public_url or "").split(",") if url)

    @property
    def store_url(self) -> str:
        """URL of the database; makes `data_dir` when the default SQLite file lies there.

        Raises:
            ConfigurationError: the folder cannot be made, the password's file not be read, or it is for no database.
        """
        if self.database_url is not None:
            return self._with_password(self.database_url)
        if self.database_password_file is not None:
            raise ConfigurationError(
                "database_password_file is set and database_url is not: the database would be SQLite in data_dir",
                remedy="Name the database by the setting database_url, or unset database_password_file.",
            )
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"data_dir {self.data_dir} cannot be made: {error.strerror}",
                remedy="Name a folder this user may write, by the setting data_dir.",
            ) from error
        return f"sqlite:///{self.data_dir.resolve() / 'state.db'}"

    def _with_password(self, url: str) -> str:
        if self.database_password_file is None:
            return url
        try:
            password = quote(self.database_password_file.read_text(encoding="utf-8").strip(), safe="")
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"database_password_file {self.database_password_file} cannot be read ({type(error).__name__})",
                remedy="Name a text file that this user may read.",
            ) from None
        scheme, _, rest = url.partition("://")
        place, slash, path = rest.partition("/")
        user, _, host = place.rpartition("@")
        return f"{scheme}://{user.partition(':')[0]}:{password}@{host}{slash}{path}"

    @classmethod
    def load(cls, config: Path | None = None, **overrides: Any) -> Self:
        """Settings from a TOML file, the environment and `overrides`.

        Raises:
            ConfigurationError: the file is absent or not TOML, a setting is missing, unknown or wrong; names each.
        """
        _refuse_unknown_variables(cls)
        token = _file_values.set(_read_toml(config) if config is not None else {})
        try:
            return cls(**overrides)
        except (ValidationError, SettingsError) as error:
            raise _explained(cls, error) from None
        finally:
            _file_values.reset(token)


class _TomlSource(PydanticBaseSettingsSource):
    """The values of the file that `load` read."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return _file_values.get().get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return dict(_file_values.get())


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"configuration file {path} cannot be read: {error.strerror}", remedy="Check the path given by --config."
        ) from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        raise ConfigurationError(
            f"configuration file {path} is not TOML: {error}", remedy="Correct the file."
        ) from error


COMMAND_LINES = ("GPUT_HOLDER_URL", "GPUT_HOLDER_TOKEN")
"""Variables of the command line, by which an operator's shell finds its holder: no service's settings, though they begin alike."""


def _refuse_unknown_variables(cls: type[ServiceSettings]) -> None:
    """A mistyped variable must not be ignored: it may have been meant to make something stricter."""
    prefix = cls.model_config.get("env_prefix", "")
    if prefix == ServiceSettings.model_config.get("env_prefix"):
        return  # shared by all services, so another's variable is not a mistake here
    for variable in sorted(os.environ):
        name = variable[len(prefix) :].lower().split("__")[0]
        if variable in COMMAND_LINES:
            continue
        if variable.upper().startswith(prefix) and name not in cls.model_fields:
            raise ConfigurationError(
                f"the environment sets {variable}, but there is no setting {name}",
                remedy=f"Correct its name; the settings are {', '.join(cls.model_fields)}.",
            )


def _explained(cls: type[ServiceSettings], error: ValidationError | SettingsError) -> ConfigurationError:
    prefix = cls.model_config.get("env_prefix", "")
    if isinstance(error, SettingsError):
        return ConfigurationError(
            f"a setting cannot be parsed: {error}", remedy=f"Correct the {prefix}* environment variable."
        )
    # Input values stay out of the message: a database URL carries a password.
    found = error.errors(include_input=False, include_url=False, include_context=False)
    unknown = [str(item["loc"][0]) for item in found if item["type"] == "extra_forbidden" and len(item["loc"]) == 1]
    if unknown:  # said before anything else: a setting that seems to be missing is often a mistyped one
        return ConfigurationError(
            f"there is no setting {', '.join(unknown)}",
            code="unknown-setting",
            remedy=f"Correct its name or remove it; the settings are {', '.join(cls.model_fields)}.",
        )
    names = [".".join(str(part) for part in item["loc"]) or "settings" for item in found]
    detail = "; ".join(f"setting {name}: {words_of(item)}" for name, item in zip(names, found, strict=True))
    variables = ", ".join(f"{prefix}{name.split('.')[0].upper()}" for name in names)
    return ConfigurationError(
        detail, remedy=f"Set {variables} in the environment, or the same name in the --config file."
    )
