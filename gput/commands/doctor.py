"""`gput doctor`: test each hop of an installation and name the failing one. Knows the services' public addresses only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import httpx2
import typer

from gput import hops
from gput.client import UNATTESTED, AsyncClient
from gput.commands.manners import Commands, FormatOption
from gput.output import Format, emit
from gput.trust import Trust
from shared.errors import GputError, NotPermitted, Unavailable
from shared.service.ways import addresses

app = Commands()
MAX_SKEW_S = 30.0
TIMEOUT_S = 5.0
READY_S = 15.0
"""For a service's word on itself: it waits up to 5 s for a database or a disk that hangs, and then names it."""
KNOWN, ATTESTED = "orchestrator: knows your key", "orchestrator: attested"
STANDBY, OWN_KEY = "stands by", "here: your key"
Row = dict[str, Any]
T = TypeVar("T")


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
    trust: Annotated[
        Path | None,
        typer.Option("--trust", envvar="GPUT_TRUST", help="your trust folder: its collateral, and to attest"),
    ] = None,
    allow_emulated: Annotated[
        bool, typer.Option("--allow-emulated", envvar="GPUT_ALLOW_EMULATED", help="let EMULATED roots of it count")
    ] = False,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Test each hop from here to the services, name the one that fails, and say what to do: exit code 6, or 4 where you are refused.

    Each service says itself how its database, disk and keys are. A warning is no failure.

    Example:  gput doctor --url http://127.0.0.1:8700 --key owner.pem --trust trust/
    """
    services = _orchestrators(url)
    services |= {f"holder {number}": address for number, address in enumerate(holder_url or [], 1)}
    services |= {"agent": agent_url} if agent_url else {}
    services |= {"platform": platform_url} if platform_url else {}
    believed = None if trust is None else Trust(trust, allow_emulated=allow_emulated)
    rows = asyncio.run(_examine(services, url, key, believed))
    emit(rows, ("hop", "result", "detail", "remedy"), fmt)
    failed = [row["hop"] for row in rows if row["result"] == "failed"]
    if failed:
        kind = NotPermitted if set(failed) <= {KNOWN, ATTESTED} else Unavailable
        raise kind(f"failing: {', '.join(failed)}", code="doctor", remedy="The detail of each hop says why.")


async def _examine(services: dict[str, str], url: str, key: Path | None, trust: Trust | None) -> list[Row]:
    rows = [await _row("here: room on the disk", lambda: hops.room(hops.working_folder()))]
    if key is not None:
        rows.append(await _row(OWN_KEY, lambda: hops.key_file(key)))
    if trust is not None:
        rows.append(await _row("here: collateral", lambda: hops.collateral(trust.folder, time.time())))
    ready = set()
    async with httpx2.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as http:
        for name, address in services.items():
            found = await _service(http, name, address)
            rows += found
            if all(row["result"] != "failed" for row in found) and not any(row["detail"] == STANDBY for row in found):
                ready.add(name)
    leaders = [name for name in _orchestrators(url) if name in ready]
    if len(_orchestrators(url)) > 1:
        rows.append(await _row("orchestrators: one leads", lambda: _one_leads(leaders)))
    if key is not None and leaders and not any(row["hop"] == OWN_KEY and row["result"] == "failed" for row in rows):
        rows += await _as_you(url, key, trust)
    return rows


async def _service(http: httpx2.AsyncClient, name: str, address: str) -> list[Row]:
    """What can be seen of a service from outside, and what it says of itself."""
    address = address.strip().rstrip("/")
    rows = [await _row(f"{name}: reachable", lambda: _alive(http, name, address))]
    if rows[0]["result"] != "ok":
        return rows
    rows.append(await _row(f"{name}: TLS", lambda: hops.tls(address)))
    rows.append(await _row(f"{name}: clock", lambda: _clock(http, address)))
    said, failed = await _asked(f"{name}: ready", http.get(f"{address}/readyz", timeout=READY_S))
    if said is None:
        return [*rows, *failed]
    checks = _checks(said)
    for check, word in checks.items():
        rows.append(await _row(f"{name}: {check}", lambda w=word, c=check: _said(name, c, w)))  # type: ignore[misc]  # bound at once
    if not checks:
        rows.append(await _row(f"{name}: ready", lambda: _ready(said)))
    return rows


async def _as_you(url: str, key: Path, trust: Trust | None) -> list[Row]:
    """What the orchestrator says to a signed request."""
    rows, believed = list[Row](), trust
    if trust is not None:
        async with AsyncClient(url, key, trust=trust) as client:
            rows.append(await _row(ATTESTED, lambda: _attested(client)))
        # What does not prove itself may still say why it knows no such key; what does must sign what it says.
        believed = trust if rows[0]["result"] == "ok" else None
    async with AsyncClient(url, key, trust=believed or UNATTESTED) as client:
        rows.append(await _row(KNOWN, lambda: _who(client)))
        if rows[-1]["result"] == "ok":
            rows.append(await _row("orchestrator: its GPUs", lambda: _gpus(client)))
            parties, failed = await _asked("orchestrator: its parties", client.items("parties"))
            rows += failed
            for party in parties or ():
                if party["role"] == "holder":
                    name, seen = party["name"], party["last_seen"]
                    rows.append(await _row(f"holder {name}", lambda n=name, s=seen: hops.heard(n, s, time.time())))  # type: ignore[misc]  # bound at once
    return rows


async def _asked(hop: str, ask: Awaitable[T]) -> tuple[T | None, list[Row]]:
    """What was asked for; None with the row that says why there is nothing."""
    found: list[T] = []

    async def keep() -> str:
        found.append(await ask)
        return ""

    row = await _row(hop, keep)
    return (found[0], []) if found else (None, [row])


async def _row(hop: str, check: Callable[[], str | Awaitable[str]]) -> Row:
    try:
        found = check()
        return _told(hop, "ok", found if isinstance(found, str) else await found)
    except GputError as error:
        result = "warning" if isinstance(error, hops.Doubt) else "failed"
        return _told(hop, result, f"{error.detail} [{error.code}]", error.remedy)
    except httpx2.RequestError as error:
        return _told(hop, "failed", *hops.unreachable(error))
    except OSError as error:  # of this machine: the working folder is gone, for instance
        return _told(
            hop,
            "failed",
            error.strerror or type(error).__name__,
            "Run it in a folder that is there, and look at this machine.",
        )


def _told(hop: str, result: str, detail: str, remedy: str | None = None) -> Row:
    return {"hop": hop, "result": result, "detail": detail, "remedy": remedy}


async def _alive(http: httpx2.AsyncClient, name: str, address: str) -> str:
    list(addresses(address, name))
    answer = await http.get(f"{address}/livez")
    if answer.status_code != 200:
        raise Unavailable(
            f"{address}/livez answered {answer.status_code}",
            code="not-alive",
            remedy="Another program may have that address.",
        )
    try:
        said = (await http.get(f"{address}/version")).json()
    except ValueError:
        said = None
    hops.named(name, address, said)
    return address


async def _clock(http: httpx2.AsyncClient, address: str) -> str:
    answer = await http.get(f"{address}/livez")
    try:
        skew = time.time() - parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, ValueError, OverflowError, OSError):
        return "it does not say its time"
    if abs(skew) > MAX_SKEW_S:
        raise Unavailable(
            f"its clock differs from ours by {skew:.0f} s; signed requests will be refused", code="clock-skew",
            remedy="Set both clocks by NTP.",
        )  # fmt: skip
    return f"{abs(skew):.0f} s apart" if abs(skew) >= 1 else "the same"


def _orchestrators(url: str) -> dict[str, str]:
    several = url.split(",")
    if len(several) == 1:
        return {"orchestrator": url}
    return {f"orchestrator {number}": address for number, address in enumerate(several, 1)}


def _checks(answer: httpx2.Response) -> dict[str, str]:
    """What a service says of its parts: "ok" or what is wrong. Nothing where it says nothing."""
    try:
        return {str(name): str(word) for name, word in answer.json()["checks"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _said(service: str, check: str, word: str) -> str:
    if word == "ok":
        return "ok"
    if check == "leading" and STANDBY in word and service.startswith("orchestrator "):
        return STANDBY
    raise Unavailable(word, code="not-ready", remedy=f"Look at {service}'s log and docs/operations.md.")


def _ready(answer: httpx2.Response) -> str:
    if answer.status_code == 200:
        return "ready"
    raise Unavailable(f"not ready: {answer.text[:300]}", code="not-ready", remedy="Look at its log.")


def _one_leads(leaders: list[str]) -> str:
    if len(leaders) != 1:
        raise Unavailable(
            f"{len(leaders) or 'none'} of them lead",
            code="no-leader",
            remedy="Read about a standby in docs/operations.md.",
        )
    return f"{leaders[0]} leads"


async def _attested(client: AsyncClient) -> str:
    found = await client.attest()
    return f"measured code, root set {found.cvm.root_set}"


async def _who(client: AsyncClient) -> str:
    me = await client.whoami()
    return f"you are {me['name']} ({me['role']})"


async def _gpus(client: AsyncClient) -> str:
    gpus = await client.items("gpus")
    return ", ".join(f"{gpu['id']} {gpu['backend'] or 'not attested yet'} {gpu['leased_to'] or 'free'}" for gpu in gpus)
