"""`gput doctor`: test each hop of an installation and name the failing one. Knows the services' public addresses only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Annotated, Any

import httpx2
import typer

from gput.client import AsyncClient
from gput.commands.manners import Commands, FormatOption
from gput.output import Format, emit
from shared.errors import GputError, NotPermitted, Unavailable

app = Commands()
MAX_SKEW_S = 30.0
TIMEOUT_S = 5.0
KNOWN = "orchestrator: knows your key"
READY, STANDBY = "ready", "stands by"
Check = Callable[[], Awaitable[str]]


@app.command()
def doctor(
    url: Annotated[
        str, typer.Option("--url", envvar="GPUT_URL", help="orchestrator; with a standby, both, comma-separated")
    ],
    key: Annotated[Path | None, typer.Option("--key", envvar="GPUT_KEY", help="your key, to test signed calls")] = None,
    holder_url: Annotated[
        list[str] | None, typer.Option("--holder-url", help="a holder service; may be repeated")
    ] = None,
    agent_url: Annotated[str | None, typer.Option("--agent-url", help="the GPU agent")] = None,
    platform_url: Annotated[str | None, typer.Option("--platform-url", help="the platform")] = None,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Ask every service whether it is alive and ready, and test your key and clock against the orchestrator.

    Example:  gput doctor --url http://127.0.0.1:8700 --key owner.pem
    """
    services = _orchestrators(url)
    services |= {f"holder {number}": address for number, address in enumerate(holder_url or [], 1)}
    services |= {"agent": agent_url} if agent_url else {}
    services |= {"platform": platform_url} if platform_url else {}
    rows = asyncio.run(_examine(services, url, key))
    emit(rows, ("hop", "result", "detail"), fmt)
    failed = [row["hop"] for row in rows if row["result"] != "ok"]
    if failed:
        kind = NotPermitted if failed == [KNOWN] else Unavailable
        raise kind(f"failing: {', '.join(failed)}", code="doctor", remedy="The detail of each is in the table.")


async def _examine(services: dict[str, str], url: str, key: Path | None) -> list[dict[str, Any]]:
    rows = []
    async with httpx2.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as http:
        for name, address in services.items():
            rows.append(await _row(f"{name}: reachable", lambda a=address: _alive(http, a)))  # type: ignore[misc]  # bound at once
            if rows[-1]["result"] == "ok":
                rows.append(await _row(f"{name}: ready", lambda a=address, n=name: _ready(http, a, n)))  # type: ignore[misc]  # bound at once
    if len(_orchestrators(url)) > 1:
        rows.append(await _row("orchestrators: one leads", lambda: _one_leads(rows)))
    if key is not None and any(row["detail"] == READY for row in rows if row["hop"].startswith("orchestrator")):
        async with AsyncClient(url, key) as client:
            rows.append(await _row(KNOWN, lambda: _who(client)))
            if rows[-1]["result"] == "ok":
                rows.append(await _row("orchestrator: its GPUs", lambda: _gpus(client)))
    return rows


async def _row(hop: str, check: Check) -> dict[str, Any]:
    try:
        return {"hop": hop, "result": "ok", "detail": await check()}
    except GputError as error:
        return {"hop": hop, "result": "failed", "detail": f"{error.detail} [{error.code}]"}
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL):
        return {"hop": hop, "result": "failed", "detail": "that is no http address"}
    except httpx2.TransportError as error:
        return {"hop": hop, "result": "failed", "detail": f"{type(error).__name__}: nothing answers at that address"}


async def _alive(http: httpx2.AsyncClient, address: str) -> str:
    answer = await http.get(f"{address}/livez")
    if answer.status_code != 200:
        raise Unavailable(f"{address}/livez answered {answer.status_code}", code="not-alive")
    skew = time.time() - parsedate_to_datetime(answer.headers["date"]).timestamp() if "date" in answer.headers else 0.0
    if abs(skew) > MAX_SKEW_S:
        raise Unavailable(
            f"its clock differs from ours by {skew:.0f} s; signed requests will be refused", code="clock-skew"
        )
    return address


def _orchestrators(url: str) -> dict[str, str]:
    addresses = [address.strip().rstrip("/") for address in url.split(",")]
    if len(addresses) == 1:
        return {"orchestrator": url}
    return {f"orchestrator {number}": address for number, address in enumerate(addresses, 1)}


async def _ready(http: httpx2.AsyncClient, address: str, name: str) -> str:
    answer = await http.get(f"{address}/readyz")
    if answer.status_code == 200:
        return READY
    if name.startswith("orchestrator ") and _stands_by(answer):
        return STANDBY
    raise Unavailable(f"not ready: {answer.text[:300]}", code="not-ready")


def _stands_by(answer: httpx2.Response) -> bool:
    """Whether nothing is wrong with an orchestrator but that another one leads."""
    try:
        checks = dict(answer.json()["checks"])
    except (ValueError, KeyError, TypeError):
        return False
    return STANDBY in str(checks.pop("leading", "")) and set(checks.values()) == {"ok"}


async def _one_leads(rows: list[dict[str, Any]]) -> str:
    leaders = [
        row["hop"].partition(":")[0]
        for row in rows
        if row["detail"] == READY and row["hop"].startswith("orchestrator ")
    ]
    if len(leaders) != 1:
        raise Unavailable(f"{len(leaders) or 'none'} of them lead", code="no-leader")
    return f"{leaders[0]} leads"


async def _who(client: AsyncClient) -> str:
    me = await client.whoami()
    return f"you are {me['name']} ({me['role']})"


async def _gpus(client: AsyncClient) -> str:
    gpus = await client.items("gpus")
    return ", ".join(f"{gpu['id']} {gpu['backend']} {gpu['leased_to'] or 'free'}" for gpu in gpus)
