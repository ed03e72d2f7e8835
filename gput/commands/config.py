"""`gput config`: every setting, its value, and where that comes from; of the client, or of a service. Shows no secret."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from gput.commands.manners import Commands, FormatOption
from gput.expected import PriceOption
from gput.output import Format, emit
from shared.errors import BadRequest

app = Commands("Settings.\n\nExample:  gput config show --origin")


class Service(StrEnum):
    """Whose settings."""

    ORCHESTRATOR = "orchestrator"
    HOLDER = "holder"
    AGENT = "agent"
    PLATFORM = "platform"


@app.callback()
def settings() -> None:
    """Settings.

    Example:  gput config show --origin
    """


@app.command()
def show(
    context: typer.Context,
    service: Annotated[Service | None, typer.Argument(help="a service's settings; default: the client's own")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="the service's configuration file")] = None,
    origin: Annotated[bool, typer.Option("--origin", help="also say where each value comes from")] = False,
    url: Annotated[str | None, typer.Option("--url", envvar="GPUT_URL", help="as for other commands")] = None,
    key: Annotated[str | None, typer.Option("--key", envvar="GPUT_KEY", help="as for other commands")] = None,
    holder_url: Annotated[str | None, typer.Option("--holder-url", envvar="GPUT_HOLDER_URL", help="as for `gput party`")] = None,
    holder_token: Annotated[str | None, typer.Option("--token", envvar="GPUT_HOLDER_TOKEN", help="as for `gput party`")] = None,
    trust: Annotated[str | None, typer.Option("--trust", envvar="GPUT_TRUST", help="as for `gput session receipts`")] = None,
    gpu_hour_price: PriceOption = None,
    fmt: FormatOption = Format.TABLE,
) -> None:  # fmt: skip
    """Every setting and its value; with --origin whether a flag, the environment, a file or the default says so. Secrets are left out.

    Example:  gput config show orchestrator --config orchestrator.toml --origin
    """
    if service is None:
        if config is not None:
            raise BadRequest(
                "--config names a service's configuration file, and no service is named", code="usage",
                remedy="Name the service; the client's own file is named by GPUT_CONFIG.",
            )  # fmt: skip
        given = {
            "url": url, "key": key, "holder_url": holder_url, "holder_token": holder_token, "trust": trust,
            "gpu_hour_price": gpu_hour_price,
        }  # fmt: skip
        rows = _own(given, lambda name: str(getattr(context.get_parameter_source(name), "name", "DEFAULT")))
    else:
        from gput.service_settings import rows_of

        rows = rows_of(service.value, config)
    emit([row if origin else {"setting": row["setting"], "value": row["value"]} for row in rows],
         ("setting", "value", *(("origin",) if origin else ())), fmt)  # fmt: skip


def _own(given: dict[str, Any], source: Any) -> list[dict[str, Any]]:
    """The client's settings as every other command would have them."""
    import os

    from gput.config import SETTINGS, allows_emulated, file, from_file
    from gput.service_settings import redacted

    told = from_file()
    rows: list[dict[str, Any]] = []
    for name, setting in SETTINGS.items():
        by = {
            "COMMANDLINE": "flag", "ENVIRONMENT": f"environment {setting.variable}", "DEFAULT_MAP": f"file {file()}",
        }  # fmt: skip
        if name in given:
            rows.append({"setting": name, "value": redacted(given[name]), "origin": by.get(source(name), "default")})
            continue
        where = "environment" if os.environ.get(setting.variable) else "file" if name in told else "default"
        words = {"environment": by["ENVIRONMENT"], "file": by["DEFAULT_MAP"], "default": "default"}
        rows.append(
            {"setting": name, "value": allows_emulated(told), "origin": words[where]}
        )  # a flag for it there is none
    return rows
