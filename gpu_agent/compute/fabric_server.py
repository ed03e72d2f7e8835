"""The keeper of a device's memory: a process that holds HBM as a tensor and does what the agent asks with its bytes. Runs no program.

    python -m gpu_agent.compute.fabric_server DEVICE BYTES ARENA_FD SLOTS_FD SOCKET_FD

It outlives compute processes, which are destroyed with all their memory, and dies with the agent, whose end of the socket is its only
master. Knows no address space, no region, no key.
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_agent.compute import arena as arenas
from gpu_agent.compute import cuda_driver
from gpu_agent.compute import fabric_messages as messages
from gpu_agent.compute.arena import Arena
from gpu_agent.compute.card_hasher import CardHasher, card_hashing
from gpu_agent.compute.slot_hasher import SlotHasher
from shared.core_files import leave_no_core


class Keeper:
    """Answers requests in order, one at a time: what was asked for is done when the answer leaves.

    Args:
        on_card: begins a digest that the card makes itself; None: it cannot.
    """

    def __init__(
        self, arena: Arena, slots: list[Tensor], link: socket.socket, on_card: Callable[[], CardHasher] | None
    ) -> None:
        self._arena, self._slots, self._link, self._on_card = arena, slots, link, on_card
        self._hasher: SlotHasher | CardHasher = SlotHasher(arena, slots)

    def serve(self) -> None:
        """Until the agent is gone."""
        while data := self._link.recv(messages.MAX_MESSAGE):
            try:
                answer = self._do(messages.unpack(data))
            except Exception as error:  # told to the agent as this request's failure
                answer = messages.fault(error)
            self._link.send(messages.pack(answer))

    def _do(self, ask: dict[str, Any]) -> dict[str, Any]:
        arena, extent = self._arena, (ask.get("address", 0), ask.get("length", 0))
        match ask["op"]:
            case "in":
                arena.put(self._slots[ask["slot"]], *extent)
            case "out":
                arena.get(self._slots[ask["slot"]], *extent)
            case "zero":
                arena.zero(*extent)
            case "is-zero":
                return {"yes": arena.is_zero(*extent)}
            case "dirty":
                return {"pages": arena.dirty_pages(*extent)}
            case "copy":
                arena.copy(ask["address"], ask["source"], ask["length"])
            case "hash":
                return self._hash(ask)
            case "free":
                return {"bytes": arena.free()}
            case "clear-free":
                return {"bytes": arena.clear_free(ask["least"])}
        return {}

    def _hash(self, ask: dict[str, Any]) -> dict[str, Any]:
        if ask["begins"]:
            on_card = self._on_card if ask["card"] else None
            self._hasher = on_card() if on_card is not None else SlotHasher(self._arena, self._slots)
        self._hasher.add([(bytes.fromhex(head), address, length) for head, address, length in ask["parts"]])
        return {"digest": self._hasher.digest().hex()} if ask["ends"] else {}


def _keeper(device: str, size: int, arena_fd: int, slots_fd: int, link: socket.socket) -> Keeper | None:
    """Make the memory and say so, or say why not."""
    try:
        arenas.require_device(device)
        made = arenas.make(device, size, arena_fd)
        held = mmap.mmap(slots_fd, messages.STAGING_BYTES, flags=mmap.MAP_SHARED)
        staging = torch.frombuffer(held, dtype=torch.uint8)
        pinned = device != "cpu" and cuda_driver.pin(staging)
        on_card = card_hashing(made.arena) if device != "cpu" else None
        made.arena.stands()
    except Exception as error:  # told to the agent, which cannot start
        link.send(messages.pack(messages.fault(error)))
        return None
    name = torch.cuda.get_device_name(device) if device != "cpu" else "host memory"
    hello = {
        "bytes": made.arena.flat.numel(), "piece": made.piece, "name": name, "pinned": pinned,
        "hashes": on_card is not None,
    }  # fmt: skip
    socket.send_fds(link, [messages.pack(hello)], made.files)
    for file in made.files:
        os.close(file)
    return Keeper(made.arena, list(torch.split(staging, messages.SLOT_BYTES)), link, on_card)


def main(argv: list[str]) -> int:
    """Entry point of the keeper."""
    device, numbers = argv[0], [int(argument) for argument in argv[1:]]
    size, arena_fd, slots_fd, link_fd = numbers
    leave_no_core()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the agent's to handle
    torch.set_num_threads(1)
    link = socket.socket(fileno=link_fd)
    keeper = _keeper(device, size, arena_fd, slots_fd, link)
    if keeper is None:
        return 1
    try:
        keeper.serve()
    except (BrokenPipeError, ConnectionResetError):
        return 0  # the agent went away while we spoke
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
