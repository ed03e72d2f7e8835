"""Memory of a card in pieces, over a driver that is played: which pieces are made, handed on and mapped, and what refusals become."""

from __future__ import annotations

import ctypes
import os
import socket
from typing import Any

import pytest
import torch

from gpu_agent.compute import arena, cuda_driver, cuda_memory, fabric_messages
from gpu_agent.compute.arena import Pieces
from gpu_agent.compute.cuda_memory import GRANULE, Mapping, piece_bytes
from gpu_agent.compute.fabric import DeviceFabric
from gpu_agent.hardware.hbm import Extent
from shared.errors import ConfigurationError, Unavailable

MIB = 1 << 20
BASE = 0x7F00_0000_0000


class Driver:
    """Answers as libcuda does, 0 for what went well; `log`: calls that map, as (name, offset in HBM, bytes)."""

    def __init__(self, room: int = 1 << 40) -> None:
        self.log: list[tuple[str, int, int]] = []
        self.imported: list[int] = []
        self.room, self.alive = room, 0

    def cuMemAddressReserve(self, base: Any, size: Any, *_: Any) -> int:  # CUDA's names
        base._obj.value = BASE
        self.log.append(("reserve", 0, size.value))
        return 0

    def cuMemCreate(self, handle: Any, size: Any, asked: Any, flags: Any) -> int:
        kind = asked._obj
        assert (kind.type, kind.handle_types, kind.location.type, kind.location.id, flags.value) == (1, 1, 1, 3, 0)
        if size.value > self.room:
            return 2
        self.room -= size.value
        self.alive += 1
        handle._obj.value = self.alive
        return 0

    def cuMemExportToShareableHandle(self, file: Any, handle: Any, kind: Any, flags: Any) -> int:
        assert (kind.value, flags.value) == (1, 0)
        file._obj.value = os.open("/dev/null", os.O_RDONLY)
        return 0

    def cuMemImportFromShareableHandle(self, handle: Any, file: Any, kind: Any) -> int:
        assert kind.value == 1
        self.imported.append(file.value)
        self.alive += 1
        handle._obj.value = self.alive
        return 0

    def cuMemMap(self, at: Any, length: Any, offset: Any, handle: Any, flags: Any) -> int:
        assert (offset.value, flags.value) == (0, 0)
        self.log.append(("map", at.value - BASE, length.value))
        return 0

    def cuMemSetAccess(self, at: Any, length: Any, access: Any, count: Any) -> int:
        assert (access._obj.location.id, access._obj.flags, count.value) == (3, 3, 1)
        self.log.append(("access", at.value - BASE, length.value))
        return 0

    def cuMemRelease(self, handle: Any) -> int:
        self.alive -= 1
        return 0

    def cuGetErrorName(self, code: int, name: Any) -> int:
        name._obj.value = {2: b"CUDA_ERROR_OUT_OF_MEMORY", 1: b"CUDA_ERROR_INVALID_VALUE"}[code]
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    played = Driver()
    monkeypatch.setattr(cuda_driver, "driver", lambda: played)
    monkeypatch.setattr(cuda_driver, "make_current", lambda device: None)
    return played


def test_structures_have_the_sizes_that_cuda_h_gives_them() -> None:
    assert ctypes.sizeof(cuda_memory._Properties) == 32
    assert cuda_memory._Properties.location.offset == 8
    assert cuda_memory._Properties.win32.offset == 16
    assert ctypes.sizeof(cuda_memory._Access) == 12


@pytest.mark.parametrize("size", [GRANULE, 256 * MIB, 60 << 30, 61 << 30, 80 << 30, 1 << 40])
def test_no_more_pieces_than_a_message_carries(size: int) -> None:
    piece = piece_bytes(size)
    assert piece % GRANULE == 0
    assert -(-size // piece) <= 240 < fabric_messages.MAX_FILES


def test_all_of_it_is_made_mapped_and_handed_on(driver: Driver) -> None:
    mapping = Mapping("cuda:3", 2 * 256 * MIB + GRANULE, 256 * MIB)
    files = mapping.make()
    try:
        assert len(set(files)) == 3
        spans = [(0, 256 * MIB), (256 * MIB, 256 * MIB), (512 * MIB, GRANULE)]
        assert driver.log[1:] == [(call, *span) for span in spans for call in ("map", "access")]
        assert driver.alive == 0, "what is mapped needs no handle"
    finally:
        for file in files:
            os.close(file)


@pytest.mark.parametrize(
    ("extents", "pieces"),
    [
        ([Extent(4096, 4096)], [0]),
        ([Extent(256 * MIB - 4096, 8192)], [0, 1]),
        ([Extent(512 * MIB, 256 * MIB)], [2]),
        ([Extent(256 * MIB, 1), Extent(300 * MIB, 4096), Extent(100 * MIB, 700 * MIB)], [1, 0, 2, 3]),
    ],
)
def test_a_worker_maps_what_its_launch_names_and_each_piece_once(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, extents: list[Extent], pieces: list[int]
) -> None:
    seen: list[tuple[int, int, str]] = []
    monkeypatch.setattr(cuda_driver, "tensor_at", lambda *place: seen.append(place))
    worker = Pieces("cuda:3", 256 * MIB, 1 << 30, [10, 11, 12, 13])
    assert driver.imported == [], "nothing before it is asked for"
    for extent in extents:
        worker.part(extent)
    assert driver.imported == [10 + piece for piece in pieces]
    assert [at // (256 * MIB) for call, at, _ in driver.log if call == "map"] == pieces
    assert seen == [(BASE + extent.address, extent.length, "cuda:3") for extent in extents]


def test_what_the_driver_refuses_is_said_by_its_name(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "cuMemMap", lambda *_: 1, raising=False)
    with pytest.raises(Unavailable, match="cuMemMap failed: CUDA_ERROR_INVALID_VALUE") as refused:
        Mapping("cuda:3", GRANULE, GRANULE).reach(Extent(0, 1), [7])
    assert refused.value.code == "cuda-failed"


def test_a_card_that_has_not_so_much_ends_the_start(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.room = 300 * MIB
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (300 * MIB, 400 * MIB))
    with pytest.raises(ConfigurationError, match="314572800 bytes free, and hbm_bytes asks for 1073741824") as refused:
        arena.make("cuda:3", 1 << 30, -1)
    assert refused.value.code == "gpu-memory"


def test_memory_that_is_gone_is_told_from_a_fault_in_either_allocators_words() -> None:
    assert arena.is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"))
    assert arena.is_out_of_memory(RuntimeError("CUDA error: out of memory"))  # PyTorch's, where nothing is cached
    assert not arena.is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))


def test_the_keepers_first_word_brings_descriptors_and_they_die_with_the_fabric() -> None:
    fabric = DeviceFabric("cpu", 1 << 20)
    fabric.close()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fabric._link = ours
    held = os.open("/dev/null", os.O_RDONLY)
    socket.send_fds(theirs, [fabric_messages.pack({"bytes": 5})], [held, held])
    os.close(held)
    assert fabric._greeted() == {"bytes": 5}
    first, second = fabric.files
    assert os.readlink(f"/proc/self/fd/{first}") == os.readlink(f"/proc/self/fd/{second}") == "/dev/null"
    assert not os.get_inheritable(first)
    theirs.close()
    fabric._slots_fd = os.open("/dev/null", os.O_RDONLY)
    fabric.close()
    assert fabric.files == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(second)
