"""Options every talking command shares, and the one place where it connects. Knows no command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from gput.client import AsyncClient

T = TypeVar("T")
UrlOption = Annotated[str, typer.Option("--url", envvar="GPUT_URL", help="the orchestrator's base URL")]
KeyOption = Annotated[Path, typer.Option("--key", envvar="GPUT_KEY", help="your private key file (Ed25519 PEM)")]


def connect(url: str, key: Path, work: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> T:
    """Run `work` with a client of its own."""

    async def run() -> T:
        async with AsyncClient(url, key) as client:
            return await work(client)

    return asyncio.run(run())
