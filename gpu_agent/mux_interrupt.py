"""The interrupt of the MUX's select register: one datagram, "look", whenever the platform selected another port. Knows no port and no HTTP.

A hint and nothing else: what is selected stands in the register. Whoever can ring makes the GPU's side look once more; where no ring comes,
because nobody could make the socket or may use it, that side looks by itself as before.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shared.service.logging import get_logger
from shared.service.unix_socket import drop, mailbox

_LOOK: Final = b"\x01"
_AT_ONCE: Final = 16
"""Datagrams read in one turn of the loop: whoever floods it does not hold up the rest."""
_log = get_logger("mux")


def interrupt_of(register: Path) -> Path:
    """Where a register's interrupts go: a socket beside it."""
    return register.with_name(register.name + ".irq")


def interrupt(path: Path) -> None:
    """Say "look" to the GPU's side, if anybody hears it; waits for nobody."""
    drop(path, _LOOK)


@contextmanager
def interrupts(path: Path, heard: Callable[[], None]) -> Iterator[None]:
    """Inside the block `heard` is called on the running event loop after each interrupt. Where no socket can be made none is heard."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)  # who starts first makes it
        box = mailbox(path)
    except OSError as error:
        _log.info("no interrupts: the register is looked at instead", why=error.strerror)
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_reader(box, _read, box, heard)
    try:
        yield
    finally:
        loop.remove_reader(box)
        box.close()  # its path stays; the next start takes it over


def _read(box: socket.socket, heard: Callable[[], None]) -> None:
    for _ in range(_AT_ONCE):
        try:
            box.recv(len(_LOOK))
        except OSError:  # there are no more
            break
    heard()
