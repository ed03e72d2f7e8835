"""A memory file as a process maps it: aligned, shared, and no different where the kernel gives no huge page."""

from __future__ import annotations

import gc
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_agent.hardware.hbm import HBM
from gpu_agent.hardware.shared_map import HUGE_PAGE, SharedMap

SIZE = 8 * HUGE_PAGE
PAGE = 4096


@pytest.fixture
def fd() -> Iterator[int]:
    made = os.memfd_create("gpu-map-test")
    os.ftruncate(made, SIZE)
    yield made
    os.close(made)


def test_two_maps_of_a_file_are_one_memory_and_both_are_aligned(fd: int) -> None:
    one, other = SharedMap(fd, SIZE), SharedMap(fd, SIZE)
    assert one.base % HUGE_PAGE == other.base % HUGE_PAGE == 0
    assert (len(one.view), one.view.readonly) == (SIZE, False)
    one.view[SIZE - 3 :] = b"end"
    assert bytes(other.view[SIZE - 3 :]) == b"end" == os.pread(fd, 3, SIZE - 3)


def test_memory_without_a_file_is_shared_with_children() -> None:
    memory = SharedMap(-1, PAGE)
    child = os.fork()
    if child == 0:
        memory.view[:5] = b"child"
        os._exit(0)
    os.waitpid(child, 0)
    assert bytes(memory.view[:6]) == b"child\0"


@pytest.mark.parametrize("there", [True, False])
def test_enlarging_changes_no_byte_and_takes_no_memory_beyond_the_extent(
    fd: int, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, start, length = SharedMap(fd, SIZE), 3 * PAGE, 3 * HUGE_PAGE
    data = os.urandom(length)
    memory.view[start : start + length] = data
    if not there:

        def refuse(self: SharedMap, advice: int, address: int, extent: int) -> None:
            raise OSError("an older kernel")

        monkeypatch.setattr(SharedMap, "advise", refuse)
    memory.enlarge(start, length)
    assert bytes(memory.view[start : start + length]) == data
    assert os.fstat(fd).st_blocks * 512 == length


def test_what_holds_no_whole_huge_page_is_left_alone(fd: int) -> None:
    memory = SharedMap(fd, SIZE)
    memory.enlarge(PAGE, 2 * HUGE_PAGE - 2 * PAGE)
    assert os.fstat(fd).st_blocks == 0


def test_the_mapping_lives_as_long_as_a_view_of_it(fd: int) -> None:
    view = SharedMap(fd, SIZE).view
    gc.collect()
    view[:3] = b"yes"
    assert os.pread(fd, 3, 0) == b"yes"
    del view
    gc.collect()
    assert "gpu-map-test" not in Path("/proc/self/maps").read_text()


def test_an_allocation_takes_what_it_asks_for_and_gives_all_of_it_back() -> None:
    hbm = HBM(64 * HUGE_PAGE, os.urandom)
    first, second = hbm.allocate(5 * HUGE_PAGE + 1), hbm.allocate(PAGE)
    assert os.fstat(hbm.fd).st_blocks * 512 == hbm.used == 5 * HUGE_PAGE + 2 * PAGE
    assert not any(hbm.view(first, 5 * HUGE_PAGE + 1))
    hbm.write(second, b"stays")
    hbm.write(first, bytes(range(256)) * 1000)
    hbm.free(first)
    assert os.fstat(hbm.fd).st_blocks * 512 == PAGE
    assert bytes(hbm.view(second, 5)) == b"stays"
    hbm.close()


@pytest.mark.parametrize(("address", "length"), [(-PAGE, PAGE), (SIZE, PAGE), (0, SIZE + PAGE)])
def test_advice_stays_inside(fd: int, address: int, length: int) -> None:
    with pytest.raises(ValueError, match="not there"):
        SharedMap(fd, SIZE).advise(mmap.MADV_NORMAL, address, length)


def test_what_cannot_be_mapped_is_refused_and_takes_no_addresses(fd: int) -> None:
    def mapped() -> int:
        return int(Path("/proc/self/statm").read_text().split()[0])

    closed = os.open("/dev/null", os.O_RDONLY)
    os.close(closed)
    before = mapped()
    with pytest.raises(OSError, match="Bad file descriptor"):
        SharedMap(closed, 1 << 40)
    assert mapped() - before < 1 << 20
