"""Runs pages of the docs as a reader would: their shell blocks in order, in one shell and one empty folder. Knows no command.

A page's `## … Stop` and what follows runs last of all: other pages go on where it left the services running. The ports that the pages
name are replaced by free ones.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.docs.extract import ROOT, SHELL, Block, blocks

PORTS = re.compile(r"\b71(\d\d)\b")
STOP = re.compile(r"^## (?:\d+\. )?Stop\b", re.MULTILINE)
PATIENCE_S = 1500
IN_A_ROW = 10
"""Ports that the pages may name, from 7100."""


def shell(pages: Iterable[str]) -> list[Block]:
    """The shell blocks of the pages, in the order in which they run."""
    running: list[Block] = []
    stopping: list[Block] = []
    for page in pages:
        text = (ROOT / page).read_text()
        stop = STOP.search(text)
        last = text[: stop.start()].count("\n") if stop else len(text)
        for block in blocks(page, text):
            if block.kind == SHELL:
                (running if block.first <= last else stopping).append(block)
    return running + stopping


def script(found: Iterable[Block]) -> str:
    """One script, which ends at the first command that fails and says on stderr where it is."""
    parts = ["set -euo pipefail"]
    for block in found:
        parts.append(f"echo {shlex.quote(f'== {block.page}:{block.first}')} >&2")
        parts.append("\n".join(block.lines))
    return "\n".join(parts) + "\n"


def run(text: str, folder: Path) -> tuple[int, str]:
    """Exit code, and all that was said. Whatever the script left running is ended."""
    base = _free()
    text = PORTS.sub(lambda named: str(base + int(named[1])), text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPUT_")}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "CHECKOUT": str(ROOT),
    }
    with (folder.parent / f"{folder.name}.said").open("w+") as said:
        running = subprocess.Popen(
            ["bash", "-c", text], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
        )  # fmt: skip
        try:
            code = running.wait(timeout=PATIENCE_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
        said.seek(0)
        return code, said.read()


def _free() -> int:
    """The first of so many ports in a row that are free."""
    while True:
        with contextlib.ExitStack() as held:
            first: int = held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                for port in range(first + 1, first + IN_A_ROW):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
                return first
