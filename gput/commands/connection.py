"""What every command shares: its app's manners, the options of talking commands, the one place that connects. Knows no command."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from gput.output import say
from shared.errors import BadRequest

if TYPE_CHECKING:
    from gput.client import AsyncClient

T = TypeVar("T")
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="do not ask")]
NoInputOption = Annotated[
    bool, typer.Option("--no-input", envvar="GPUT_NO_INPUT", help="never ask, not even on a terminal: fail instead")
]
Session = Annotated[str, typer.Argument(help="session id (s_…), or a beginning of it that is no other's")]
UrlOption = Annotated[
    str,
    typer.Option("--url", envvar="GPUT_URL", help="the orchestrator's base URL; with a standby, both, comma-separated"),
]
KeyOption = Annotated[Path, typer.Option("--key", envvar="GPUT_KEY", help="your private key file (Ed25519 PEM)")]


def connect(
    url: str, key: Path, work: Callable[[AsyncClient], Coroutine[Any, Any, T]],
    run: Callable[[Coroutine[Any, Any, T]], T] = asyncio.run,
) -> T:  # fmt: skip
    """Run `work` with a client of its own.

    Args:
        run: `run_in_order` for work that takes something back when it is stopped, which a second Ctrl-C must not break off.
    """
    from gput.client import UNATTESTED, AsyncClient  # only now: a command that connects to nobody need not know how
    from gput.config import trusted

    trust = trusted() or UNATTESTED

    async def connected() -> T:
        async with AsyncClient(url, key, trust=trust) as client:
            return await work(client)

    return run(connected())


def with_session(session: str, url: str, key: Path, work: Callable[[AsyncClient, str], Coroutine[Any, Any, T]]) -> T:
    """Run `work` with a client of its own, and the whole id of the session that was named by a beginning of it."""

    async def run(client: AsyncClient) -> T:
        return await work(client, await client.find(session))

    return connect(url, key, run)


def confirm(question: str, yes: bool, no_input: bool = False) -> None:
    """Ask before what cannot be taken back.

    Raises:
        BadRequest: the answer is not yes, or nobody is there to ask.
    """
    if yes:
        return
    if no_input or sys.stdin is None or not sys.stdin.isatty():  # None where the shell closed it (`<&-`)
        raise BadRequest("this cannot be taken back", code="needs-confirmation", remedy="Say --yes if you mean it.")
    say(f"{question} [y/N] ")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise BadRequest("nothing was done", code="not-confirmed")
