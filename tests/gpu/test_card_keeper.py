"""A keeper of a card, over a card that is played: who makes digests there, and that memory taken for them is not missed by a sweep."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from gpu_agent.compute import arena as arenas
from gpu_agent.compute import cuda_driver, fabric_server
from gpu_agent.compute.arena import Arena, Made
from gpu_agent.compute.fabric_messages import STAGING_BYTES, unpack
from gpu_agent.compute.fabric_server import Keeper, _keeper
from shared.errors import VerificationFailed

SIZE = 96 << 10
Start = Callable[[], tuple[Keeper | None, dict[str, Any]]]


@pytest.fixture
def arena() -> Arena:
    return Arena(torch.zeros(SIZE, dtype=torch.uint8))


@pytest.fixture
def start(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a keeper of that arena; it, and its first word."""
    monkeypatch.setattr(arenas, "require_device", lambda device: None)
    monkeypatch.setattr(arenas, "make", lambda device, size, file: Made(arena, SIZE, []))
    monkeypatch.setattr(cuda_driver, "pin", lambda staging: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "A card")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    staging = os.memfd_create("staging")
    os.ftruncate(staging, STAGING_BYTES)
    yield lambda: (_keeper("cuda:0", SIZE, -1, staging, theirs), unpack(ours.recv(4096)))
    os.close(staging)
    for end in (ours, theirs):
        end.close()


@pytest.mark.parametrize("able", [True, False])
def test_it_says_who_makes_digests_and_counts_what_is_free_after_that(
    start: Start, monkeypatch: pytest.MonkeyPatch, able: bool
) -> None:
    done, begin = list[str](), (lambda: None) if able else None
    monkeypatch.setattr(fabric_server, "card_hashing", lambda arena: done.append("hashing") or begin)
    monkeypatch.setattr(Arena, "stands", lambda arena: done.append("stands"))
    keeper, said = start()
    assert keeper is not None
    assert keeper._on_card is begin
    assert said["hashes"] is able
    assert done == ["hashing", "stands"]


def test_a_card_that_fails_at_its_first_digest_is_told_to_the_agent(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(arena: Arena) -> None:
        raise RuntimeError("CUDA error: an illegal address")

    monkeypatch.setattr(fabric_server, "card_hashing", broken)
    keeper, said = start()
    assert (keeper, said["code"]) == (None, "gpu-memory-failed")


def test_what_is_taken_for_digests_is_not_missed_by_a_sweep(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    free = [40 << 30, 39 << 30]
    arena._cuda = True
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[0], 80 << 30))
    monkeypatch.setattr(arenas, "RETURN_DEADLINE_S", 0.0)
    monkeypatch.setattr(arenas, "_is_zero", lambda part: True)
    some = torch.zeros(1, dtype=torch.uint8)
    monkeypatch.setattr(arenas, "_take_all", lambda device: [some, some.expand(free[0])])
    arena.stands()
    assert arena.clear_free() == (40 << 30) + 1
    free.pop(0)
    with pytest.raises(VerificationFailed, match="come back"):
        arena.clear_free()
    arena.stands()
    assert arena.clear_free() == (39 << 30) + 1
